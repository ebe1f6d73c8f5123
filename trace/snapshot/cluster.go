// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// Cluster is the API's side of a snapshot.
type Cluster struct {
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Nodes          []*corev1.Node
	Pods           []*corev1.Pod
	ConfigMaps     []*corev1.ConfigMap
	// Missing names the kinds that were not collected ("services", "endpointslices", "nodes", "pods", "configmaps").
	Missing []string
}

// kind is one file of cluster/.
type kind struct {
	name     string // of the file, without its ending
	item     string // kind of its objects
	required bool
	decode   func(c *Cluster, items []json.RawMessage) error
}

var kinds = []kind{
	{"services", "Service", true, func(c *Cluster, items []json.RawMessage) (err error) {
		c.Services, err = decodeAll[corev1.Service](items)
		return err
	}},
	{"endpointslices", "EndpointSlice", true, func(c *Cluster, items []json.RawMessage) (err error) {
		c.EndpointSlices, err = decodeAll[discoveryv1.EndpointSlice](items)
		return err
	}},
	{"nodes", "Node", false, func(c *Cluster, items []json.RawMessage) (err error) {
		c.Nodes, err = decodeAll[corev1.Node](items)
		return err
	}},
	{"pods", "Pod", false, func(c *Cluster, items []json.RawMessage) (err error) {
		c.Pods, err = decodeAll[corev1.Pod](items)
		return err
	}},
	{"configmaps", "ConfigMap", false, func(c *Cluster, items []json.RawMessage) (err error) {
		c.ConfigMaps, err = decodeAll[corev1.ConfigMap](items)
		return err
	}},
}

func clusterKind(base string) *kind {
	for i := range kinds {
		for _, ending := range []string{".json", ".yaml", ".yml"} {
			if base == kinds[i].name+ending {
				return &kinds[i]
			}
		}
	}
	return nil
}

// Cluster decodes the cluster's objects. Services and EndpointSlices have to be there; the error names the file and what was
// expected in it.
func (s *Snapshot) Cluster() (*Cluster, error) {
	c := &Cluster{}
	errs := make([]error, len(kinds))
	missing := make([]bool, len(kinds))
	var wg sync.WaitGroup
	for i := range kinds {
		wg.Go(func() { missing[i], errs[i] = s.readKind(c, &kinds[i]) })
	}
	wg.Wait()
	for i, m := range missing {
		if m {
			c.Missing = append(c.Missing, kinds[i].name)
		}
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (s *Snapshot) readKind(c *Cluster, k *kind) (missing bool, err error) {
	for _, ending := range []string{".json", ".yaml", ".yml"} {
		name := "cluster/" + k.name + ending
		o := s.files[name]
		if o == nil {
			continue
		}
		data, err := o()
		if err != nil {
			return false, err
		}
		if ending != ".json" {
			if data, err = yaml.YAMLToJSON(data); err != nil {
				return false, fmt.Errorf("%s in %s is no YAML: %w", name, s.path, err)
			}
		}
		if err := k.read(c, data); err != nil {
			return false, fmt.Errorf("%s in %s: %w", name, s.path, err)
		}
		return false, nil
	}
	if k.required {
		return true, fmt.Errorf("%s has no cluster/%s.json: make it with: kubectl get %s -A -o json", s.path, k.name, k.name)
	}
	return true, nil
}

// read decodes a List of the kind, as kubectl get prints it, or a single object of it.
func (k *kind) read(c *Cluster, data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("it is empty, where a List of %s was expected", k.item)
	}
	var l struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return badJSON(err)
	}
	if l.Kind == k.item {
		l.Items = []json.RawMessage{data}
	} else if l.Kind != "List" && l.Kind != k.item+"List" {
		return fmt.Errorf("it holds kind %q, where a List of %s was expected", l.Kind, k.item)
	}
	if len(l.Items) > 0 {
		var first struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(l.Items[0], &first); err != nil {
			return badJSON(err)
		}
		if first.Kind != "" && first.Kind != k.item {
			return fmt.Errorf("it holds objects of kind %q, where %s was expected", first.Kind, k.item)
		}
	}
	return k.decode(c, l.Items)
}

// decodeAll decodes the items on as many processors as there are: at 5,000 Services this is a large part of the run.
func decodeAll[T any, P interface {
	*T
	GetName() string
}](items []json.RawMessage) ([]*T, error) {
	const batch = 256
	all := make([]T, len(items))
	out := make([]*T, len(items))
	errs := make([]error, (len(items)+batch-1)/batch)
	var wg sync.WaitGroup
	for b := range errs {
		wg.Go(func() {
			for i := b * batch; i < min(len(items), (b+1)*batch); i++ {
				out[i] = &all[i]
				if err := json.Unmarshal(items[i], &all[i]); err != nil {
					errs[b] = fmt.Errorf("item %d: %w", i, badJSON(err))
					return
				}
				if P(&all[i]).GetName() == "" {
					errs[b] = fmt.Errorf("item %d has no name", i)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// badJSON says in one line what is wrong with a JSON text.
func badJSON(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		if strings.Contains(err.Error(), "unexpected end") {
			return fmt.Errorf("the JSON is cut off at byte %d", syntax.Offset)
		}
		return fmt.Errorf("it is no JSON: %w (byte %d)", err, syntax.Offset)
	}
	return err
}
