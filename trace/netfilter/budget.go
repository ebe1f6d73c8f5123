// SPDX-License-Identifier: Apache-2.0

package netfilter

import "fmt"

// limits are the bounds of one walk. A walk through a node's rules runs some hundreds of rules and holds some tens of
// branches; these limits are for rule sets whose walk would take far too long, by design or by accident.
type limits struct {
	// work is how much a walk may cost, in rules run; going through branches and elements counts, too.
	work int
	// uncertain is what it may cost before only branches that are certain are followed any further.
	uncertain int
	// live is how many branches may wait in one chain before those that are not certain are not followed any further.
	live int
	// branches is how many branches a walk may hold at a time.
	branches int
	// steps is how many different steps it may record.
	steps int
}

// defaults are a few seconds, and some 100 MB: a unit of work takes up to 500 ns, a branch or a step some 600 bytes.
var defaults = limits{work: 1 << 22, uncertain: 1 << 20, live: 512, branches: 1 << 16, steps: 1 << 16}

// keptBranches is the size from which a buffer of branches is not kept for the next time.
const keptBranches = 1 << 10

// over tells whether the walk's budget is used up. Where it is for the first time, the walk ends at the place given:
// one uncertain end stands for all branches that were not followed to theirs.
func (w *Walker) over(at Ref) bool {
	if w.budget != "" {
		return true
	}
	switch {
	case w.ctx.Work > w.limits.work:
		w.budget = fmt.Sprintf("the walk ends here: one packet costs more than %d rules", w.limits.work)
	case w.held > w.limits.branches:
		w.budget = fmt.Sprintf("the walk ends here: it has more than %d branches to follow", w.limits.branches)
	case len(w.steps) > w.limits.steps:
		w.budget = fmt.Sprintf("the walk ends here: one packet has more than %d different steps", w.limits.steps)
	default:
		return false
	}
	what := "what happens to the packet behind " + at.String()
	w.unknown = append(w.unknown, Uncertain{Where: at, What: what, Why: w.budget})
	w.lose(at, w.budget)
	return true
}

// giveUp ends an uncertain branch where there are too many to follow them all. The first one stands for all of them.
func (w *Walker) giveUp(at Ref) {
	if w.gaveUp {
		return
	}
	w.gaveUp = true
	w.lose(at, "there are too many possibilities to follow them all")
}

// lose adds the end that stands for branches which are not followed.
func (w *Walker) lose(at Ref, why string) {
	w.ended = append(w.ended, branch{
		pkt: w.start, p: 1, yes: 1 << overflowBit, verdict: Drop, end: Lost, last: &last{where: at, why: why},
	})
}
