// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"compress/gzip"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// packedObjects are a Cluster as it is sent to a node. Unlike files of a snapshot it is read by the same version of
// this code alone.
type packedObjects struct {
	Services       items[corev1.Service]            `json:"s,omitempty"`
	EndpointSlices items[discoveryv1.EndpointSlice] `json:"e,omitempty"`
	Nodes          items[corev1.Node]               `json:"n,omitempty"`
	Pods           items[corev1.Pod]                `json:"p,omitempty"`
	ConfigMaps     items[corev1.ConfigMap]          `json:"c,omitempty"`
	Endpoints      items[Endpoints]                 `json:"b,omitempty"`
	Missing        []string                         `json:"m,omitempty"`
	Unread         map[string]string                `json:"u,omitempty"`
}

// PackObjects makes JSON of objects, and compresses it.
func PackObjects(c *Cluster) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	// The faster library leaves out also what is there and empty: the name of a port.
	err = stdjson.NewEncoder(z).Encode(&packedObjects{
		c.Services, c.EndpointSlices, c.Nodes, c.Pods, c.ConfigMaps, c.Endpoints, c.Missing, c.Unread,
	})
	if err := errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// UnpackObjects reads what PackObjects has made. The error is a [bounds.Error] where a limit is passed.
func UnpackObjects(packed []byte) (*Cluster, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("the objects cannot be unpacked: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(z, bounds.File+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the objects cannot be unpacked: %w", err)
	case len(data) > bounds.File:
		return nil, bounds.TooLarge("the list of objects", bounds.File)
	}
	if err := bounds.ClusterJSON.Check("the list of objects", data); err != nil {
		return nil, err
	}
	var p packedObjects
	if err := json.Unmarshal(data, &p, lenient); err != nil {
		return nil, fmt.Errorf("the objects cannot be read: %w", badJSON(err))
	}
	if slices.Contains(p.Services, nil) || slices.Contains(p.EndpointSlices, nil) || slices.Contains(p.Nodes, nil) ||
		slices.Contains(p.Pods, nil) || slices.Contains(p.ConfigMaps, nil) || slices.Contains(p.Endpoints, nil) {
		return nil, errors.New("one of the objects is null")
	}
	return &Cluster{
		Services: p.Services, EndpointSlices: p.EndpointSlices, Nodes: p.Nodes, Pods: p.Pods, ConfigMaps: p.ConfigMaps,
		Endpoints: p.Endpoints, Missing: p.Missing, Unread: p.Unread,
	}, nil
}
