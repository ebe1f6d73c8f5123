// SPDX-License-Identifier: Apache-2.0

package netfilter

// Most chains do one thing with a packet: no chance and nothing that is not known has it go several ways. Such a chain,
// with all that it calls, is run on one packet, in place, without the branches and frames of [Walker.chain], which are
// large.

// oftenForked is how often a chain could not be run in place before that is seldom tried any more: as a packet goes
// several ways there, or comes to its end. It then is in one walk of retryForked.
const (
	oftenForked = 4
	retryForked = 64
)

// mayBeStraight tells whether it is worth trying whether a packet goes one way through a chain.
func (w *Walker) mayBeStraight(c *Chain) bool {
	return !w.opt.Steps && !w.long() && w.budget == "" && (c.forked.Load() < oftenForked || w.walks%retryForked == 0)
}

// straight runs a chain, and the chains that it calls, on a packet: it returns Accept, or Return where the packet comes
// back from it. ok is false where anything else may become of it, and where the walk has become long: the chain then is
// to be run again, with the packet as it was. All else that has been noted by then is noted again.
func (w *Walker) straight(h Hook, c *Chain, p *Packet, depth int) (verdict Kind, ok bool) {
	if verdict, ok = w.follow(h, c, p, depth); !ok && !w.long() {
		c.forked.Add(1)
	}
	return verdict, ok
}

// follow is straight without counting.
func (w *Walker) follow(h Hook, c *Chain, p *Packet, depth int) (verdict Kind, ok bool) {
	w.enter(c)
	cand := c.candidates(p)
	for at := cand.next(0); at < len(c.Rules); at = cand.next(at + 1) {
		r := c.Rules[at]
		w.ctx.Work++
		if w.long() {
			return Next, false
		}
		eff := Effect{}
		for _, op := range r.Ops {
			w.ctx.Packet = p
			eff = op.Run(&w.ctx)
			sign(p, Ref{Hook: h, Chain: c, Rule: r})
			if eff.Kind != Next || eff.Offloads {
				break
			}
		}
		switch {
		case eff.Offloads:
			return Next, false
		case eff.Kind == Next, eff.Kind == Break:
			continue
		case eff.Kind == Accept, eff.Kind == Return:
			return eff.Kind, true
		case eff.Kind != Jump && eff.Kind != Goto, notCallable(eff.Chain, depth) != "", !w.mayBeStraight(eff.Chain):
			return Next, false
		}
		if verdict, ok = w.straight(h, eff.Chain, p, depth+1); !ok || verdict == Accept || eff.Kind == Goto {
			return verdict, ok
		}
		cand = c.candidates(p)
	}
	return Return, true
}

// long tells whether the walk has become so long that what chains do has to be remembered, or that it has to end.
func (w *Walker) long() bool {
	return w.ctx.Work >= w.memoAfter || w.ctx.Work > min(w.limits.work, w.limits.uncertain)
}
