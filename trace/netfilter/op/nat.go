// SPDX-License-Identifier: Apache-2.0

package op

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// NATRange is the range of results of a translation: one address and port, or a range of either (struct nf_nat_range2).
// Zero addresses or ports keep the packet's.
type NATRange struct {
	From, To  netip.Addr
	Low, High uint16
	Base      uint16 // the port that the first of the range stands for
	HasBase   bool
	Shuffle   bool // NF_NAT_RANGE_PROTO_RANDOM, or …_RANDOM_FULLY
}

// maxAlternatives bounds the branches that a range of destinations opens.
const maxAlternatives = 256

// Single tells whether the range leaves no choice.
func (r *NATRange) Single() bool { return r.From == r.To && r.Low == r.High }

// DNAT is the translation to a single destination.
type DNAT struct {
	To   netip.Addr
	Port uint16
}

// Run implements [netfilter.Op].
func (n *DNAT) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	if n.To.IsValid() {
		p.Dst = n.To
	}
	if n.Port != 0 {
		p.DstPort = n.Port
	}
	p.DNAT = true
	return netfilter.Effect{Kind: netfilter.Accept}
}

// DNATSplit is the translation to one of several destinations.
type DNATSplit struct{ NATRange }

// Run implements [netfilter.Op]. The kernel chooses the address by a hash of the client's, over many clients all alike
// (find_best_ips_proto in net/netfilter/nf_nat_core.c).
func (n *DNATSplit) Run(c *netfilter.Context) netfilter.Effect {
	from, to := n.From, n.To
	if !from.IsValid() {
		from, to = c.Packet.Dst, c.Packet.Dst
	}
	var addrs []netip.Addr
	for a := from; len(addrs) <= maxAlternatives && a.Compare(to) <= 0 && a.IsValid(); a = a.Next() {
		addrs = append(addrs, a)
	}
	low, high := n.choose(c.Packet.DstPort)
	count := len(addrs) * (int(high) - int(low) + 1)
	if count > maxAlternatives || count == 0 {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "it translates to any of very many destinations"}
	}
	alts := make([]netfilter.Alt, 0, count)
	for _, a := range addrs {
		for port := low; ; port++ {
			p := *c.Packet
			p.Dst, p.DstPort, p.DNAT = a, port, true
			accept := netfilter.Effect{Kind: netfilter.Accept}
			alts = append(alts, netfilter.Alt{P: 1 / float64(count), Packet: p, Effect: accept})
			if port == high {
				break
			}
		}
	}
	return netfilter.Effect{Kind: netfilter.Split, Alts: alts}
}

// choose narrows the ports down. Unless it has to shuffle, the kernel keeps a destination port that is in the range,
// and takes the range's first for another, as long as no connection has the same addresses and ports (get_unique_tuple
// and nf_nat_l4proto_unique_tuple; before Linux 5.0 it counted on from the last).
func (r *NATRange) choose(port uint16) (low, high uint16) {
	switch {
	case r.Low == 0:
		return port, port
	case r.HasBase:
		off := port - r.Base
		if size := r.High - r.Low + 1; size != 0 { // 0 is all 65536
			off %= size
		}
		return r.Low + off, r.Low + off
	case r.Shuffle:
		return r.Low, r.High
	case r.Low <= port && port <= r.High:
		return port, port
	}
	return r.Low, r.Low
}

// ports is how many ports the range has; 0 where it names none, and for all of them.
func (r *NATRange) ports() uint16 {
	if r.Low == 0 {
		return 0
	}
	return r.High - r.Low + 1
}

// SNAT is the translation of the source. Which port the client gets is not known; nor which address of several.
func SNAT(r *NATRange) netfilter.Op {
	from, several, ports := r.From, r.From != r.To, r.ports()
	return snatTo{r.From, r.To, snat{netfilter.SNAT, func(c *netfilter.Context) {
		p := c.Packet
		p.SNAT, p.SrcPort, p.SNATPorts = true, 0, ports
		switch {
		case several:
			p.Src = netip.Addr{}
		case from.IsValid():
			p.Src = from
		}
	}}}
}

// snatTo is a translation of the source to addresses that the rule names.
type snatTo struct {
	from, to netip.Addr
	snat
}

// Sources implements [SourceOp].
func (n snatTo) Sources() (from, to netip.Addr) { return n.from, n.to }

// SourceOp is an Op that may give packets another source.
type SourceOp interface {
	// Sources returns the first and the last address that it gives them; the zero Addr where it names none.
	Sources() (from, to netip.Addr)
}

// Sources returns what a rule's [SourceOp] does; the zero Addr for a rule without one.
func Sources(r *netfilter.Rule) (from, to netip.Addr) {
	if r == nil {
		return from, to
	}
	for _, o := range r.Ops {
		if s, is := o.(SourceOp); is {
			return s.Sources()
		}
	}
	return from, to
}

// Masquerade translates the source to an address of the interface that the packet leaves by
// (net/netfilter/nf_nat_masquerade.c); the range has no address.
func Masquerade(r *NATRange) netfilter.Op { return masquerade{r.ports()} }

// masquerade is what Masquerade returns.
type masquerade struct{ ports uint16 }

// Translates implements [netfilter.NATOp].
func (m masquerade) Translates() netfilter.NATKind { return netfilter.Masquerade }

// Run implements [netfilter.Op].
func (m masquerade) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	near := p.Dst
	// The kernel asks for no gateway of the other family (rt_nexthop in include/net/route.h), and for none of IPv6
	// (nf_nat_masquerade_ipv6).
	if p.Family == netfilter.IPv4 && p.NextHop.Is4() {
		near = p.NextHop
	}
	src := netip.Addr{}
	if p.Out != "" && p.Out != netfilter.UnknownIface {
		if p.Family == netfilter.IPv4 && c.Host.NoMasquerade(p.Out) {
			return netfilter.Effect{
				Kind: netfilter.Drop, Why: "no interface has an address that packets could get as their source (ip addr: none of " +
					"them is of scope global)",
			}
		}
		src = c.Host.MasqueradeAddress(p.Out, near)
	}
	p.SNAT, p.Src, p.SrcPort, p.SNATPorts = true, src, 0, m.ports
	return netfilter.Effect{Kind: netfilter.Accept}
}

// snat is a translation of the source.
type snat struct {
	kind netfilter.NATKind
	do   AcceptAfter
}

// Run implements [netfilter.Op].
func (n snat) Run(c *netfilter.Context) netfilter.Effect { return n.do.Run(c) }

// Translates implements [netfilter.NATOp].
func (n snat) Translates() netfilter.NATKind { return n.kind }

// Redirect is the translation to the node itself (net/netfilter/nf_nat_redirect.c).
type Redirect struct{ NATRange }

// Translates implements [netfilter.NATOp].
func (r *Redirect) Translates() netfilter.NATKind { return netfilter.Redirect }

// Run implements [netfilter.Op].
func (r *Redirect) Run(c *netfilter.Context) netfilter.Effect {
	p, dev := c.Packet, c.Packet.In
	if c.Hook == netfilter.Output {
		dev = "lo"
	}
	to := netip.Addr{}
	if dev != "" && dev != netfilter.UnknownIface {
		to = c.Host.RedirectAddress(dev, p.Family == netfilter.IPv4)
	}
	if !to.IsValid() {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "the address of the incoming interface is not known"}
	}
	s := DNATSplit{r.NATRange}
	s.From, s.To = to, to
	if s.Low, s.High = r.choose(p.DstPort); s.Low == s.High {
		return (&DNAT{to, s.Low}).Run(c)
	}
	return s.Run(c)
}
