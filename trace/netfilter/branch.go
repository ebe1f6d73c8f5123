// SPDX-License-Identifier: Apache-2.0

package netfilter

import "github.com/svcproxy/kubectl-svcproxy/trace/host"

// branch is one of the things that may happen to the packet: its state, how likely chance makes it, and what has to be
// true for it. yes and no are sets of unknowns (bits) that it takes to be true, and not to be.
type branch struct {
	pkt     Packet
	p       float64
	yes, no uint64

	verdict Kind // of the chain that it came out of: Return, Accept, or an end
	end     End
	last    *last // what else is known of its end; nil for nothing, as long as it has not ended
}

// last is what is known of the end of a branch. Those that go on have none: they are copied often. It is not changed:
// copies share it.
type last struct {
	where Ref
	why   string
	route string        // of one that was Filtered: the route that its source has
	by    host.Decision // of one without a usable route: what decided
	hops  []Hop         // of one that was Sent: Outcome.Hops
}

// lasting returns what is known of the branch's end.
func (b *branch) lasting() last {
	if b.last == nil {
		return last{}
	}
	return *b.last
}

// sameLast tells whether two branches have ended at the same place for the same reason; by which hops they were sent
// does not count.
func sameLast(a, b *branch) bool {
	if a.last == b.last {
		return true
	}
	x, y := a.lasting(), b.lasting()
	return x.where == y.where && x.why == y.why && x.route == y.route && x.by == y.by
}

// overflowBit stands for every unknown after the 63rd; branches that carry it never merge back.
const overflowBit = 63

// unknownKey tells unknowns apart: the thing that is not known (a rule, an address, a slot), the hook that asks, and
// how often this branch has asked there before. A rule that is met twice may well match once and not the other time.
type unknownKey struct {
	about any
	hook  Hook
	times uint8
}

// id returns the bit of an unknown, the same one whenever the walk meets the same thing again.
func (w *Walker) id(key unknownKey, u Uncertain) uint {
	if id, ok := w.unkIDs[key]; ok {
		return id
	}
	id := min(uint(len(w.unknown)), overflowBit)
	w.unkIDs[key] = id
	w.unknown = append(w.unknown, u)
	return id
}

// fork splits a branch in two: one where the unknown is true and one where it is not.
func (w *Walker) fork(b branch, about any, u Uncertain) (yes, no branch) {
	key := unknownKey{about: about, hook: w.ctx.Hook}
	id := w.id(key, u)
	for (b.yes|b.no)&(1<<id) != 0 && id != overflowBit {
		key.times++
		id = w.id(key, u)
	}
	if id == overflowBit {
		b.yes |= 1 << overflowBit
		return b, b
	}
	yes, no = b, b
	yes.yes |= 1 << id
	no.no |= 1 << id
	return yes, no
}

// taint makes a branch depend on an unknown for good.
func (w *Walker) taint(b branch, about any, u Uncertain) branch {
	w.id(unknownKey{about: about, hook: w.ctx.Hook}, u)
	b.yes |= 1 << overflowBit
	return b
}

// opaque gives the two branches past something that the walk cannot follow: it let the packet through unchanged, or it
// did anything else.
func (w *Walker) opaque(b branch, at Ref, why string) (through, lost branch) {
	what := "chain " + at.Chain.Name
	var about any = at.Chain
	if at.Rule != nil {
		what, about = at.Rule.Text, at.Rule
	}
	through, lost = w.fork(b, about, Uncertain{Where: at, What: what, Why: why})
	lost.verdict, lost.end, lost.last = Drop, Lost, &last{where: at, why: why}
	w.step(&Step{Kind: StepOpaque, Ref: at, Why: why}, &b)
	return through, lost
}
