// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"hash/maphash"
	"slices"
)

// maxDepth bounds calls; the kernel refuses to load loops, but a dump may be anything.
const maxDepth = 64

// frame is the state of one chain in progress: the branch that is being run, those that wait, and those that have left
// the chain. A Walker keeps one for each depth of calls.
type frame struct {
	cur     branch
	saved   Packet // that of cur, as it was before the op in progress; kept with Options.Steps only
	live    []cursor
	out     []branch
	mergeAt int // the length of out at which it is merged before the chain is through
}

// cursor is a branch that waits before rule at of a chain.
type cursor struct {
	at int
	b  branch
}

// chain runs a chain for one packet and returns every branch that comes out of it, merged. A branch's verdict is Return
// when it reached the end or a return; otherwise it is Accept (of the base chain) or Drop (it has ended, see
// branch.end). The result is valid until the next call at the same depth; a caller that keeps it removes it from
// Walker.held.
func (w *Walker) chain(h Hook, c *Chain, in *branch, depth int) []branch {
	f := &w.frames[depth]
	f.reset()
	w.watched = w.watched || w.opt.Watch[c]
	if w.trail != nil {
		w.trail.add(c)
	}
	cur := &f.cur
	*cur = *in
	cur.verdict, cur.end, cur.last = Next, Sent, nil
	cand := c.candidates(&cur.pkt)
	at := cand.next(0)
	for {
		if at >= len(c.Rules) {
			cur.verdict = Return
			w.leave(f, cur)
		} else if w.rule(h, c, at, depth) {
			at = cand.next(at + 1)
			if len(f.live) == 0 {
				continue
			}
			w.park(f, at, cur)
		}
		if w.budget != "" {
			f.live, f.out = nil, nil
			return nil
		}
		var ok bool
		if at, ok = w.resume(f); !ok {
			w.mergeOut(f)
			return f.out
		}
		cand = c.candidates(&cur.pkt)
	}
}

// firstMerge is how many branches may leave a chain before they are merged for the first time.
const firstMerge = 256

// reset empties a frame. A large buffer is not kept: there is one for each depth.
func (f *frame) reset() {
	f.live, f.out, f.mergeAt = f.live[:0], f.out[:0], firstMerge
	if cap(f.live) > keptBranches {
		f.live = nil
	}
	if cap(f.out) > keptBranches {
		f.out = nil
	}
}

// leave takes a branch out of a chain.
func (w *Walker) leave(f *frame, b *branch) {
	f.out = append(f.out, *b)
	w.held++
	if len(f.out) >= f.mergeAt {
		w.mergeOut(f)
		f.mergeAt = max(firstMerge, 2*len(f.out))
	}
}

// mergeOut merges the branches that have left a chain.
func (w *Walker) mergeOut(f *frame) {
	before := len(f.out)
	f.out = w.merge(f.out)
	w.held -= before - len(f.out)
}

// park puts a branch aside so that the ones behind it catch up, or joins it with one that waits at the same rule in the
// same state.
func (w *Walker) park(f *frame, at int, b *branch) {
	w.ctx.Work += len(f.live) / costOfComparing
	for i := range f.live {
		c := &f.live[i]
		if c.at == at && sameState(&c.b, b) && (join(&c.b, b) || len(f.live) > manyBranches && blur(&c.b, b)) {
			return
		}
	}
	f.live = append(f.live, cursor{at, *b})
	w.held++
}

// resume takes up the waiting branch that is furthest behind.
func (w *Walker) resume(f *frame) (at int, ok bool) {
	if len(f.live) == 0 {
		return 0, false
	}
	first := 0
	for i := range f.live {
		if f.live[i].at < f.live[first].at {
			first = i
		}
	}
	last := len(f.live) - 1
	at, f.cur = f.live[first].at, f.live[first].b
	if first < last { // a branch is large
		f.live[first] = f.live[last]
	}
	f.live = f.live[:last]
	w.held--
	return at, true
}

