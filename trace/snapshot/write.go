// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Version is the version of the format in snapshot.json.
const Version = 1

// Meta is snapshot.json: which program made the snapshot, and when.
type Meta struct {
	Version   int       `json:"version"`
	CreatedAt time.Time `json:"createdAt"`
	Tool      string    `json:"tool"`
}

// Write writes a snapshot as .tar.gz: what Open reads. Kinds in Cluster.Missing are left out, as are files that a node
// does not have. The names of nodes are checked by CheckNodeName. After an error the archive is truncated, so that Open
// refuses it.
func Write(w io.Writer, m Meta, c *Cluster, nodes []*Node) error {
	zip := gzip.NewWriter(w)
	a := archive{tar.NewWriter(zip), m.CreatedAt}
	if err := a.json("snapshot.json", m); err != nil {
		return err
	}
	for i := range kinds {
		k := &kinds[i]
		if slices.Contains(c.Missing, k.name) {
			continue
		}
		if err := a.json("cluster/"+k.name+".json", printed{"v1", "List", k.items(c)}); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := CheckNodeName(n.Name); err != nil {
			return fmt.Errorf("a node cannot be written: %w", err)
		}
		for _, name := range slices.Sorted(maps.Keys(n.files)) {
			data, err := n.files[name]()
			if err != nil {
				return err
			}
			if err := a.file("nodes/"+n.Name+"/"+name, data); err != nil {
				return err
			}
		}
	}
	if err := a.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// printed is a List as kubectl get prints it.
type printed struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []any  `json:"items"`
}

// typed returns objects with their kind, which objects decoded by a client do not have.
func typed[T any, P interface {
	*T
	runtime.Object
	DeepCopy() *T
}](objects []*T, kind schema.GroupVersionKind) []any {
	out := make([]any, 0, len(objects))
	for _, o := range objects {
		c := P(o).DeepCopy()
		P(c).GetObjectKind().SetGroupVersionKind(kind)
		out = append(out, c)
	}
	return out
}

type archive struct {
	*tar.Writer
	at time.Time
}

func (a archive) json(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return a.file(name, append(data, '\n'))
}

func (a archive) file(name string, data []byte) error {
	err := a.WriteHeader(&tar.Header{
		Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)), ModTime: a.at,
	})
	if err == nil {
		_, err = a.Write(data)
	}
	return err
}
