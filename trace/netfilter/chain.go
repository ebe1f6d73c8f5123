// SPDX-License-Identifier: Apache-2.0

package netfilter

// chain runs a chain for one packet and returns every way out of it, merged. A branch's verdict is Return when it fell off
// the end or was told to return; otherwise it is Accept (of the base chain) or Drop (the way has ended, see branch.end).
func (w *Walker) chain(h Hook, c *Chain, in branch, depth int) []branch {
	if depth >= maxDepth {
		return w.opaque(nil, in, Ref{Hook: h, Chain: c}, "calls are nested too deep", Return)
	}
	for len(w.frames) <= depth {
		w.frames = append(w.frames, new(branch))
		w.live = append(w.live, nil)
	}
	cur := w.frames[depth]
	w.live[depth] = w.live[depth][:0]
	*cur = in
	cur.verdict, cur.end, cur.where, cur.why = Next, Sent, Ref{}, ""
	cand := c.candidates(&cur.pkt)
	at := cand.next(0)
	var out []branch
	for {
		if at >= len(c.Rules) {
			cur.verdict = Return
			out = append(out, *cur)
		} else if r := c.Rules[at]; w.rule(h, c, r, at, cur, depth, &out) {
			at = cand.next(at + 1)
			if len(w.live[depth]) == 0 || !w.park(depth, at, *cur) {
				continue
			}
		}
		var ok bool
		if at, ok = w.resume(depth, cur); !ok {
			return merge(out)
		}
		cand = c.candidates(&cur.pkt)
		at = cand.next(at)
	}
}

// park puts a branch aside so that the ones behind it catch up, and joins it with one that waits at the same rule in the
// same state. It says whether the branch was put aside.
func (w *Walker) park(depth, at int, b branch) bool {
	for i := range w.live[depth] {
		c := &w.live[depth][i]
		if c.at == at && sameState(&c.b, &b) && join(&c.b, &b) {
			return true
		}
	}
	w.live[depth] = append(w.live[depth], cursor{at, b})
	return true
}

// resume takes up the waiting branch that is furthest behind.
func (w *Walker) resume(depth int, cur *branch) (at int, ok bool) {
	live := w.live[depth]
	if len(live) == 0 {
		return 0, false
	}
	first := 0
	for i := range live {
		if live[i].at < live[first].at {
			first = i
		}
	}
	*cur = live[first].b
	at = live[first].at
	live[first] = live[len(live)-1]
	w.live[depth] = live[:len(live)-1]
	return at, true
}

// rule runs one rule for *cur. It returns true when *cur goes on with the chain's next rule; other ways are parked (those
// that go on) or appended to out (those that leave the chain).
func (w *Walker) rule(h Hook, c *Chain, r *Rule, at int, cur *branch, depth int, out *[]branch) bool {
	for _, op := range r.Ops {
		w.ctx.Packet = &cur.pkt
		w.at = Ref{Hook: h, Chain: c, Rule: r}
		var saved Packet
		if w.opt.Steps {
			saved = cur.pkt
		}
		untranslated := !cur.pkt.DNAT
		eff := op.Run(&w.ctx)
		if untranslated && cur.pkt.DNAT {
			cur.pkt.DNATBy = w.at
		}
		switch eff.Kind {
		case Next:
			if w.opt.Steps && saved != cur.pkt {
				w.step(w.at, did(&saved, &cur.pkt), cur.p)
			}
			continue
		case Break:
			return true
		case Chance:
			if eff.P >= 1 {
				continue
			}
			if eff.P <= 0 {
				return true
			}
			rest := *cur
			rest.p *= 1 - eff.P
			w.park(depth, w.after(c, at, &rest.pkt), rest)
			cur.p *= eff.P
			continue
		case Unknown:
			yes, no := w.fork(*cur, r, Uncertain{Where: w.at, What: r.Text, Why: eff.Why})
			w.park(depth, w.after(c, at, &no.pkt), no)
			*cur = yes
			continue
		case Split:
			base := *cur
			for _, alt := range eff.Alts {
				b := base
				b.pkt, b.p = alt.Packet, b.p*alt.P
				if untranslated && b.pkt.DNAT {
					b.pkt.DNATBy = w.at
				}
				w.decide(h, c, r, at, b, alt.Effect, depth, out, &saved)
			}
			return false
		case Opaque, Accept, Drop, Reject, Queue, Stolen, Return, Jump, Goto:
			w.decide(h, c, r, at, *cur, eff, depth, out, &saved)
			return false
		}
	}
	return true
}

// after is where a branch goes on behind rule at.
func (w *Walker) after(c *Chain, at int, p *Packet) int {
	cand := c.candidates(p)
	return cand.next(at + 1)
}

// decide carries out a verdict.
func (w *Walker) decide(h Hook, c *Chain, r *Rule, at int, b branch, eff Effect, depth int, out *[]branch, saved *Packet) {
	here := Ref{Hook: h, Chain: c, Rule: r}
	end := func(e End, verdict string) {
		w.step(here, verdict, b.p)
		b.verdict, b.end, b.where, b.why = Drop, e, here, eff.Why
		*out = append(*out, b)
	}
	switch eff.Kind {
	case Accept:
		verdict := "ACCEPT"
		if w.opt.Steps && *saved != b.pkt {
			verdict = did(saved, &b.pkt)
		}
		w.step(here, verdict, b.p)
		b.verdict = Accept
		*out = append(*out, b)
	case Drop:
		end(Dropped, "DROP")
	case Reject:
		end(Rejected, "REJECT")
	case Stolen:
		end(Taken, "taken")
	case Queue, Opaque:
		ways := w.opaque(nil, b, here, eff.Why, Next)
		w.park(depth, w.after(c, at, &ways[0].pkt), ways[0])
		*out = append(*out, ways[1])
	case Return:
		w.step(here, "RETURN", b.p)
		b.verdict = Return
		*out = append(*out, b)
	case Jump, Goto:
		w.call(h, c, r, at, b, eff, depth, out)
	case Next:
		w.park(depth, w.after(c, at, &b.pkt), b)
	case Break, Chance, Unknown, Split:
		// A Split's ways are verdicts; anything else is an op's bug, and must not pass for an answer.
		ways := w.opaque(nil, b, here, "an op gave no verdict", Next)
		w.park(depth, w.after(c, at, &ways[0].pkt), ways[0])
		*out = append(*out, ways[1])
	}
}

// call runs a jump or goto. What returns from a goto leaves this chain too.
func (w *Walker) call(h Hook, c *Chain, r *Rule, at int, b branch, eff Effect, depth int, out *[]branch) {
	here := Ref{Hook: h, Chain: c, Rule: r}
	if eff.Chain == nil {
		ways := w.opaque(nil, b, here, "the chain that it leads to is not in the table", Next)
		w.park(depth, w.after(c, at, &ways[0].pkt), ways[0])
		*out = append(*out, ways[1])
		return
	}
	word := "jump "
	if eff.Kind == Goto {
		word = "goto "
	}
	w.step(here, word+eff.Chain.Name, b.p)
	for _, o := range w.chain(h, eff.Chain, b, depth+1) {
		if o.verdict == Return && eff.Kind == Jump {
			o.verdict = Next
			w.park(depth, w.after(c, at, &o.pkt), o)
			continue
		}
		*out = append(*out, o)
	}
}
