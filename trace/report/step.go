// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
)

// place is a rule, policy or chain that is not as it should be.
type place struct {
	where  string // "nat KUBE-SVC-X rule 3", without the "nft " of native tables
	status Status
}

// stepStatuses are those of a step, the worst last.
var stepStatuses = []Status{"", StatusUnknown, StatusSuspect, StatusWrong}

// markSteps writes into each step what the findings of its path say of the step's chain.
func markSteps(p *Path) {
	if len(p.Steps) == 0 {
		return
	}
	places := placesOf(p)
	for i := range p.Steps {
		s := &p.Steps[i]
		s.Status = chainStatus(places, strings.TrimSpace(s.Table+" "+s.Chain))
	}
}

// placesOf lists what the findings of a path point at, the rules that could not be judged, and those that end the
// packets of a Mismatch.
func placesOf(p *Path) []place {
	var out []place
	add := func(s string, status Status) {
		where, _, _ := strings.Cut(s, ": ")
		out = append(out, place{strings.TrimPrefix(where, "nft "), status})
	}
	for i := range p.Findings {
		f := &p.Findings[i]
		status := StatusWrong
		switch f.Severity {
		case Info:
			continue
		case Warn:
			status = StatusSuspect
		case Error:
		}
		for _, e := range f.Evidence {
			add(e, status)
		}
	}
	for i := range p.Actual.Uncertain {
		add(p.Actual.Uncertain[i].Where, StatusUnknown)
	}
	if p.Verdict == Mismatch && p.Expected.Action == "DNAT" {
		for i := range p.Actual.Outcomes {
			if o := &p.Actual.Outcomes[i]; o.Where != "" && o.Action != "DNAT" {
				add(o.Where, StatusWrong)
			}
		}
	}
	return out
}

// chainStatus is the worst that is said of a chain ("nat KUBE-SERVICES"); "" where nothing is.
func chainStatus(places []place, chain string) Status {
	var worst Status
	for _, p := range places {
		rest, ok := strings.CutPrefix(p.where, chain)
		if ok && (rest == "" || strings.HasPrefix(rest, " rule ") || strings.HasPrefix(rest, " policy")) &&
			slices.Index(stepStatuses, p.status) > slices.Index(stepStatuses, worst) {
			worst = p.status
		}
	}
	return worst
}
