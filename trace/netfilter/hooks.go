// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"
	"strings"
)

// slot is one priority of a hook: chains whose order among themselves the ruleset does not tell.
type slot struct {
	priority int
	nat      bool
	chains   []*Chain
	// part are those of chains that are attached to some of the devices only that the packet may be at.
	part map[*Chain]attachment
}

// The priorities at which conntrack itself runs the NAT chains: whatever the priority of a nat chain is, it runs from
// the NAT core's hook (net/netfilter/nf_nat_proto.c, nf_nat_ipv4_ops), the priority only orders nat chains among
// themselves.
const (
	natDstPriority = -100
	natSrcPriority = 100
)

// order is the priority that the slot's chains have in their hook.
func (s *slot) order(h Hook) int {
	switch {
	case !s.nat:
		return s.priority
	case h == Prerouting || h == Output:
		return natDstPriority
	}
	return natSrcPriority
}

func slotsOf(rs *Ruleset, f Family) [hooks][]slot {
	type hooked struct {
		order, priority int
		chain           *Chain
	}
	var found [hooks][]hooked
	for _, t := range rs.Tables {
		if t.Family != 0 && t.Family&f == 0 {
			continue
		}
		for _, c := range t.Chains {
			if c.Base == nil || c.Base.Hook >= hooks || c.inert() || f == ARP && t.Family == 0 && !c.Base.Hook.OfLink() {
				continue
			}
			order := c.Base.Priority
			if c.Base.Type == TypeNAT {
				order = natDstPriority
				if c.Base.Hook == Input || c.Base.Hook == Postrouting {
					order = natSrcPriority
				}
			}
			found[c.Base.Hook] = append(found[c.Base.Hook], hooked{order, c.Base.Priority, c})
		}
	}
	var out [hooks][]slot
	for h := range found {
		slices.SortStableFunc(found[h], func(a, b hooked) int {
			if a.order != b.order {
				return a.order - b.order
			}
			return a.priority - b.priority
		})
		for i, x := range found[h] {
			nat := x.chain.Base.Type == TypeNAT
			if i > 0 && found[h][i-1].order == x.order {
				if last := &out[h][len(out[h])-1]; last.priority == x.priority && last.nat == nat {
					last.chains = append(last.chains, x.chain)
					continue
				}
			}
			out[h] = append(out[h], slot{priority: x.priority, nat: nat, chains: []*Chain{x.chain}})
		}
		out[h] = rs.ranked(f, out[h])
	}
	return out
}

// ranked gives each chain of a slot one of its own where the kernel tells the order of all of them. It does not tell
// that of nat chains, which it runs from one function.
func (rs *Ruleset) ranked(f Family, slots []slot) (out []slot) {
	if rs.Rank == nil {
		return slots
	}
	for _, s := range slots {
		at := make(map[*Chain]int, len(s.chains))
		for _, c := range s.chains {
			if n, known := rs.Rank(f, c); known {
				at[c] = n
			}
		}
		if s.nat || len(s.chains) == 1 || len(at) < len(s.chains) {
			out = append(out, s)
			continue
		}
		slices.SortFunc(s.chains, func(a, b *Chain) int { return at[a] - at[b] })
		for _, c := range s.chains {
			out = append(out, slot{priority: s.priority, chains: []*Chain{c}})
		}
	}
	return out
}

// fromPrerouting follows a packet that comes in by an interface: the hooks of devices and bridges, PREROUTING, the
// routing decision, and then either INPUT, or FORWARD and POSTROUTING, and again devices and bridges.
func (w *Walker) fromPrerouting(in branch) {
	if in.pkt.loopedOutside() {
		in.last = &last{why: "only lo takes packets from or to " + netip.IPv6Loopback().String()}
		w.finish([]branch{in}, NoRoute)
		return
	}
	alive := w.comeIn(append(w.list(1), in), in.pkt.Src)
	toRoute := w.list(len(alive))
	for i := range alive {
		b := &alive[i]
		// One that is translated to itself may still be IPVS's.
		same := b.pkt.Dst == b.pkt.OrigDst && b.pkt.DstPort == b.pkt.OrigDstPort
		if w.opt.Only.IsValid() && b.pkt.DNAT && !same && w.opt.Only != netip.AddrPortFrom(b.pkt.Dst, b.pkt.DstPort) {
			continue
		}
		if w.martian(b) {
			continue
		}
		if w.opt.Bridge != "" && b.pkt.Dst == in.pkt.Dst {
			b.pkt.route = routed{known: true, mark: b.pkt.Mark, src: b.pkt.Src}
			b.pkt.route.by(w.opt.Bridge, netip.Addr{})
			toRoute = append(toRoute, *b)
			continue
		}
		toRoute = w.take(Forward, b, w.route(&b.pkt), toRoute)
	}
	local, toForward := w.byRoute(w.filtered(toRoute))
	w.finish(w.hook(Input, local, false), Delivered)
	w.finish(w.goOut(w.hook(Postrouting, w.resend(), false)), Sent)
	toForward = w.bridgeOn(leave(toForward))
	// POSTROUTING knows the incoming interface of what is forwarded, since Linux 5.7 (net/ipv4/ip_output.c, ip_output).
	w.finish(w.goOut(w.hook(Postrouting, w.hook(Forward, toForward, false), false)), Sent)
}

