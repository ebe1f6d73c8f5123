// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
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
	objects, n := snap.Node(t, filepath.Join(testdata, dir), node)
	return &capture{node: node, files: snap.FilesAndUnread(t, n), objects: objects}
}

// with returns the capture with an edited file.
func (c *capture) with(t testing.TB, file string, edit func(string) string) *capture {
	t.Helper()
	out := *c
	out.files = maps.Clone(c.files)
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
		line += " " + p.Frontend.Kind + " " + report.JoinHostPort(p.Frontend.Address, p.Frontend.Port)
		line += " from " + p.Origin.Kind
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

// golden has, for each recorded fault, what differs from the healthy node besides paths.
const golden = "testdata/faults.txt"

// TestRecordedFaultsAreNamed compares each recorded fault with the healthy node: what was done to the node is said, and
// nothing else is. SVCPROXY_COMPARE_GOLDEN=write writes what is said, to be read by a person.
func TestRecordedFaultsAreNamed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testdata, "faults", "*", "*.fault"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fault is recorded: %v", err)
	}
	healthy := map[string]*capture{}
	judged := map[string]*compare.Facts{}
	var text strings.Builder
	for _, file := range files {
		f, err := faultdata.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		mode := filepath.Base(filepath.Dir(file))
		if healthy[mode+f.Node] == nil {
			healthy[mode+f.Node] = open(t, filepath.Join("faults", mode, "healthy"), f.Node)
		}
		was := healthy[mode+f.Node]
		request := judge.Request{
			Services: []types.NamespacedName{{Namespace: faultdata.Namespace, Name: f.Service}}, Matching: true,
			PerPathService: true,
		}
		key := mode + "/" + f.Node + "/" + f.Service
		if judged[key] == nil {
			judged[key] = was.facts(t, request)
			if same := compare.Captures(judged[key], was.facts(t, request)); len(lines(&same)) > 0 {
				t.Errorf("%s differs from itself: %q", key, lines(&same))
			}
		}
		d := compare.Captures(judged[key], was.broken(t, f).facts(t, request))
		fmt.Fprintf(&text, "%s: %s\n", mode, f.What)
		broke := 0
		for _, line := range lines(&d) {
			if strings.HasPrefix(line, "path ") {
				broke++
				continue
			}
			fmt.Fprintf(&text, "\t%s\n", line)
		}
		if broke > 0 {
			fmt.Fprintf(&text, "\t%d paths differ\n", broke)
		}
	}
	if os.Getenv("SVCPROXY_COMPARE_GOLDEN") == "write" {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
}

// broken returns the capture with a fault's changes of the node's files.
func (c *capture) broken(t testing.TB, f *faultdata.Fault) *capture {
	t.Helper()
	out := *c
	out.files = maps.Clone(c.files)
	if err := f.MakeOnNode(out.files); err != nil {
		t.Fatal(err)
	}
	return &out
}
