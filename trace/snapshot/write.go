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

// Writer writes a snapshot as .tar.gz: what Open reads. Until Close, and after an error, the archive is cut off, so
// that Open refuses it.
type Writer struct {
	zip *gzip.Writer
	out tarWriter
}

// NewWriter begins a snapshot with the cluster's objects. Kinds in Cluster.Missing are left out.
func NewWriter(w io.Writer, m Meta, c *Cluster) (*Writer, error) {
	zip := gzip.NewWriter(w)
	out := &Writer{zip: zip, out: tarWriter{tar.NewWriter(zip), m.CreatedAt}}
	if err := out.out.json("snapshot.json", m); err != nil {
		return nil, err
	}
	for i := range kinds {
		k := &kinds[i]
		if slices.Contains(c.Missing, k.name) {
			continue
		}
		if err := out.out.json("cluster/"+k.name+".json", printed{"v1", "List", k.items(c)}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Node adds a node with the files that it has. The error is CheckNodeName's for a name that it does not accept.
func (w *Writer) Node(n *Node) error {
	if err := CheckNodeName(n.Name); err != nil {
		return fmt.Errorf("a node cannot be written: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(n.files)) {
		data, _, err := n.File(name)
		if err != nil {
			return err
		}
		if err := w.out.file("nodes/"+n.Name+"/"+name, data); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the archive.
func (w *Writer) Close() error {
	if err := w.out.Close(); err != nil {
		return err
	}
	return w.zip.Close()
}

// Write writes a snapshot of nodes by a [Writer].
func Write(w io.Writer, m Meta, c *Cluster, nodes []*Node) error {
	out, err := NewWriter(w, m, c)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := out.Node(n); err != nil {
			return err
		}
	}
	return out.Close()
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

// tarWriter writes files.
type tarWriter struct {
	*tar.Writer
	at time.Time
}

func (a tarWriter) json(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return a.file(name, append(data, '\n'))
}

func (a tarWriter) file(name string, data []byte) error {
	err := a.WriteHeader(&tar.Header{
		Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)), ModTime: a.at,
	})
	if err == nil {
		_, err = a.Write(data)
	}
	return err
}
