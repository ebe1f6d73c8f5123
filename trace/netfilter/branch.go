// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"math"
	"slices"
)

// branch is one way of the packet: its state, how likely chance makes it, and what has to be true for it. yes and no are
// sets of unknowns (bits) that it takes to be true, and not to be.
type branch struct {
	pkt     Packet
	p       float64
	yes, no uint64

	verdict Kind // of the chain that it came out of: Return, Accept, or an end
	end     End
	where   Ref
	why     string
	route   string // of one that was Filtered: the route that its source has
}

// overflowBit stands for every unknown after the 63rd; branches that carry it never merge back.
const overflowBit = 63

// maxDepth bounds calls; the kernel refuses to load loops, but a dump may be anything.
const maxDepth = 64

// frame is the state of one chain in progress: the branch that is being run, those that wait, and those that have left the
// chain. A Walker keeps one for each depth of calls.
type frame struct {
	cur  branch
	live []cursor
	out  []branch
}

// maxWork is how many rules a walk runs before it gives up what is uncertain. What is certain it always follows to the end.
const maxWork = 1 << 20

// maxLive is how many branches may wait in one chain before the uncertain ones among them are given up.
const maxLive = 512

// giveUp ends an uncertain branch where there are too many to follow them all. The first one stands for all of them.
func (w *Walker) giveUp(at Ref) {
	if w.gaveUp {
		return
	}
	w.gaveUp = true
	w.ended = append(w.ended, branch{
		pkt: w.start, p: 1, yes: 1 << overflowBit, verdict: Drop, end: Lost, where: at,
		why: "there are too many possibilities to follow them all",
	})
}

// cursor is a branch that waits before rule at of a chain.
type cursor struct {
	at int
	b  branch
}

// unknownKey tells unknowns apart: the thing that is not known (a rule, an address, a station), the hook that asks, and how
// often this branch has asked there before. A rule that is met twice may well match once and not the other time.
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

// sameShare is the rounding that the same product of probabilities may come with when it was multiplied in another order.
const sameShare = 1e-12

// sameState tells whether two branches have the same future, or the same past where they ended.
func sameState(a, b *branch) bool {
	return a.pkt == b.pkt && a.verdict == b.verdict && a.end == b.end && a.where == b.where && a.why == b.why && a.route == b.route
}

// join makes one branch of two in the same state, if that loses nothing: under the same conditions their probabilities add
// up; under opposite conditions, all else equal, the condition does not matter.
func join(a, b *branch) bool {
	if a.yes == b.yes && a.no == b.no {
		a.p += b.p
		return true
	}
	return joinOpposite(a, b)
}

// joinOpposite joins two branches that differ in one unknown, which one takes to be true and the other not.
func joinOpposite(a, b *branch) bool {
	bit := a.yes ^ b.yes
	if bit == 0 || bit&(bit-1) != 0 || bit == 1<<overflowBit || a.no^b.no != bit || math.Abs(a.p-b.p) > sameShare {
		return false
	}
	a.yes, a.no = a.yes&^bit, a.no&^bit
	return true
}

// mergeEnds joins ends that are the same to whoever sent the packet, though other ways led to them: an unknown that decides
// only which of two rules drops it, or whether its destination is inside the node or beyond, does not matter.
func mergeEnds(bs []branch) []branch {
	arrived := func(e End) End {
		if e == Delivered {
			return Sent
		}
		return e
	}
	same := func(a, b *branch) bool {
		x, y := a.pkt, b.pkt
		x.DNATBy, x.SNATBy, x.In, x.Out = y.DNATBy, y.SNATBy, y.In, y.Out
		return arrived(a.end) == arrived(b.end) && x == y
	}
	return mergeBy(bs, func(a, b *branch) bool { return same(a, b) && joinOpposite(a, b) })
}

// merge joins branches until none can be joined any more.
func merge(bs []branch) []branch {
	return mergeBy(bs, func(a, b *branch) bool { return sameState(a, b) && join(a, b) })
}

// manyWays is how many branches are told apart by what they depend on. Beyond it, those that depend on unknowns and are in the
// same state become one that is uncertain for good: what is known of n unknowns could ask for 2^n branches.
const manyWays = 32

// collapse makes one branch of all uncertain ones in the same state, where there are many.
func collapse(bs []branch) []branch {
	if len(bs) <= manyWays {
		return bs
	}
	return mergeBy(bs, func(a, b *branch) bool { return sameState(a, b) && blur(a, b) })
}

// blur joins two uncertain branches, and forgets on what they depend.
func blur(a, b *branch) bool {
	if a.yes|a.no == 0 || b.yes|b.no == 0 {
		return false
	}
	a.yes, a.no, a.p = 1<<overflowBit, 0, max(a.p, b.p)
	return true
}

func mergeBy(bs []branch, joined func(a, b *branch) bool) []branch {
	for again := len(bs) > 1; again; {
		again = false
		for i := 0; i < len(bs); i++ {
			for j := len(bs) - 1; j > i; j-- {
				if joined(&bs[i], &bs[j]) {
					bs = slices.Delete(bs, j, j+1)
					again = true
				}
			}
		}
	}
	return bs
}

// opaque gives the two ways past something that the walk cannot follow: it let the packet through unchanged, or it did
// anything else.
func (w *Walker) opaque(b branch, at Ref, why string) (through, lost branch) {
	what := "chain " + at.Chain.Name
	var about any = at.Chain
	if at.Rule != nil {
		what, about = at.Rule.Text, at.Rule
	}
	through, lost = w.fork(b, about, Uncertain{Where: at, What: what, Why: why})
	lost.verdict, lost.end, lost.where, lost.why = Drop, Lost, at, why
	w.step(Step{Kind: StepOpaque, Ref: at, P: b.p, Why: why})
	return through, lost
}
