// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// rulesOf is a large file of a node.
func rulesOf(node, file string) []byte {
	var b bytes.Buffer
	for i := range 40_000 {
		fmt.Fprintf(&b, "-A %s-%s-%08x -j KUBE-%016x\n", node, file, i*2654435761, i*i*i)
	}
	return b.Bytes()
}

// largeArchive writes nodes with two files each, in an order.
func largeArchive(t *testing.T, nodes int, mixed bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snap.tar.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zip)
	add := func(name string, data []byte) {
		t.Helper()
		h := &tar.Header{Name: "dump/" + name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(data))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	files := []string{IPTablesFile, IP6TablesFile}
	if mixed {
		for _, file := range files {
			for i := range nodes {
				add(fmt.Sprintf("nodes/n%d/%s", i, file), rulesOf(fmt.Sprint("n", i), file))
			}
		}
	} else {
		for i := range nodes {
			for _, file := range files {
				add(fmt.Sprintf("nodes/n%d/%s", i, file), rulesOf(fmt.Sprint("n", i), file))
			}
		}
	}
	add("cluster/services.json", []byte(oneService))
	add("cluster/endpointslices.json", []byte(oneSlice))
	for _, c := range []interface{ Close() error }{w, zip, f} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// An archive that is too large for the memory is read node by node, whatever the order of its members.
func TestLargeArchiveIsReadNodeByNode(t *testing.T) {
	const nodes = 24
	for name, mixed := range map[string]bool{"the files of a node together": false, "the files of all nodes mixed": true} {
		t.Run(name, func(t *testing.T) {
			path := largeArchive(t, nodes, mixed)
			s, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if s.archive == nil {
				t.Fatal("all of it is in memory")
			}
			if c, err := s.Cluster(); err != nil || len(c.Services) != 1 {
				t.Errorf("%v %v", c, err)
			}
			wanted := s.NodeNames()
			slices.Reverse(wanted) // any order
			check := func(n *Node) {
				t.Helper()
				for _, file := range []string{IPTablesFile, IP6TablesFile} {
					data, ok, err := n.File(file)
					if !ok || err != nil || !bytes.Equal(data, rulesOf(n.Name, file)) {
						t.Errorf("%s of %s: %d bytes, %t, %v", file, n.Name, len(data), ok, err)
					}
				}
				if _, ok, _ := n.File(IPVSFile); ok {
					t.Errorf("%s has a file that is not there", n.Name)
				}
			}
			got := map[string]bool{}
			for n, err := range s.Nodes(wanted) {
				if err != nil {
					t.Fatal(err)
				}
				if got[n.Name] {
					t.Errorf("%s comes twice", n.Name)
				}
				got[n.Name] = true
				check(n)
			}
			if len(got) != nodes {
				t.Errorf("%d nodes came, want %d", len(got), nodes)
			}
			n, err := s.Node("n7")
			if err != nil {
				t.Fatal(err)
			}
			check(n)
			if _, err := s.Node("n99"); err == nil || !strings.Contains(err.Error(), `holds no node "n99"`) {
				t.Errorf("a node that is not there: %v", err)
			}
			// It is another file now.
			if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Node("n7"); err == nil || !strings.Contains(err.Error(), "changed while it was read") {
				t.Errorf("an archive that has changed: %v", err)
			}
		})
	}
}

func TestPacked(t *testing.T) {
	for _, data := range [][]byte{{}, []byte("a"), bytes.Repeat([]byte("abc"), packFrom), written(packFrom)} {
		p := &Packer{}
		for part := range slices.Chunk(data, 60_000) {
			if _, err := p.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		c, err := p.Pack()
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Bytes()
		if err != nil || got == nil || !bytes.Equal(got, data) || c.Len() != int64(len(data)) || p.Len() != c.Len() {
			t.Errorf("%d bytes are read back as %d: %v", len(data), len(got), err)
		}
		if len(data) > packFrom && c.Held() > c.Len()/10 {
			t.Errorf("%d bytes take %d in memory", c.Len(), c.Held())
		}
		// It is as it was received: what is compressed stays so.
		n := NewPackedNode("n", map[string]Packed{IPTablesFile: c})
		if back, ok, err := n.File(IPTablesFile); !ok || err != nil || !bytes.Equal(back, data) {
			t.Errorf("%d bytes, %t, %v", len(back), ok, err)
		}
	}
	n := NewNode("n", map[string][]byte{ConfigzFile: make([]byte, bounds.Config+1)})
	if _, _, err := n.File(ConfigzFile); !bounds.Is(err) {
		t.Errorf("a configuration that is too large: %v", err)
	}
}

// written is a text of n bytes.
func written(n int) []byte { return bytes.Repeat([]byte("a line of text\n"), n/15)[:n/15*15] }

// FuzzFiles feeds the files that this package parses.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("    1 init\n  PID COMMAND\n"))
	f.Add([]byte(`{"targets":[{"protocol":"TCP","to":"10.0.0.1:80","list":[{"result":"connected"}]}]}`))
	f.Add([]byte(`{"ipset-save.txt":"no permission"}`))
	f.Add([]byte(strings.Repeat("[", 1000)))
	f.Add([]byte(strings.Repeat("1 a\n", 1000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := NewNode("n", map[string][]byte{ProcessesFile: data, ProbesFile: data, UnreadFile: data})
		list, ok, err := n.Processes()
		if !ok { // with an error the list is what could be read
			t.Errorf("%d processes, not collected, %v", len(list), err)
		}
		for _, p := range list {
			if p.Name == "" {
				t.Error("a process without a name")
			}
		}
		if p, err := n.Probed(); (p == nil) == (err == nil) {
			t.Errorf("%v %v", p, err)
		}
		if m, err := n.Unread(); err != nil && m != nil {
			t.Errorf("%v %v", m, err)
		}
	})
}