// rule runs rule number at of a chain for the frame's branch. It returns true when that goes on with the chain's next
// rule; other branches are parked (those that go on) or leave the chain.
func (w *Walker) rule(h Hook, c *Chain, at, depth int) bool {
	f := &w.frames[depth]
	cur, r := &f.cur, c.Rules[at]
	here := Ref{Hook: h, Chain: c, Rule: r}
	w.ctx.Work++
	if w.over(here) {
		return false
	}
	if (w.ctx.Work > w.limits.uncertain || len(f.live) > w.limits.live) && cur.yes|cur.no != 0 {
		w.giveUp(here)
		return false
	}
	for _, op := range r.Ops {
		w.ctx.Packet = &cur.pkt
		if w.opt.Steps {
			f.saved = cur.pkt
		}
		eff := op.Run(&w.ctx)
		sign(&cur.pkt, here)
		if eff.Offloads && !slices.Contains(w.offloads, here) {
			w.offloads = append(w.offloads, here)
		}
		switch eff.Kind {
		case Next:
			if w.opt.Steps && f.saved != cur.pkt {
				s := did(op, &f.saved, &cur.pkt)
				s.Ref = here
				w.step(&s, cur)
			}
		case Break:
			return true
		case Chance:
			if eff.P <= 0 {
				return true
			}
			if eff.P < 1 {
				p := cur.p
				cur.p = p * (1 - eff.P)
				w.park(f, after(c, at, &cur.pkt), cur)
				cur.p = p * eff.P
			}
		case Unknown:
			yes, no := w.fork(*cur, r, Uncertain{Where: here, What: r.Text, Why: eff.Why})
			w.park(f, after(c, at, &no.pkt), &no)
			*cur = yes
		case Split:
			whole := *cur
			w.ctx.Work += len(eff.Alts)
			for i := range eff.Alts {
				alt := &eff.Alts[i]
				*cur = whole
				cur.pkt, cur.p = alt.Packet, whole.p*alt.P
				sign(&cur.pkt, here)
				w.decide(at, here, op, &alt.Effect, depth)
			}
			return false
		case Opaque, Accept, Drop, Reject, Queue, Stolen, Return, Jump, Goto:
			w.decide(at, here, op, &eff, depth)
			return false
		}
	}
	return true
}

// after is where a branch goes on behind rule at.
func after(c *Chain, at int, p *Packet) int {
	cand := c.candidates(p)
	return cand.next(at + 1)
}

// decide carries out a verdict of an op, in rule number at, on the frame's branch.
func (w *Walker) decide(at int, here Ref, op Op, eff *Effect, depth int) {
	f := &w.frames[depth]
	b := &f.cur
	if w.budget != "" {
		return
	}
	switch eff.Kind {
	case Accept:
		if w.opt.Steps && f.saved != b.pkt {
			s := did(op, &f.saved, &b.pkt)
			s.Verdict, s.Ref = Accept, here
			w.step(&s, b)
		} else {
			w.verdict(here, eff, b)
		}
		b.verdict = Accept
		w.leave(f, b)
	case Drop, Reject, Stolen:
		w.verdict(here, eff, b)
		b.verdict, b.end, b.last = Drop, ends[eff.Kind], &last{where: here, why: eff.Why}
		w.leave(f, b)
	case Return:
		w.verdict(here, eff, b)
		b.verdict = Return
		w.leave(f, b)
	case Jump, Goto:
		w.call(at, here, eff, depth)
	case Next:
		w.park(f, after(here.Chain, at, &b.pkt), b)
	case Queue, Opaque:
		w.pass(f, at, here, eff.Why)
	case Break, Chance, Unknown, Split:
		// The branches of a Split are verdicts; anything else is an op's bug, and must not pass for an answer.
		w.pass(f, at, here, "an op gave no verdict")
	}
}

// ends are those of verdicts that end everything.
var ends = [...]End{Drop: Dropped, Reject: Rejected, Stolen: Taken}

// pass follows both branches past a rule that cannot be followed.
func (w *Walker) pass(f *frame, at int, here Ref, why string) {
	through, lost := w.opaque(f.cur, here, why)
	w.park(f, after(here.Chain, at, &through.pkt), &through)
	w.leave(f, &lost)
}

// call runs a jump or goto. What returns from a goto leaves this chain too.
func (w *Walker) call(at int, here Ref, eff *Effect, depth int) {
	f := &w.frames[depth]
	if why := notCallable(eff.Chain, depth); why != "" {
		w.pass(f, at, here, why)
		return
	}
	w.verdict(here, eff, &f.cur)
	caller := w.calls
	w.calls = w.callBy(here.Rule)
	out := w.visit(here.Hook, eff.Chain, &f.cur, depth+1)
	w.calls = caller
	if callee := &w.frames[depth+1]; len(f.out) == 0 && len(out) < f.mergeAt && !anyReturned(out) {
		f.out, callee.out = out, f.out // branches are large
		return
	}
	for i := range out {
		o := &out[i]
		if o.verdict == Return && eff.Kind == Jump {
			o.verdict = Next
			w.park(f, after(here.Chain, at, &o.pkt), o)
			continue
		}
		w.leave(f, o)
	}
	w.held -= len(out)
}

// notCallable says why a call of a chain from a depth cannot be followed; "" where it can.
func notCallable(c *Chain, depth int) string {
	switch {
	case c == nil:
		return "the chain that it leads to is not in the table"
	case depth+1 == maxDepth:
		return "calls are nested too deep"
	}
	return ""
}

// anyReturned tells whether branches go on in the chain that has called, if that did so by a jump.
func anyReturned(bs []branch) bool {
	for i := range bs {
		if bs[i].verdict == Return {
			return true
		}
	}
	return false
}

// callBy returns what tells apart the calls that are in progress once a rule has called a chain. A packet comes to a
// chain once at most by the same calls.
func (w *Walker) callBy(r *Rule) uint64 {
	if !w.opt.Steps {
		return 0
	}
	return maphash.Comparable(seed, calledBy{w.calls, r})
}

type calledBy struct {
	calls uint64
	rule  *Rule
}
