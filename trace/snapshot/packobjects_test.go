// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
)

// objectsOf are the objects of a captured cluster.
func objectsOf(t testing.TB) *Cluster {
	t.Helper()
	s, err := Open("../../testdata/snapshots/real-2node-iptables")
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPackedObjects: what is unpacked is what was packed, the empty names of ports included.
func TestPackedObjects(t *testing.T) {
	c := objectsOf(t)
	c.Missing, c.Unread = []string{"pods"}, map[string]string{"cluster/pods.json": "forbidden"}
	packed, err := PackObjects(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := UnpackObjects(packed)
	if err != nil {
		t.Fatal(err)
	}
	a, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) || len(got.Services) == 0 {
		t.Errorf("%.2000s\nwant\n%.2000s", a, b)
	}
}

// gzipped compresses a text.
func gzipped(t testing.TB, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestObjectsThatCannotBeUnpacked: an error, and within the limits one of these.
func TestObjectsThatCannotBeUnpacked(t *testing.T) {
	for name, c := range map[string]struct {
		packed []byte
		limit  bool
	}{
		"nothing":          {nil, false},
		"not compressed":   {[]byte(`{"s":[]}`), false},
		"no JSON":          {gzipped(t, `{"s":`), false},
		"of another shape": {gzipped(t, `{"s":{"a":1}}`), false},
		"null":             {gzipped(t, `{"e":[null]}`), false},
		"half of it":       {gzipped(t, `{"s":[]}`)[:20], false},
		"a bomb":           {gzipped(t, strings.Repeat(" ", bounds.File+1)), true},
		"too deep":         {gzipped(t, strings.Repeat("[", bounds.JSONDepth+1)), true},
	} {
		_, err := UnpackObjects(c.packed)
		if err == nil || bounds.Is(err) != c.limit {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnpackObjects(f *testing.F) {
	packed, err := PackObjects(objectsOf(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Add(gzipped(f, `{"s":[{"metadata":{"name":"a"}}],"e":[null],"m":["pods"],"u":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := UnpackObjects(data)
		if err != nil {
			return
		}
		if _, err := PackObjects(c); err != nil {
			t.Error(err)
		}
	})
}
