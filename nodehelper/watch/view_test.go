// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A path is as wrong as what counts on it: a warning that counts does not make an error count that was seen once, in
// the metrics as in the NodeReport.
func TestAnErrorCountsByItself(t *testing.T) {
	warning := report.Finding{Code: "DuplicateEndpoint", Severity: report.Warn}
	fault := report.Finding{Code: "MissingEndpoint", Severity: report.Error, Subject: "10.244.1.5:80"}
	second := report.Finding{Code: "StaleEndpoint", Severity: report.Error, Subject: "10.244.1.6:80"}
	note := report.Finding{Code: "ProgramOnPath", Severity: report.Info}
	for name, c := range map[string]struct {
		counts, fresh []report.Finding
		verdict, want report.Verdict
	}{
		"a fresh error":   {nil, []report.Finding{fault}, report.Mismatch, settling},
		"a fresh warning": {nil, []report.Finding{warning}, report.Warning, settling},
		"a fresh error beside a warning that counts": {
			[]report.Finding{warning}, []report.Finding{fault}, report.Mismatch, report.Warning,
		},
		"a fresh warning beside an error that counts": {
			[]report.Finding{fault}, []report.Finding{warning}, report.Mismatch, report.Mismatch,
		},
		"a fresh error beside one that counts": {
			[]report.Finding{fault}, []report.Finding{second}, report.Mismatch, report.Mismatch,
		},
		"all count": {[]report.Finding{warning, fault}, nil, report.Mismatch, report.Mismatch},
		"a path that is not known, beside a warning": {
			nil, []report.Finding{warning, note}, report.Unknown, report.Unknown,
		},
		"a path that is right, of which something can be said": {nil, []report.Finding{note}, report.Match, report.Match},
	} {
		t.Run(name, func(t *testing.T) {
			reportOf := func(list ...report.Finding) *report.NodeReport {
				r := &report.NodeReport{Paths: []report.Path{{
					Service:  &report.ObjectRef{Namespace: "shop", Name: "web"},
					Frontend: report.Frontend{Kind: "ClusterIP", Address: "10.96.0.1", Port: 80, Protocol: "TCP"},
					Origin:   report.Origin{Kind: "pod"}, Verdict: c.verdict, Findings: list,
				}}}
				for field, v := range map[*int]report.Verdict{
					&r.Summary.Matched: report.Match, &r.Summary.Warnings: report.Warning,
					&r.Summary.Mismatched: report.Mismatch, &r.Summary.Unknown: report.Unknown,
				} {
					if v == c.verdict {
						*field = 1
					}
				}
				return r
			}
			a := &Agent{}
			never := func(types.NamespacedName) time.Time { return time.Time{} }
			a.settler.pass(after(0), subjectsOf(reportOf(c.counts...)), never, time.Second)
			a.settler.pass(after(10), subjectsOf(reportOf(c.counts...)), never, time.Second)
			r := reportOf(append(c.counts, c.fresh...)...)
			a.settler.pass(after(20), subjectsOf(r), never, time.Second)
			v := a.viewOf(r, &nodestate.State{})
			for verdict, n := range v.paths {
				if want := map[bool]int{true: 1}[verdict == c.want]; n != want {
					t.Errorf("%d paths are %s, want %d", n, verdict, want)
				}
			}
			paths := nodereport.Paths{
				Total: 1, Matched: v.paths[report.Match], Mismatched: v.paths[report.Mismatch],
				Warnings: v.paths[report.Warning], Unknown: v.paths[report.Unknown],
			}
			want := c.want
			if want == settling {
				want = report.Match // of the node; the path is counted as settling
			}
			if got := nodereport.VerdictOf(&paths, publishedOf(r, &a.settler)); got != want {
				t.Errorf("the node is %s, want %s", got, want)
			}
		})
	}
}
