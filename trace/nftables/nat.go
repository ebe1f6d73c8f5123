// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// translation makes the op of a translation to a range.
type translation func(r *op.NATRange) netfilter.Op

func translateDst(r *op.NATRange) netfilter.Op {
	if r.Single() {
		return &op.DNAT{To: r.From, Port: r.Low}
	}
	return &op.DNATSplit{NATRange: *r}
}

func translateSrc(r *op.NATRange) netfilter.Op { return op.SNAT(r) }
func redirect(r *op.NATRange) netfilter.Op     { return &op.Redirect{NATRange: *r} }
func masquerade(r *op.NATRange) netfilter.Op   { return op.Masquerade(r) }

// translations are the kinds of NAT.
var translations = map[string]translation{
	"dnat": translateDst, "snat": translateSrc, "redirect": redirect, "masquerade": masquerade,
}

// nat compiles a translation (net/netfilter/nft_nat.c). The address may come with a port where a map gives both.
func (b *builder) nat(n *syntax.NAT) bool {
	t := &translated{do: translations[n.Kind], family: netfilter.Inet}
	switch n.Family {
	case "ip":
		t.family = netfilter.IPv4
	case "ip6":
		t.family = netfilter.IPv6
	}
	t.shuffle = slices.Contains(n.Flags, "random") || slices.Contains(n.Flags, "fully-random")
	for _, flag := range n.TypeFlags {
		if flag != "concat" && flag != "interval" {
			return false // "prefix" replaces a network
		}
	}
	if n.Addr != nil && !t.address(b, n.Addr) || n.Port != nil && !t.ports(b, n.Port) {
		return false
	}
	b.acted = true
	if to := t.Destinations(); len(to) == 1 && t.by == nil {
		b.rule.NAT = to[0]
	}
	b.add(t)
	return true
}

// translated is dnat, snat or redirect.
type translated struct {
	do      translation
	family  netfilter.Family
	addr    span // with v4 or v6
	v4, v6  bool
	port    span
	hasPort bool
	shuffle bool
	by      *lookup // gives address, port, or both
}

// address reads the address: a constant, or a map that gives it, with the port or without.
func (t *translated) address(b *builder, e syntax.Expr) bool {
	if m, ok := e.(*syntax.Map); ok {
		l, ok := b.lookup(m, nil)
		if !ok || l.in.unread != "" || len(l.in.data) == 0 || len(l.in.data) > 2 ||
			l.in.data[0] != typeIPv4 && l.in.data[0] != typeIPv6 {
			return false
		}
		t.by = l
		return l.small()
	}
	var one [1]syntax.Expr
	parts := fieldsOf(e, &one)
	if len(parts) == 0 || len(parts) > 2 || len(parts) == 2 && !t.ports(b, parts[1]) {
		return false
	}
	typ := guess(parts[0])
	if typ != typeIPv4 && typ != typeIPv6 {
		return false
	}
	var ok bool
	t.v4, t.v6 = typ == typeIPv4, typ == typeIPv6
	t.addr.lo, t.addr.hi, ok = typ.constant(parts[0])
	return ok
}

func (t *translated) ports(b *builder, e syntax.Expr) bool {
	if m, ok := e.(*syntax.Map); ok {
		l, ok := b.lookup(m, nil)
		if !ok || t.by != nil || l.in.unread != "" || len(l.in.data) != 1 ||
			l.in.data[0] != typePort && l.in.data[0] != typeInteger {
			return false
		}
		t.by = l
		return l.small()
	}
	var ok bool
	t.port.lo, t.port.hi, ok = typePort.constant(e)
	t.hasPort = true
	return ok && t.port.lo.lo > 0 && t.port.hi.lo <= 65535
}

// small tells whether a draw among the elements can be followed.
func (l *lookup) small() bool {
	return len(l.key) != 1 || l.key[0].draw == nil || l.key[0].draw.mod <= maxDrawn
}

// spread is the range that the rule translates to, with what an element of its map gives.
func (t *translated) spread(e *element) *op.NATRange {
	r := op.NATRange{Shuffle: t.shuffle}
	addr, v4, v6, port, hasPort := t.addr, t.v4, t.v6, t.port, t.hasPort
	if e != nil {
		for i, d := range t.by.in.data {
			if d == typeIPv4 || d == typeIPv6 {
				addr, v4, v6 = e.data[i], d == typeIPv4, d == typeIPv6
				continue
			}
			port, hasPort = e.data[i], true
		}
	}
	if v4 || v6 {
		r.From, r.To = addr.lo.addr(v4), addr.hi.addr(v4)
	}
	if hasPort {
		r.Low, r.High = uint16(port.lo.lo), uint16(port.hi.lo) //nolint:gosec // ports
	}
	return &r
}

// Translates implements [netfilter.NATOp].
func (t *translated) Translates() netfilter.NATKind {
	if n, ok := t.do(&op.NATRange{}).(netfilter.NATOp); ok {
		return n.Translates()
	}
	return netfilter.DNAT
}

// Sources implements [op.SourceOp].
func (t *translated) Sources() (from, to netip.Addr) {
	if t.by != nil || t.Translates() != netfilter.SNAT {
		return from, to
	}
	r := t.spread(nil)
	return r.From, r.To
}

// Run implements [netfilter.Op].
func (t *translated) Run(c *netfilter.Context) netfilter.Effect {
	if c.Packet.Family&t.family == 0 {
		return netfilter.Effect{} // nft_nat_inet_eval
	}
	if t.by == nil {
		return t.do(t.spread(nil)).Run(c)
	}
	if d := t.by.key[0].draw; d != nil && len(t.by.key) == 1 {
		return t.drawn(c)
	}
	truth, e := t.by.find(c)
	switch truth {
	case op.No:
		return breakOff
	case op.Yes:
		return t.do(t.spread(e)).Run(c)
	case op.Maybe:
	}
	return netfilter.Effect{Kind: netfilter.Opaque, Why: "where it translates to is not known: " + dependsOn(t.by.key)}
}

// drawn translates to each of the values that may be drawn, with its share.
func (t *translated) drawn(c *netfilter.Context) netfilter.Effect {
	plain := true
	alts := t.by.draws(c, func(e *element) netfilter.Alt {
		alt := netfilter.Alt{Packet: *c.Packet} // the effect Next of none: the next rule is asked
		if e == nil {
			return alt
		}
		here := *c
		here.Packet = &alt.Packet
		alt.Effect = t.do(t.spread(e)).Run(&here)
		plain = plain && alt.Effect.Kind != netfilter.Split
		return alt
	})
	if !plain {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "it translates to one of several ranges"}
	}
	return netfilter.Effect{Kind: netfilter.Split, Alts: alts}
}

// Destinations implements [netfilter.Translator]; of a draw each one is there as often as it may be drawn.
func (t *translated) Destinations() []netip.AddrPort {
	var out []netip.AddrPort
	add := func(r *op.NATRange) {
		if r.Single() && r.From.IsValid() && r.Low != 0 {
			out = append(out, netip.AddrPortFrom(r.From, r.Low))
		}
	}
	if t.by == nil {
		add(t.spread(nil))
		return out
	}
	for i := range t.by.in.elements {
		add(t.spread(&t.by.in.elements[i]))
	}
	return out
}
