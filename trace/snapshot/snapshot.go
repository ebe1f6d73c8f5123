// SPDX-License-Identifier: Apache-2.0

// Package snapshot reads the snapshot format: a directory or .tar.gz of what standard tools print about a cluster and
// its nodes (docs/snapshots.md). A missing file means "not collected", never "empty".
package snapshot

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Snapshot is an opened snapshot. It is safe for concurrent use.
type Snapshot struct {
	path  string
	files map[string]opener // by cleaned slash path below the root, without ".gz"
}

// Open opens a snapshot: a directory, or an archive (.tar.gz, .tgz, .tar). It reads an archive whole; a directory's
// files are read on demand. The error names the path and what is wrong with it.
func Open(name string) (*Snapshot, error) {
	files, err := list(name)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{path: name, files: rooted(files)}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("%s is not a snapshot: it has neither cluster/ nor nodes/NODE/ with a file of the format "+
			"(see docs/snapshots.md)", name)
	}
	return s, nil
}

// rooted returns the files of the format, without the folders above cluster/ and nodes/ that an archive may have.
func rooted(files map[string]opener) map[string]opener {
	names := make([]string, 0, len(files))
	for f := range files {
		names = append(names, f)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := strings.Count(a, "/") - strings.Count(b, "/"); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	out := map[string]opener{}
	root, found := "", false
	for _, f := range names {
		if !found {
			if root, found = rootOf(f); !found {
				continue
			}
		}
		if rel, ok := strings.CutPrefix(f, root); ok {
			if _, ok := rootOf(rel); ok || rel == "snapshot.json" {
				out[strings.TrimSuffix(rel, ".gz")] = files[f]
			}
		}
	}
	return out
}

// rootOf tells whether f is root/cluster/FILE or root/nodes/NODE/FILE of the format, and returns "root/".
func rootOf(f string) (root string, ok bool) {
	dir, base := path.Split(strings.TrimSuffix(f, ".gz"))
	dir = strings.TrimSuffix(dir, "/")
	if path.Base(dir) == "cluster" && clusterKind(base) != nil {
		return strings.TrimSuffix(dir, "cluster"), true
	}
	if nodes := path.Dir(dir); path.Base(nodes) == "nodes" && slices.Contains(NodeFiles, base) {
		return strings.TrimSuffix(nodes, "nodes"), true
	}
	return "", false
}

// NodeNames returns the names of the nodes that the snapshot holds files of, sorted.
func (s *Snapshot) NodeNames() []string {
	var names []string
	for f := range s.files {
		if rest, ok := strings.CutPrefix(f, "nodes/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Node returns one node's files. When it is not among them the error names the existing nodes.
func (s *Snapshot) Node(name string) (*Node, error) {
	names := s.NodeNames()
	if !slices.Contains(names, name) {
		if len(names) == 0 {
			return nil, fmt.Errorf("%s holds no node: there is no nodes/NODE/ with a file of the format", s.path)
		}
		return nil, fmt.Errorf("%s holds no node %q: it holds %s", s.path, name, strings.Join(names, ", "))
	}
	n := &Node{Name: name, files: map[string]opener{}}
	for f, o := range s.files {
		if base, ok := strings.CutPrefix(f, "nodes/"+name+"/"); ok {
			n.files[base] = o
		}
	}
	return n, nil
}

// Node is what was collected from one node: files by the names of the contract ("iptables-save.txt").
type Node struct {
	Name  string
	files map[string]opener
}

// NewNode returns a node of file contents in memory, as a live collector has them.
func NewNode(name string, files map[string][]byte) *Node {
	n := &Node{Name: name, files: map[string]opener{}}
	for f, data := range files {
		n.files[f] = memory(f, data)
	}
	return n
}

// With returns the node with one more file.
func (n *Node) With(name string, data []byte) *Node {
	out := &Node{Name: n.Name, files: maps.Clone(n.files)}
	out.files[name] = memory(name, data)
	return out
}

// File returns the content of a file, uncompressed. ok is false when it was not collected. The error names the file.
func (n *Node) File(name string) (data []byte, ok bool, err error) {
	o, ok := n.files[name]
	if !ok {
		return nil, false, nil
	}
	data, err = o()
	return data, true, err
}

// Has tells whether a file was collected.
func (n *Node) Has(name string) bool { return n.files[name] != nil }
