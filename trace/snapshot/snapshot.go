// SPDX-License-Identifier: Apache-2.0

// Package snapshot reads the snapshot format: a directory or .tar.gz of what standard tools print about a cluster and
// its nodes (docs/snapshots.md). A missing file means "not collected", never "empty".
//
// What it reads is bounded (trace/bounds): the number of members, their sizes after decompression, lines, and the
// elements and depth of JSON. A parser of a file of [Node.File] need not expect more.
package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/maruel/natural"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// Snapshot is an opened snapshot. It is safe for concurrent use.
type Snapshot struct {
	path  string
	files map[string]opener // by slash path below the root, without ".gz"; nil: in archive only
	// archive has the nodes of an archive that is not kept in memory; nil for others.
	archive *archive
}

// Open opens a snapshot: a directory, or an archive (.tar.gz, .tgz, .tar). It reads an archive once, to its end, and
// keeps of a large one only the cluster's objects; a directory's files are read on demand. The error names the path
// and what is wrong with it; it is a [bounds.Error] if a limit is passed.
func Open(name string) (*Snapshot, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no snapshot at %s: give a directory or a .tar.gz", name)
	case err != nil:
		return nil, fmt.Errorf("cannot read the snapshot: %w", err)
	case info.IsDir():
		return openDirectory(name)
	case !info.Mode().IsRegular():
		// Opening a named pipe waits for a writer, and an archive may have to be read twice.
		return nil, bounds.Errorf("%s is %s: a directory or a .tar.gz was expected", name, irregular(info.Mode().Type()))
	}
	return openArchive(name, info)
}

// NodeNames returns the names of the nodes that the snapshot holds files of, worker-2 before worker-10.
func (s *Snapshot) NodeNames() []string {
	names := map[string]bool{}
	for f := range s.files {
		if node, ok := nodeOf(f); ok {
			names[node] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), natural.Compare)
}

// Node returns one node's files. When it is not among them the error names the existing nodes. For several nodes, use
// [Snapshot.Nodes]: of a large archive each call reads all of it.
func (s *Snapshot) Node(name string) (*Node, error) {
	for n, err := range s.Nodes([]string{name}) {
		return n, err
	}
	return nil, s.unknown(name)
}

// Nodes returns nodes with their files, each once: of a large archive in the order in which they are there, and only
// the node itself is in memory; else in the order of names. The iterator ends after the first error.
func (s *Snapshot) Nodes(names []string) iter.Seq2[*Node, error] {
	return func(yield func(*Node, error) bool) {
		nodes := map[string]*Node{}
		for _, n := range names {
			nodes[n] = newNode(n)
		}
		for f, o := range s.files {
			if node, ok := nodeOf(f); ok && nodes[node] != nil {
				nodes[node].files[strings.TrimPrefix(f, "nodes/"+node+"/")] = o
			}
		}
		wanted := map[string]bool{}
		for _, name := range names {
			if len(nodes[name].files) == 0 {
				yield(nil, s.unknown(name))
				return
			}
			if wanted[name] {
				continue
			}
			wanted[name] = true
			if s.archive == nil && !yield(nodes[name], nil) {
				return
			}
		}
		if s.archive != nil {
			s.archive.read(wanted)(yield)
		}
	}
}

// unknown is the error for a node that the snapshot does not hold.
func (s *Snapshot) unknown(name string) error {
	names := s.NodeNames()
	if len(names) == 0 {
		return fmt.Errorf("%s holds no node: there is no nodes/NODE/ with a file of the format", s.path)
	}
	return fmt.Errorf("%s holds no node %q: it holds %s", s.path, name, strings.Join(names, ", "))
}

// Node is what was collected from one node: files by the names of the contract ("iptables-save.txt").
type Node struct {
	Name  string
	files map[string]opener
	total *total
}

// total counts the bytes of a node's files: they are read when they are needed, in any order.
type total struct {
	sync.Mutex
	files map[string]int64
	err   error // that they are too large together: no more are read
}

func newNode(name string) *Node {
	return &Node{Name: name, files: map[string]opener{}, total: &total{files: map[string]int64{}}}
}

// NewNode returns a node of file contents in memory, which are not compressed.
func NewNode(name string, files map[string][]byte) *Node {
	n := newNode(name)
	for f, data := range files {
		n.files[f] = plain(f, data)
	}
	return n
}

// NewPackedNode returns a node of file contents that were received.
func NewPackedNode(name string, files map[string]Packed) *Node {
	n := newNode(name)
	for f, data := range files {
		n.files[f] = data.open(f)
	}
	return n
}

// With returns the node with one more file.
func (n *Node) With(name string, data []byte) *Node {
	out := newNode(n.Name)
	maps.Copy(out.files, n.files)
	out.files[name] = plain(name, data)
	return out
}

// Only returns the node with some of its files.
func (n *Node) Only(names ...string) *Node {
	out := newNode(n.Name)
	for _, f := range names {
		if o, ok := n.files[f]; ok {
			out.files[f] = o
		}
	}
	return out
}

// File returns the content of a file, uncompressed. ok is false when it was not collected. The error names the file;
// it is a [bounds.Error] if the file, or those of the node that were read, pass a limit.
func (n *Node) File(name string) (data []byte, ok bool, err error) {
	o, ok := n.files[name]
	if !ok {
		return nil, false, nil
	}
	f := formatOf(name)
	if data, err = n.read(name, o, f.size); err != nil {
		return nil, true, err
	}
	if err := f.verify(name, data); err != nil {
		return nil, true, err
	}
	return data, true, nil
}

// Check returns the error of the first file that [Node.File] would not return.
func (n *Node) Check() error {
	for _, name := range slices.Sorted(maps.Keys(n.files)) {
		if _, _, err := n.File(name); err != nil {
			return err
		}
	}
	return nil
}

// read reads a file of at most size bytes, and adds it to those of the node. They are read one after the other, so that
// no more are in memory than the node may have, and of one that is too large for that one byte more.
func (n *Node) read(name string, open opener, size int64) ([]byte, error) {
	n.total.Lock()
	defer n.total.Unlock()
	if n.total.err != nil {
		return nil, n.total.err
	}
	left := int64(bounds.Node)
	for other, size := range n.total.files {
		if other != name {
			left -= size
		}
	}
	data, err := open.read(min(size, left+1))
	if err == nil {
		n.total.files[name] = int64(len(data))
	}
	if int64(len(data)) > left || left < size && bounds.Is(err) {
		n.total.err = totalError{bounds.Errorf("the files of node %s are larger than %s together: at most %s were expected",
			n.Name, bounds.Bytes(bounds.Node), bounds.Bytes(bounds.Node))}
		return nil, n.total.err
	}
	return data, err
}

// ErrTotal is the error of [Node.File], by errors.Is, where not the file passes a limit but all files of the node
// together.
var ErrTotal = errors.New("the node's files together")

// totalError is an ErrTotal. It is a bounds.Error, too.
type totalError struct{ error }

func (totalError) Is(target error) bool { return target == ErrTotal }

// Unwrap returns the [bounds.Error].
func (e totalError) Unwrap() error { return e.error }

// Has tells whether a file was collected.
func (n *Node) Has(name string) bool {
	_, ok := n.files[name]
	return ok
}
