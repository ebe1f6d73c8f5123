// SPDX-License-Identifier: Apache-2.0

package netfilter

// chain runs a chain for one packet and returns every way out of it, merged. A branch's verdict is Return when it fell off
// the end or was told to return; otherwise it is Accept (of the base chain) or Drop (the way has ended, see branch.end). The
// result is good until the next call at the same depth.
func (w *Walker) chain(h Hook, c *Chain, in *branch, depth int) []branch {
	f := &w.frames[depth]
	f.live, f.out = f.live[:0], f.out[:0]
	cur := &f.cur
	*cur = *in
	cur.verdict, cur.end, cur.where, cur.why = Next, Sent, Ref{}, ""
	cand := c.candidates(&cur.pkt)
	at := cand.next(0)
	for {
		if at >= len(c.Rules) {
			cur.verdict = Return
			f.out = append(f.out, *cur)
		} else if w.rule(h, c, at, depth) {
			at = cand.next(at + 1)
			if len(f.live) == 0 {
				continue
			}
			f.park(at, *cur)
		}
		var ok bool
		if at, ok = f.resume(); !ok {
			f.out = collapse(merge(f.out))
			return f.out
		}
		cand = c.candidates(&cur.pkt)
	}
}

// park puts a branch aside so that the ones behind it catch up, or joins it with one that waits at the same rule in the same
// state.
func (f *frame) park(at int, b branch) {
	for i := range f.live {
		c := &f.live[i]
		if c.at == at && sameState(&c.b, &b) && (join(&c.b, &b) || len(f.live) > manyWays && blur(&c.b, &b)) {
			return
		}
	}
	f.live = append(f.live, cursor{at, b})
}

// resume takes up the waiting branch that is furthest behind.
func (f *frame) resume() (at int, ok bool) {
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
	f.live[first] = f.live[last]
	f.live = f.live[:last]
	return at, true
}

// rule runs rule number at of a chain for the frame's branch. It returns true when that goes on with the chain's next rule;
// other ways are parked (those that go on) or leave the chain.
func (w *Walker) rule(h Hook, c *Chain, at, depth int) bool {
	f := &w.frames[depth]
	cur, r := &f.cur, c.Rules[at]
	w.work++
	if (w.work > maxWork || len(f.live) > maxLive) && cur.yes|cur.no != 0 {
		w.giveUp(Ref{Hook: h, Chain: c, Rule: r})
		return false
	}
	var saved Packet
	for _, op := range r.Ops {
		w.ctx.Packet = &cur.pkt
		w.at = Ref{Hook: h, Chain: c, Rule: r}
		if w.opt.Steps {
			saved = cur.pkt
		}
		eff := op.Run(&w.ctx)
		w.sign(&cur.pkt)
		switch eff.Kind {
		case Next:
			if w.opt.Steps && saved != cur.pkt {
				s := w.did(op, &saved, &cur.pkt)
				s.P = cur.p
				w.step(s)
			}
		case Break:
			return true
		case Chance:
			if eff.P <= 0 {
				return true
			}
			if eff.P < 1 {
				rest := *cur
				rest.p *= 1 - eff.P
				f.park(after(c, at, &rest.pkt), rest)
				cur.p *= eff.P
			}
		case Unknown:
			yes, no := w.fork(*cur, r, Uncertain{Where: w.at, What: r.Text, Why: eff.Why})
			f.park(after(c, at, &no.pkt), no)
			*cur = yes
		case Split:
			whole := *cur
			for _, alt := range eff.Alts {
				w.at = Ref{Hook: h, Chain: c, Rule: r}
				*cur = whole
				cur.pkt, cur.p = alt.Packet, whole.p*alt.P
				w.sign(&cur.pkt)
				w.decide(h, c, at, op, alt.Effect, depth, &saved)
			}
			return false
		case Opaque, Accept, Drop, Reject, Queue, Stolen, Return, Jump, Goto:
			w.decide(h, c, at, op, eff, depth, &saved)
			return false
		}
	}
	return true
}

// sign notes which rule settled a translation.
func (w *Walker) sign(p *Packet) {
	if p.DNAT && p.DNATBy.Chain == nil {
		p.DNATBy = w.at
	}
	if p.SNAT && p.SNATBy.Chain == nil {
		p.SNATBy = w.at
	}
}

// after is where a branch goes on behind rule at.
func after(c *Chain, at int, p *Packet) int {
	cand := c.candidates(p)
	return cand.next(at + 1)
}

// decide carries out a verdict of op on the frame's branch, whose packet was saved before.
func (w *Walker) decide(h Hook, c *Chain, at int, op Op, eff Effect, depth int, saved *Packet) {
	f := &w.frames[depth]
	b := &f.cur
	here := Ref{Hook: h, Chain: c, Rule: c.Rules[at]}
	step := Step{Verdict: eff.Kind, Ref: here, P: b.p, Why: eff.Why}
	if eff.Lookup != nil {
		step.Lookup = *eff.Lookup
	}
	end := func(e End) {
		w.step(step)
		b.verdict, b.end, b.where, b.why = Drop, e, here, eff.Why
		f.out = append(f.out, *b)
	}
	switch eff.Kind {
	case Accept:
		if w.opt.Steps && *saved != b.pkt {
			step = w.did(op, saved, &b.pkt)
			step.Verdict, step.P = Accept, b.p
		}
		w.step(step)
		b.verdict = Accept
		f.out = append(f.out, *b)
	case Drop:
		end(Dropped)
	case Reject:
		end(Rejected)
	case Stolen:
		end(Taken)
	case Queue, Opaque:
		w.lose(c, at, here, eff.Why, f)
	case Return:
		w.step(step)
		b.verdict = Return
		f.out = append(f.out, *b)
	case Jump, Goto:
		step.Kind, step.Target = StepCall, eff.Chain
		w.call(h, c, at, &step, depth)
	case Next:
		f.park(after(c, at, &b.pkt), *b)
	case Break, Chance, Unknown, Split:
		// A Split's ways are verdicts; anything else is an op's bug, and must not pass for an answer.
		w.lose(c, at, here, "an op gave no verdict", f)
	}
}

// lose goes both ways past a rule that cannot be followed.
func (w *Walker) lose(c *Chain, at int, here Ref, why string, f *frame) {
	through, lost := w.opaque(f.cur, here, why)
	f.park(after(c, at, &through.pkt), through)
	f.out = append(f.out, lost)
}

// call runs a jump or goto. What returns from a goto leaves this chain too.
func (w *Walker) call(h Hook, c *Chain, at int, step *Step, depth int) {
	f := &w.frames[depth]
	here := step.Ref
	switch {
	case step.Target == nil:
		w.lose(c, at, here, "the chain that it leads to is not in the table", f)
		return
	case depth+1 == maxDepth:
		w.lose(c, at, here, "calls are nested too deep", f)
		return
	}
	w.step(*step)
	for _, o := range w.chain(h, step.Target, &f.cur, depth+1) {
		if o.verdict == Return && step.Verdict == Jump {
			o.verdict = Next
			f.park(after(c, at, &o.pkt), o)
			continue
		}
		f.out = append(f.out, o)
	}
}
