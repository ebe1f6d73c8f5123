// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/faultdata"
	"github.com/svcproxy/kubectl-svcproxy/internal/testutil/snap"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// faulty is a node with a recorded fault, in a cluster that does not change.
type faulty struct {
	moving
	files *snapshot.Node
	reads int
}

func (f *faulty) Read(context.Context, string, []string) (*snapshot.Node, error) {
	f.reads++
	return f.files, nil
}

func (f *faulty) session() *Session {
	s := f.moving.session()
	s.source, s.nodes = f, f
	return s
}

// newFaulty makes the node of a recorded fault.
func newFaulty(t *testing.T, file string) *faulty {
	t.Helper()
	f, err := faultdata.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, n := snap.Node(t, filepath.Join(filepath.Dir(file), "healthy"), f.Node)
	files := snap.Files(t, n)
	if err := f.MakeOnNode(files); err != nil {
		t.Fatal(err)
	}
	if files[snapshot.UnreadFile] == nil { // by it a helper says that what it has not sent is not there
		files[snapshot.UnreadFile] = snapshot.EncodeUnread(nil)
	}
	for _, svc := range objects.Services {
		svc.ResourceVersion = ""
	}
	return &faulty{moving: moving{t: t, base: objects}, files: snapshot.NewNode(f.Node, files)}
}

// plain is a report without what information would have a person do: that of helpers is left out.
func plain(t *testing.T, r *report.NodeReport) string {
	t.Helper()
	out := *r
	strip := func(all []report.Finding) []report.Finding {
		all = slices.Clone(all)
		for i := range all {
			if f := &all[i]; f.Severity == report.Info {
				f.Remedy, f.Commands, f.Links = "", nil, nil
			}
		}
		return all
	}
	out.Findings, out.Paths = strip(out.Findings), slices.Clone(out.Paths)
	for i := range out.Paths {
		out.Paths[i].Findings = strip(out.Paths[i].Findings)
	}
	return withoutPods(text(t, &out))
}

// TestWrongServicesAreJudgedAlone: where a helper says that a few Services are wrong, these alone are judged again, and
// the report is that of all.
func TestWrongServicesAreJudgedAlone(t *testing.T) {
	everything := Request{Backwards: true, PerPathService: true}
	recorded, err := filepath.Glob("../../testdata/faults/*/*.fault")
	if err != nil || len(recorded) == 0 {
		t.Fatal(err)
	}
	alone, whole := 0, 0
	for _, file := range recorded {
		f := newFaulty(t, file)
		r := judgedThere(t, f.base, f.files)
		want := judge.Files(f.base, f.files, everything)
		switch right := nothingWrong(&want); {
		case right:
			continue
		case acceptable(r):
			t.Errorf("%s: it is taken for right there", file)
			continue
		}
		c := &confirmer{Session: f.session(), pause: 1, reads: confirmReads}
		got := c.wrongAlone(t.Context(), f.files.Name, everything, &sighting{NodeReport: r, by: f.base})
		if got == nil {
			whole++
			continue
		}
		alone++
		if got, want := plain(t, got), plain(t, &want); got != want || f.reads != 1 {
			t.Errorf("%s, read %d times: %s", file, f.reads, difference(got, want))
		}
	}
	if alone < 10 || whole > 0 {
		t.Errorf("%d were judged alone, %d whole", alone, whole)
	}
}

// What the node shows now is what counts: where it is not what its helper has said, or more than a few Services are
// wrong, the node is judged whole.
func TestANodeIsJudgedWholeUnlessItsHelperIsConfirmed(t *testing.T) {
	const fault = "../../testdata/faults/iptables/an-endpoint-s-address-is-made-the-node-s-own.fault"
	everything := Request{Backwards: true, PerPathService: true}
	for name, change := range map[string]func(r *report.NodeReport){
		"another endpoint is wrong": func(r *report.NodeReport) {
			for i := range r.Paths {
				if f := r.Paths[i].Findings; r.Paths[i].Verdict == report.Mismatch {
					f[0].Subject = "10.0.0.1:80"
				}
			}
		},
		"a path less is wrong": func(r *report.NodeReport) {
			i := slices.IndexFunc(r.Paths, func(p report.Path) bool { return p.Verdict == report.Mismatch })
			r.Paths = slices.Delete(r.Paths, i, i+1)
			r.Summary.Mismatched--
			r.Summary.Paths--
		},
		"its counts are wrong":     func(r *report.NodeReport) { r.Summary.Mismatched++ },
		"the node is wrong, too":   func(r *report.NodeReport) { r.Findings = []report.Finding{{Severity: report.Warn}} },
		"it asks others":           func(r *report.NodeReport) { r.Asks = []string{"node2"} },
		"it could not be judged":   func(r *report.NodeReport) { r.Error = "no" },
		"nothing is said of paths": func(r *report.NodeReport) { r.Paths, r.Summary = nil, report.Summary{} },
		"many Services are wrong": func(r *report.NodeReport) {
			for i := range fewServices {
				p := r.Paths[0]
				p.Service = &report.ObjectRef{Namespace: "shop", Name: "web-" + strconv.Itoa(i)}
				r.Paths = append(r.Paths, p)
				r.Summary.Count(p.Verdict)
			}
		},
	} {
		f := newFaulty(t, fault)
		r := judgedThere(t, f.base, f.files)
		change(r)
		c := &confirmer{Session: f.session(), pause: 1, reads: confirmReads}
		if got := c.wrongAlone(t.Context(), f.files.Name, everything, &sighting{NodeReport: r, by: f.base}); got != nil {
			t.Errorf("%s: it is taken for confirmed: %+v", name, got.Summary)
		}
	}
}