// fromOutput follows a locally made packet: OUTPUT with the route to its first destination, a new routing decision for
// the translated one (ip_route_me_harder), POSTROUTING, and, when the destination is the node itself, in again by lo.
// NAT is settled by then: the nat chains of PREROUTING and INPUT do not see it a second time.
func (w *Walker) fromOutput(in branch) {
	in.pkt.Local = true
	alive := w.hook(Output, leave(w.output(in, w.list(1))), false)
	alive = append(alive, w.resend()...)
	loop, sent := w.byRoute(w.hook(Postrouting, leave(alive), false))
	w.finish(w.goOut(sent), Sent)
	w.finish(w.hook(Input, w.hook(Prerouting, w.byLo(loop), true), true), Delivered)
}

// resend sends on what IPVS has scheduled to real servers beyond the node. It goes through OUTPUT from its beginning,
// whichever hook it was scheduled at, to POSTROUTING (net/netfilter/ipvs/ip_vs_xmit.c, ip_vs_nat_send_or_cont); the nat
// chains of OUTPUT have had, or missed, their turn: the destination's translation is settled.
func (w *Walker) resend() []branch {
	again := w.resent
	w.resent = nil
	if len(again) == 0 {
		return nil
	}
	in := again[0].pkt.In // of all: they are one packet
	for i := range again {
		again[i].pkt.In = ""
	}
	out := w.hook(Output, w.resendRoute(again), true)
	for i := range out {
		out[i].pkt.In = in
	}
	return out
}

// hook runs the base chains of one hook, in the order of their priorities, for packets of one family, and returns those
// that come out of it. It takes the slice over.
func (w *Walker) hook(h Hook, alive []branch, natDone bool) []branch {
	if len(alive) == 0 {
		return nil
	}
	return w.through(h, w.slots[alive[0].pkt.Family][h], alive, natDone)
}

// through is hook for some of its chains.
func (w *Walker) through(h Hook, slots []slot, alive []branch, natDone bool) []branch {
	if len(alive) == 0 || w.budget != "" {
		return nil
	}
	w.ctx.Hook = h
	w.passes++
	w.calls = w.passes
	for i := range slots {
		s := &slots[i]
		if s.nat && natDone {
			continue
		}
		if alive = w.act(h, s.order(h), !s.nat, alive); len(alive) == 0 {
			return nil
		}
		next := w.list(len(alive))
		for j := range alive {
			if s.nat && natSettled(&alive[j].pkt, h) {
				next = append(next, alive[j])
				continue
			}
			from := len(next)
			scheduled := alive[j].pkt.Virtual.IsValid()
			if h == Output {
				next = w.reroute(s, &alive[j].pkt, w.slot(h, s, &alive[j], next), from)
			} else {
				next = w.slot(h, s, &alive[j], next)
			}
			if s.chains[0].Table.Backend == BackendIPVS && !scheduled {
				next = w.scheduled(next, from)
			}
		}
		alive = w.merge(next)
		w.held = len(w.ended) + len(alive) + len(w.resent)
	}
	return w.act(h, afterAll, false, alive)
}

// scheduled takes out of a hook what IPVS has scheduled there and sends on itself: what goes to real servers that are
// not the node. For one on the node the packet goes on through the hook (ip_vs_nat_xmit). It takes the branches from
// number from on.
func (w *Walker) scheduled(bs []branch, from int) []branch {
	fresh := slices.Clone(bs[from:])
	bs = bs[:from]
	for _, b := range fresh {
		if !b.pkt.Virtual.IsValid() {
			bs = append(bs, b)
			continue
		}
		bs, w.resent = w.byAddress(b, bs, w.resent)
	}
	return bs
}

