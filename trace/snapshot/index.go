// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// index finds the contract's files among the members of a directory or archive, and refuses what is ambiguous: two
// snapshots, two files of one name.
type index struct {
	path    string            // of the snapshot
	found   bool              // a file of the contract
	root    string            // the folders above cluster/ and nodes/
	names   map[string]string // names of members by the names of files without ending
	nodes   map[string]bool
	members int
	stray   string // where a file of the contract belongs that is elsewhere; "" where none is
}

func newIndex(name string) *index {
	return &index{path: name, names: map[string]string{}, nodes: map[string]bool{}}
}

// count counts a member.
func (x *index) count() error {
	x.members++
	if x.members > bounds.Members {
		return bounds.Errorf("%s has more than %d members: a snapshot with at most %d files and directories was expected",
			x.path, bounds.Members, bounds.Members)
	}
	return nil
}

// add takes a file with its slash path. file is its path below the root, without ".gz"; "" if it is none of the
// contract.
func (x *index) add(name string) (file string, err error) {
	root, ok := rootOf(name)
	if !ok {
		x.noteStray(name)
		return "", nil
	}
	if !x.found {
		x.found, x.root = true, root
	}
	if root != x.root {
		return "", bounds.Errorf("%s holds two snapshots, in %s and in %s: one was expected; unpack it, and give one of "+
			"them", x.path, folder(x.root), folder(root))
	}
	rel := strings.TrimPrefix(name, root)
	file = strings.TrimSuffix(rel, ".gz")
	same := file
	if strings.HasPrefix(file, "cluster/") {
		same = strings.TrimSuffix(file, path.Ext(file)) // .json, .yaml and .yml say the same
	}
	if other, ok := x.names[same]; ok {
		if other == rel {
			return "", bounds.Errorf("%s holds %s twice: once was expected", x.path, rel)
		}
		return "", bounds.Errorf("%s holds both %s and %s: one of them was expected", x.path, other, rel)
	}
	x.names[same] = rel
	if node, ok := nodeOf(file); ok && !x.nodes[node] {
		switch x.nodes[node] = true; {
		case len(x.nodes) > bounds.Nodes:
			return "", bounds.Errorf("%s holds more than %d nodes: at most %d were expected", x.path, bounds.Nodes,
				bounds.Nodes)
		case len(node) > bounds.NodeName:
			return "", bounds.Errorf("%s holds a node with a name of %d bytes, %.40s…: names of at most %d bytes were expected",
				x.path, len(node), node, bounds.NodeName)
		}
	}
	return file, nil
}

// noteStray notes a file whose name is one of the contract, and that is elsewhere.
func (x *index) noteStray(name string) {
	dir, base := path.Split(strings.TrimSuffix(name, ".gz"))
	place := ""
	switch {
	case x.stray != "":
	case slices.Contains(NodeFiles, base):
		place = "nodes/NODE/"
	case clusterKind(base) != nil:
		place = "cluster/"
	}
	if place != "" {
		x.stray = fmt.Sprintf("it has %s%s where a snapshot has %s%s", dir, base, place, base)
	}
}

// folder names a root for people.
func folder(root string) string {
	if root == "" {
		return "its topmost folder"
	}
	return root
}

// refuse returns an error if a member that is not a regular file has a name of the contract, or hides files of it.
// kind says what it is.
func (x *index) refuse(name, kind string, hides bool) error {
	if _, ok := rootOf(name); !ok && !hides {
		return nil
	}
	return bounds.Errorf("%s in %s is %s: a regular file was expected", name, x.path, kind)
}

// structural tells whether a directory is one that holds files of the contract: cluster, nodes, nodes/NODE, and a
// node's pods and pods/POD.
func structural(name string) bool {
	dir, base := path.Split(name)
	return base == "cluster" || base == "nodes" || path.Base(dir) == "nodes" || holdsPods(name) ||
		holdsPods(path.Clean(dir))
}

// nodeOf returns the node that a file belongs to; ok is false for a file of the cluster.
func nodeOf(file string) (node string, ok bool) {
	rest, ok := strings.CutPrefix(file, "nodes/")
	node, _, _ = strings.Cut(rest, "/")
	return node, ok
}

// rootOf tells whether f is root/cluster/FILE, root/nodes/NODE/FILE or root/nodes/NODE/pods/POD/FILE of the format, and
// returns "root/".
func rootOf(f string) (root string, ok bool) {
	dir, base := path.Split(strings.TrimSuffix(f, ".gz"))
	dir = strings.TrimSuffix(dir, "/")
	if path.Base(dir) == "cluster" && clusterKind(base) != nil {
		return strings.TrimSuffix(dir, "cluster"), true
	}
	if nodes := path.Dir(dir); path.Base(nodes) == "nodes" && slices.Contains(NodeFiles, base) {
		return strings.TrimSuffix(nodes, "nodes"), true
	}
	return podRoot(strings.TrimSuffix(f, ".gz"))
}

// check returns an error if nothing was found.
func (x *index) check() error {
	if !x.found && x.stray != "" {
		return fmt.Errorf("%s is not a snapshot: %s (see docs/snapshots.md)", x.path, x.stray)
	}
	if !x.found {
		return fmt.Errorf("%s is not a snapshot: it has neither cluster/ nor nodes/NODE/ with a file of the format "+
			"(see docs/snapshots.md)", x.path)
	}
	return nil
}
