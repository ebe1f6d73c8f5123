// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// What Write writes, Open reads; a captured node goes through unchanged.
func TestWriteIsReadBack(t *testing.T) {
	from, err := Open("../../examples/broken-node")
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := from.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	cluster.ConfigMaps, cluster.Missing = nil, []string{"configmaps"}
	node, err := from.Node("worker-1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	var b bytes.Buffer
	m := Meta{Version: Version, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Tool: "test"}
	if err := Write(&b, m, cluster,
		[]*Node{node, NewNode("worker-2", map[string][]byte{"ipset-save.txt": {}})}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	back, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, cluster) {
		t.Errorf("the cluster's objects are read back as\n%+v\nwhere\n%+v\nwere written", again, cluster)
	}
	if got, want := back.NodeNames(), []string{"worker-1", "worker-2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	copied, err := back.Node("worker-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range NodeFiles {
		want, had, err := node.File(name)
		if err != nil {
			t.Fatal(err)
		}
		got, has, err := copied.File(name)
		if err != nil {
			t.Fatal(err)
		}
		if had != has || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes (there: %t), want %d (%t)", name, len(got), has, len(want), had)
		}
	}
	empty, err := back.Node("worker-2")
	if err != nil {
		t.Fatal(err)
	}
	if data, ok, err := empty.File("ipset-save.txt"); err != nil || !ok || len(data) != 0 {
		t.Errorf("an empty file is read back as %q, %t, %v", data, ok, err)
	}
}

func TestACutOffArchiveIsNotTakenForAWhole(t *testing.T) {
	var b bytes.Buffer
	node := NewNode("n", map[string][]byte{"iptables-save.txt": bytes.Repeat([]byte("*nat\nCOMMIT\n"), 1000)})
	if err := Write(&b, Meta{Version: Version}, &Cluster{}, []*Node{node}); err != nil {
		t.Fatal(err)
	}
	for cut := range b.Len() - 1 {
		file := filepath.Join(t.TempDir(), "dump.tar.gz")
		if err := os.WriteFile(file, b.Bytes()[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(file); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for a snapshot", cut, b.Len())
		}
	}
}
