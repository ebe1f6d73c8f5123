// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

const (
	oneService = `{"kind":"List","items":[{"kind":"Service","metadata":{"namespace":"shop","name":"web"}}]}`
	oneSlice   = `{"kind":"EndpointSliceList","items":[{"metadata":{"namespace":"shop","name":"web-1"}}]}`
	yamlNode   = "kind: NodeList\nitems:\n- kind: Node\n  metadata: {name: node1}\n"
)

func small() map[string]string {
	return map[string]string{
		"cluster/services.json": oneService, "cluster/endpointslices.json": oneSlice, "cluster/nodes.yaml": yamlNode,
		"nodes/node1/iptables-save.txt": "*nat\nCOMMIT\n", "nodes/node2/ip-addr.json": "[]",
		"nodes/node2/kernel.log": "not of the format",
	}
}

func writeDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for f, text := range files {
		p := filepath.Join(dir, filepath.FromSlash(f))
		if err := os.MkdirAll(filepath.Dir(p), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func gz(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func tarOf(t testing.TB, prefix string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{
			Name: prefix + f, Mode: 0o600, Size: int64(len(files[f])),
			Typeflag: tar.TypeReg,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[f])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOpen(t *testing.T) {
	zipped := small()
	zipped["cluster/services.json.gz"] = gz(t, oneService)
	delete(zipped, "cluster/services.json")
	zipped["nodes/node1/iptables-save.txt"] = gz(t, "*nat\nCOMMIT\n") // compressed, whatever its name says
	archive := func(text string) string {
		p := filepath.Join(t.TempDir(), "snap.tar.gz")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, path := range map[string]string{
		"directory":                    writeDir(t, small()),
		"directory of gzipped members": writeDir(t, zipped),
		"archive":                      archive(gz(t, tarOf(t, "", small()))),
		"archive with ./":              archive(gz(t, tarOf(t, "./", small()))),
		"archive with a folder":        archive(gz(t, tarOf(t, "incident-42/dump/", small()))),
		"archive of gzipped members":   archive(gz(t, tarOf(t, "x/", zipped))),
		"plain tar":                    archive(tarOf(t, "", small())),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Cluster()
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Services) != 1 || c.Services[0].Name != "web" || len(c.EndpointSlices) != 1 || len(c.Nodes) != 1 ||
				c.Nodes[0].Name != "node1" {
				t.Errorf("wrong objects: %+v", c)
			}
			if !slices.Equal(c.Missing, []string{"pods", "configmaps", "endpoints"}) {
				t.Errorf("missing %v", c.Missing)
			}
			if got := s.NodeNames(); !slices.Equal(got, []string{"node1", "node2"}) {
				t.Errorf("nodes %v", got)
			}
			n, err := s.Node("node1")
			if err != nil {
				t.Fatal(err)
			}
			if data, ok, err := n.File("iptables-save.txt"); string(data) != "*nat\nCOMMIT\n" || !ok || err != nil {
				t.Errorf("%q %v %v", data, ok, err)
			}
			if _, ok, err := n.File("ipset-save.txt"); ok || err != nil {
				t.Errorf("a file that was not collected: %v %v", ok, err)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	with := func(f, text string) string { m := small(); m[f] = text; return writeDir(t, m) }
	file := func(text string) string {
		p := filepath.Join(t.TempDir(), "snap")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole := gz(t, tarOf(t, "", small()))
	for name, tt := range map[string]struct{ path, want string }{
		"nowhere":         {filepath.Join(t.TempDir(), "none"), "there is no snapshot at"},
		"empty directory": {t.TempDir(), "is not a snapshot"},
		"some other file": {
			file("hello, I am no archive, but I am long enough to be looked at" + strings.Repeat(".", 600)),
			"neither a directory nor a .tar.gz",
		},
		"binary file":       {file(strings.Repeat("\x00\xff\x17", 900)), "neither a directory nor a .tar.gz"},
		"cut archive":       {file(whole[:len(whole)/2]), "damaged or cut off"},
		"cut member":        {with("cluster/services.json", gz(t, oneService)[:20]), "damaged or cut off"},
		"cut JSON":          {with("cluster/services.json", oneService[:40]), "cut off"},
		"not JSON":          {with("cluster/services.json", "<html>"), "not JSON"},
		"empty JSON":        {with("cluster/services.json", ""), "is empty"},
		"null item":         {with("cluster/services.json", `{"kind":"List","items":[null]}`), "has no name"},
		"pods for Services": {with("cluster/services.json", `{"kind":"List","items":[{"kind":"Pod"}]}`), `kind "Pod"`},
		"another kind":      {with("cluster/services.json", `{"kind":"Status"}`), `kind "Status"`},
		"wrong type of field": {
			with("cluster/services.json", `{"kind":"List","items":[{"kind":"Service","metadata":{"name":7}}]}`), "items/0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(tt.path)
			if err == nil {
				_, err = s.Cluster()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, tt.want)
			}
		})
	}
	m := small()
	delete(m, "cluster/services.json")
	s, err := Open(writeDir(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cluster(); err == nil || !strings.Contains(err.Error(), "kubectl get services -A -o json") {
		t.Errorf("without Services: %v", err)
	}
	if _, err := s.Node("node9"); err == nil || !strings.Contains(err.Error(), "node1, node2") {
		t.Errorf("wrong node: %v", err)
	}
}

// FuzzOpen feeds archives, and through them every file of the cluster's side.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(tarOf(f, "a/", small())))
	f.Add([]byte(gz(f, tarOf(f, "", small()))))
	f.Add([]byte(oneService))
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(os.DirFS("../../examples/broken-node")), w.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	testutil.AddHostile(f, "a: &a [x]\nb: &b [*a,*a,*a]\nitems: [*b,*b]\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			l := &lister{
				index: newIndex("fuzz"), archive: &archive{nodes: map[string]*archivedNode{}}, files: map[string]opener{},
			}
			if s, err := l.list(bytes.NewReader(data)); err == nil {
				checkSnapshot(t, s)
			}
		})
	})
}

// FuzzCluster feeds the JSON and YAML of the cluster's side.
func FuzzCluster(f *testing.F) {
	f.Add([]byte(oneService), false)
	for _, data := range testutil.Files(f, "../../testdata/snapshots/real-2node-*/cluster/[es]*.json") {
		f.Add(data, false)
	}
	for _, data := range testutil.Files(f, "../../examples/broken-node/cluster/*.yaml") {
		f.Add(data, true)
	}
	f.Add([]byte(yamlNode), true)
	f.Add([]byte(`{"kind":"List","items":[{"kind":"Service","spec":{"ports":[{"targetPort":"web"}]}}]}`), false)
	f.Fuzz(func(t *testing.T, data []byte, asYAML bool) {
		testutil.Promptly(t, func() {
			name := "cluster/services.json"
			if asYAML {
				name = "cluster/services.yaml"
			}
			checkSnapshot(t, &Snapshot{path: "fuzz", files: map[string]opener{
				name: memory(name, data), "cluster/endpointslices.json": memory("e", data), "nodes/n/listen.txt": memory("l", data),
			}})
		})
	})
}

// checkSnapshot reads all there is: it must end, with objects that have names or with an error.
func checkSnapshot(t *testing.T, s *Snapshot) {
	t.Helper()
	if c, err := s.Cluster(); err == nil {
		for _, o := range c.Services {
			if o == nil || o.Name == "" {
				t.Error("a Service without a name passed")
			}
		}
	}
	for _, name := range s.NodeNames() {
		n, err := s.Node(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, f := range NodeFiles {
			if _, ok, err := n.File(f); ok != n.Has(f) && err == nil {
				t.Errorf("%s is and is not there", f)
			}
		}
	}
}

// A link to a snapshot was "not a snapshot".
func TestLinkToASnapshot(t *testing.T) {
	target, err := filepath.Abs("../../examples/broken-node")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "snap")
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	s, err := Open(link)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.Cluster(); err != nil || len(c.Services) == 0 {
		t.Errorf("%v %v", c, err)
	}
}