func (w *Walker) finish(bs []branch, e End) {
	for i := range bs {
		w.ended = append(w.ended, bs[i])
		b := &w.ended[len(w.ended)-1]
		b.verdict, b.end = Drop, e
	}
}

// maxOrders is how many chains of one priority are tried in each order: 4 have 24.
const maxOrders = 4

// slot runs the chains of one priority. Which of them goes first depends on which was loaded last: each order is tried.
func (w *Walker) slot(h Hook, s *slot, b *branch, alive []branch) []branch {
	switch {
	case len(s.chains) == 1:
		return w.attached(h, s, s.chains[0], b, alive)
	case len(s.chains) <= maxOrders:
		return w.orders(h, s, *b, s.chains[:1:1], alive)
	}
	// Of more chains one order stands for all: the packet may also come to another end.
	u := orderUnknown(h, s)
	tainted := w.taint(*b, s, u)
	lost := tainted
	lost.last = &last{why: u.What}
	w.finish([]branch{lost}, Lost)
	return w.sequence(h, s, tainted, s.chains, alive)
}

// orderKey stands for a choice of where a chain of a slot goes among those before it.
type orderKey struct {
	first, chain *Chain
	at           int
}

// orders runs the chains of a slot in every order that has the first ones in that of begun.
func (w *Walker) orders(h Hook, s *slot, b branch, begun []*Chain, alive []branch) []branch {
	n := len(begun)
	if n == len(s.chains) {
		return w.sequence(h, s, b, begun, alive)
	}
	for at := n; at > 0; at-- {
		// One of several unknowns, so that each order is one combination of what they turn out to be.
		here, before := w.fork(b, orderKey{s.chains[0], s.chains[n], at}, orderUnknown(h, s))
		alive = w.orders(h, s, here, slices.Insert(slices.Clone(begun), at, s.chains[n]), alive)
		b = before
	}
	return w.orders(h, s, b, slices.Insert(slices.Clone(begun), 0, s.chains[n]), alive)
}

func orderUnknown(h Hook, s *slot) Uncertain {
	names := make([]string, len(s.chains))
	for i, c := range s.chains {
		names[i] = string(c.Table.Backend) + " table " + c.Table.Name
	}
	return Uncertain{
		Where: Ref{Hook: h, Chain: s.chains[0]},
		What:  "the order of " + strings.Join(names, " and ") + " at " + h.String(),
		Why: "they have the same priority, and the one loaded last is evaluated first: nft-hooks.txt would show it (nft " +
			"list hooks)",
	}
}

func (w *Walker) sequence(h Hook, s *slot, b branch, chains []*Chain, alive []branch) []branch {
	in := []branch{b}
	for _, c := range chains {
		var next []branch
		for i := range in {
			if s.nat && natSettled(&in[i].pkt, h) {
				next = append(next, in[i])
				continue
			}
			next = w.attached(h, s, c, &in[i], next)
		}
		in = next
	}
	return append(alive, in...)
}

// base runs a base chain and applies its policy. It appends what the chain accepts to alive; the rest ends.
func (w *Walker) base(h Hook, c *Chain, b *branch, alive []branch) []branch {
	if c.Unread != "" {
		through, lost := w.opaque(*b, Ref{Hook: h, Chain: c}, c.Unread)
		through.verdict = Accept
		w.ended = append(w.ended, lost)
		return append(alive, through)
	}
	w.ctx.Base = c.Base
	out := w.chain(h, c, b, 0)
	if cap(alive)-len(alive) < len(out) {
		alive = append(w.list(len(alive)+len(out)), alive...)
	}
	for i := range out {
		o := &out[i]
		switch {
		case o.verdict == Accept, o.verdict == Return && c.Base.Policy == Accept:
			o.verdict = Accept
			alive = append(alive, *o)
			continue
		case o.verdict == Return:
			by := Ref{Hook: h, Chain: c}
			o.verdict, o.end, o.last = Drop, Dropped, &last{where: by}
			w.step(&Step{Kind: StepPolicy, Verdict: Drop, Ref: by}, o)
		}
		w.ended = append(w.ended, *o)
	}
	return alive
}
