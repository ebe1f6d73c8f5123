// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// compareCases compares the path in each case of what a snapshot does not have: whether a match that cannot be
// evaluated matches, in which order chains of one priority run, and which of several next hops is chosen. What stops
// the packets of a case behind the rules counts, too. Where all cases are right, or all are wrong, that is the verdict;
// where they differ it is Unknown, as it was.
func (p *pathCase) compareCases(want *expect.Path) {
	cases := p.res.Cases()
	if cases == nil {
		return
	}
	var tried []*pathCase
	for _, outcomes := range cases {
		t := *p
		w := *want
		t.want, t.found, t.several, t.settled, t.unsettled = &w, nil, several{}, false, false
		t.onward, t.holes, t.ways, t.doubts = nil, nil, ways{}, nil
		t.res.Outcomes = outcomes
		t.got = p.outcomesOf(want.Frontend, &netfilter.Result{Outcomes: outcomes})
		if t.got.uncertain {
			return
		}
		t.chooseAnswer()
		if t.want.Unsure != "" || t.settled || len(tried) > 0 && !sameKinds(t.found, tried[0].found) {
			return
		}
		tried = append(tried, &t)
	}
	all := found(tried)
	if tried[0].wrong() {
		if p.found = all; slices.ContainsFunc(tried, func(t *pathCase) bool { return len(t.found) < len(all) }) {
			p.found = append(p.found, p.findings(p.notEvaluated())...) // what decides which of them it is
		}
		return
	}
	res, onward, ways := p.res, p.onward, p.ways
	*p = *tried[0]
	p.res, p.onward, p.ways, p.found = res, onward, ways, all
	p.unsettled = slices.ContainsFunc(tried, func(t *pathCase) bool { return t.unsettled })
	p.doubts = nil
	for _, t := range tried {
		p.doubts = append(p.doubts, t.doubts...)
	}
	p.res.Uncertain = nil
}

// found are the findings of all cases, each once.
func found(cases []*pathCase) (all []report.Finding) {
	for _, t := range cases {
		for _, f := range t.found {
			known := func(o report.Finding) bool { return o.Code == f.Code && o.Subject == f.Subject }
			if !slices.ContainsFunc(all, known) {
				all = append(all, f)
			}
		}
	}
	return all
}

// sameKinds tells whether findings of two cases make the same verdict: both have an error, or both the same warnings.
func sameKinds(a, b []report.Finding) bool {
	const wrong = "wrong"
	kindsOf := func(list []report.Finding) (out []string) {
		for i := range list {
			switch list[i].Severity {
			case report.Error:
				return []string{wrong}
			case report.Warn:
				out = append(out, list[i].Code)
			case report.Info:
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(kindsOf(a), kindsOf(b))
}
