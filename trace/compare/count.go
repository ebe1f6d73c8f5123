// SPDX-License-Identifier: Apache-2.0

package compare

import "github.com/svcproxy/kubectl-svcproxy/trace/report"

// countVerdict counts a path by what has become of its verdict.
func countVerdict(v *report.VerdictChanges, p *report.PathChange) {
	if p.Before == nil || p.After == nil {
		return
	}
	switch before, after := p.Before.Verdict, p.After.Verdict; {
	case before == after:
	case after == report.Unknown:
		v.Unclear++
	case before == report.Unknown:
		v.Known++
	case before.NeedsAttention() && !after.NeedsAttention():
		v.Repaired++
	case !before.NeedsAttention() && after.NeedsAttention():
		v.Broke++
	}
}

// Count counts the differences of the nodes and objects of a Diff.
func Count(d *report.Diff) {
	s := report.DiffSummary{Objects: len(d.Objects) + d.ObjectsLeft}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Before.Error != "" || n.After.Error != "" {
			s.NotJudged++
			continue
		}
		s.Nodes++
		s.Paths += len(n.Paths) + n.PathsLeft
		s.Broke += n.Verdicts.Broke
		s.Repaired += n.Verdicts.Repaired
		s.Known += n.Verdicts.Known
		s.Unclear += n.Verdicts.Unclear
		count := func(part string, n int) {
			if report.IsRules(part) {
				s.Rules += n
			} else {
				s.Others += n
			}
		}
		for k := range n.Changes {
			count(n.Changes[k].Part, 1)
		}
		for _, l := range n.Left {
			count(l.Part, l.Count)
		}
	}
	d.Summary = s
}
