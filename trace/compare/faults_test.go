// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const testdata = "../../testdata"

// capture is a node of a snapshot, whose files a test may change.
type capture struct {
	node    string
	files   map[string][]byte
	objects *snapshot.Cluster
}

// open reads a node of a snapshot.
func open(t testing.TB, dir, node string) *capture {
	t.Helper()
	s, err := snapshot.Open(filepath.Join(testdata, dir))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := s.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{node: node, files: map[string][]byte{}, objects: objects}
	for _, name := range snapshot.NodeFiles {
		data, ok, err := n.File(name)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			c.files[name] = data
		}
	}
	if data, ok, err := n.File(snapshot.UnreadFile); err == nil && ok {
		c.files[snapshot.UnreadFile] = data
	}
	return c
}

// with returns the capture with an edited file.
func (c *capture) with(t testing.TB, file string, edit func(string) string) *capture {
	t.Helper()
	out := *c
	out.files = map[string][]byte{}
	for name, data := range c.files {
		out.files[name] = data
	}
	text := edit(string(c.files[file]))
	if text == string(c.files[file]) {
		t.Fatalf("the edit of %s changes nothing", file)
	}
	out.files[file] = []byte(text)
	return &out
}

// facts judges a capture.
func (c *capture) facts(t testing.TB, request judge.Request) *compare.Facts {
	t.Helper()
	files := snapshot.NewNode(c.node, c.files)
	state, err := nodestate.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return compare.Of(files, state, c.objects, judge.Node(judge.NewCluster(c.objects), state, request))
}

var all = judge.Request{Matching: true, Backwards: true, PerPathService: true}

// lines are the differences, one a line.
func lines(d *report.NodeDiff) (out []string) {
	for i := range d.Paths {
		p := &d.Paths[i]
		line := "path"
		if p.Service != nil {
			line += " " + p.Service.Namespace + "/" + p.Service.Name
		}
		line += " " + p.Frontend.Kind + " " + report.JoinHostPort(p.Frontend.Address, p.Frontend.Port) + " from " + p.Origin.Kind
		for _, s := range []*report.PathSide{p.Before, p.After} {
			if s == nil {
				line += " -"
			} else {
				line += " " + string(s.Verdict)
			}
		}
		for _, f := range p.Came {
			line += " +" + f.Code
		}
		for _, f := range p.Went {
			line += " -" + f.Code
		}
		out = append(out, line)
	}
	for _, f := range d.Findings {
		out = append(out, "finding "+f.Change+" "+f.Code)
	}
	for i := range d.Changes {
		c := &d.Changes[i]
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s → %s", c.Part, c.Change, c.Place, c.Before, c.After)))
	}
	for _, n := range d.NotCompared {
		out = append(out, "not compared: "+n.Part+": "+n.Why)
	}
	return out
}

func TestShowFaults(t *testing.T) {
	if os.Getenv("SHOW") == "" {
		t.Skip()
	}
	dirs, _ := filepath.Glob(testdata + "/faults/*/healthy")
	for _, dir := range dirs {
		mode := filepath.Base(filepath.Dir(dir))
		files, _ := filepath.Glob(filepath.Dir(dir) + "/*.fault")
		nodes, _ := os.ReadDir(dir + "/nodes")
		for _, n := range nodes {
			healthy := open(t, "faults/"+mode+"/healthy", n.Name())
			a := healthy.facts(t, all)
			same := compare.Captures(a, healthy.facts(t, all))
			fmt.Println("=====", mode, n.Name(), "same:", lines(&same))
			for _, file := range files {
				data, _ := os.ReadFile(file)
				f, err := faultdata.Parse(data)
				if err != nil {
					t.Fatal(err)
				}
				if f.Node != n.Name() {
					continue
				}
				c := *healthy
				c.files = map[string][]byte{}
				for k, v := range healthy.files {
					c.files[k] = v
				}
				touched := ""
				for p, h := range f.Changes {
					name, ok := strings.CutPrefix(p, "nodes/"+n.Name()+"/")
					if !ok {
						touched += " OBJECT:" + p
						continue
					}
					x, err := faultdata.Apply(healthy.files[name], h)
					if err != nil {
						t.Fatal(err)
					}
					touched += " " + name
					c.files[name] = x
					if x == nil { c.files[name] = []byte{} }
				}
				d := compare.Captures(a, c.facts(t, all))
				fmt.Println("==", mode, f.What, touched, f.Failed)
				for i, l := range lines(&d) {
					if i < 14 {
						fmt.Println("   ", l)
					}
				}
				if n := len(lines(&d)); n > 14 {
					fmt.Println("    ...", n)
				}
			}
		}
	}
}
