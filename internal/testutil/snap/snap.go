// SPDX-License-Identifier: Apache-2.0

// Package snap opens snapshots for tests. A test fails where something cannot be read.
package snap

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Open opens a snapshot, and reads the cluster's objects.
func Open(t testing.TB, path string) (*snapshot.Snapshot, *snapshot.Cluster) {
	t.Helper()
	s, err := snapshot.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := s.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	return s, objects
}

// Node opens one node of a snapshot, and reads the cluster's objects.
func Node(t testing.TB, path, node string) (*snapshot.Cluster, *snapshot.Node) {
	t.Helper()
	s, objects := Open(t, path)
	n, err := s.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	return objects, n
}

// Files reads the files of a node that it has, by name.
func Files(t testing.TB, n *snapshot.Node) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, name := range snapshot.NodeFiles {
		data, ok, err := n.File(name)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			files[name] = data
		}
	}
	return files
}

// FilesAndUnread is Files with the list of what could not be read, where the node has one.
func FilesAndUnread(t testing.TB, n *snapshot.Node) map[string][]byte {
	t.Helper()
	files := Files(t, n)
	if data, ok, err := n.File(snapshot.UnreadFile); err == nil && ok {
		files[snapshot.UnreadFile] = data
	}
	return files
}

// Spoiled are the ways in which a file is not what it was, by what they are called; nil is one that is missing.
func Spoiled(data []byte) map[string][]byte {
	return map[string][]byte{
		"missing": nil, "empty": {}, "cut": data[:len(data)/2],
		"a page": []byte("<html>\n<h1>502 Bad Gateway</h1>\n</html>\n"),
	}
}
