// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A path that is not judged any more did not break, and one that is judged again and wrong was not right before.
func TestCount(t *testing.T) {
	d, c := report.Diff{Nodes: []report.NodeDiff{{}}}, &comparison{}
	side := func(v report.Verdict) *report.PathSide { return &report.PathSide{Verdict: v} }
	for _, p := range [][2]*report.PathSide{
		{side(report.Match), side(report.Mismatch)},
		{side(report.ByDesign), side(report.Warning)},
		{side(report.Match), side(report.Unknown)},
		{side(report.Mismatch), side(report.Unknown)},
		{side(report.Unknown), side(report.Unknown)},
		{side(report.Unknown), side(report.Mismatch)},
		{side(report.Unknown), side(report.Match)},
		{side(report.Mismatch), side(report.Match)},
		{side(report.Match), side(report.Match)},
		{nil, side(report.Mismatch)},
		{side(report.Match), nil},
	} {
		change := report.PathChange{Before: p[0], After: p[1]}
		d.Nodes[0].Paths = append(d.Nodes[0].Paths, change)
		c.rank(&change)
	}
	d.Nodes[0].Verdicts = c.out.Verdicts
	Count(&d)
	want := report.DiffSummary{
		Nodes: 1, Paths: 11, VerdictChanges: report.VerdictChanges{Broke: 2, Repaired: 1, Known: 2, Unclear: 2},
	}
	if d.Summary != want {
		t.Errorf("got %+v, want %+v", d.Summary, want)
	}
}
