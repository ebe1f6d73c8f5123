// SPDX-License-Identifier: Apache-2.0

package report

import "slices"

// place is a rule, policy or chain that is not as it should be.
type place struct {
	where  RuleRef
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
		s.Status = chainStatus(places, s.RuleRef)
	}
}

// placesOf lists what the findings of a path point at, the rules that could not be judged, and those that end the
// packets of a Mismatch.
func placesOf(p *Path) []place {
	var out []place
	add := func(where RuleRef, status Status) {
		if where != (RuleRef{}) {
			out = append(out, place{where, status})
		}
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
		for k := range f.Evidence {
			add(f.Evidence[k].Where, status)
		}
	}
	for i := range p.Actual.Uncertain {
		add(p.Actual.Uncertain[i].Where, StatusUnknown)
	}
	if p.Verdict == Mismatch && p.Expected.Action == "DNAT" {
		for i := range p.Actual.Outcomes {
			if o := &p.Actual.Outcomes[i]; o.Action != "DNAT" {
				add(o.Where, StatusWrong)
			}
		}
	}
	return out
}

// chainStatus is the worst that is said of the chain of a rule; "" where nothing is.
func chainStatus(places []place, of RuleRef) Status {
	var worst Status
	for _, p := range places {
		if p.where.InChainOf(of) && slices.Index(stepStatuses, p.status) > slices.Index(stepStatuses, worst) {
			worst = p.status
		}
	}
	return worst
}
