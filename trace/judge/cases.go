// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// compareCases compares the path in each case of what a snapshot does not have: whether a match that cannot be
// evaluated matches, and in which order chains of one priority run. Where all cases are right, or all are wrong, that
// is the verdict; where they differ it is Unknown, as it was.
func (p *pathCase) compareCases(want *expect.Path) {
	cases := p.res.Cases()
	if cases == nil {
		return
	}
	if !p.kept {
		p.res.Outcomes, p.kept = slices.Clone(p.res.Outcomes), true
	}
	var tried []*pathCase
	for _, outcomes := range cases {
		t := *p
		w := *want
		t.want, t.found, t.several, t.settled = &w, nil, several{}, false
		t.got = p.outcomesOf(want.Frontend, &netfilter.Result{Outcomes: outcomes})
		if t.got.uncertain {
			return
		}
		t.chooseAnswer()
		if t.want.Unsure != "" || t.settled || len(tried) > 0 && t.wrong() != tried[0].wrong() {
			return
		}
		tried = append(tried, &t)
	}
	if tried[0].wrong() {
		p.found = nil
		for _, t := range tried {
			for _, f := range t.found {
				known := func(o report.Finding) bool { return o.Code == f.Code && o.Subject == f.Subject }
				if !slices.ContainsFunc(p.found, known) {
					p.found = append(p.found, f)
				}
			}
		}
		return
	}
	res, kept := p.res, p.kept
	*p = *tried[0]
	p.res, p.kept = res, kept
	p.res.Uncertain = nil
}
