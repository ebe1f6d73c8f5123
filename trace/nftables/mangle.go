// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// harmless are the fields that a statement may set without changing the packet's path.
var harmless = map[string]bool{
	"meta priority": true, "meta nftrace": true, "meta secmark": true,
	"ct label": true, "ct event": true, "ct helper": true, "ct secmark": true,
	"payload ecn": true, "payload flowlabel": true, "payload id": true,
}

// mayBeZero are the fields that a statement may set to 0 without changing the packet's path: no packet is a fragment
// where connections are tracked, and few have urgent data.
var mayBeZero = map[headerField]bool{{"ip", "frag-off"}: true, {"tcp", "urgptr"}: true}

// has breaks the rule off for a packet without such a header: nft does not print the condition that it makes for it.
func (b *builder) has(protocol string) {
	if need, ok := headers[protocol]; ok {
		b.add(op.Conditions([]op.Cond{need}, ""))
	}
}

// finds breaks the rule off for a packet that does not have the value, or for which a map has none: whatever becomes of
// the value, the kernel reads it first (nft_lookup_eval in net/netfilter/nft_lookup.c, nft_objref_map_eval in
// nft_objref.c). It is false for one that is not understood.
func (b *builder) finds(value syntax.Expr) bool {
	if isConstant(value) {
		return true
	}
	if parts, ok := value.(syntax.Concat); ok {
		for _, x := range parts {
			if !b.finds(x) {
				return false
			}
		}
		return true
	}
	x, ok := b.expr(value)
	if !ok {
		return false
	}
	if x.from != nil && len(x.from.key) == 1 && x.from.key[0].draw != nil {
		return x.from.hasAllDraws()
	}
	if x.from != nil && x.need == nil { // of several fields
		return false
	}
	if x.need != nil {
		b.add(op.Conditions([]op.Cond{x.need}, dependsOn([]*expr{x})))
	}
	return true
}

// isConstant tells whether the kernel finds an expression in the rule itself.
func isConstant(e syntax.Expr) bool {
	switch e := e.(type) {
	case syntax.String, syntax.Number, syntax.Addr, syntax.Bool, syntax.List, *syntax.Prefix:
		return true
	case *syntax.Range:
		return isConstant(e.From) && isConstant(e.To)
	case *syntax.Binary:
		for _, x := range e.Operands {
			if !isConstant(x) {
				return false
			}
		}
		return true
	}
	return false
}

// hasAllDraws tells whether a map has something for each number that may be drawn.
func (l *lookup) hasAllDraws() bool {
	d := l.key[0].draw
	if d.mod > maxDrawn {
		return false
	}
	for i := range d.mod {
		if _, t := l.in.find([]value{knownNumber(d.first + i)}); t != op.Yes {
			return false
		}
	}
	return true
}

// mangle sets a field.
func (b *builder) mangle(m *syntax.Mangle) bool {
	var kind, field string
	switch key := m.Key.(type) {
	case *syntax.Payload:
		kind, field = "payload", key.Field
		b.has(key.Protocol)
		if m.Value == syntax.Number(0) && mayBeZero[headerField{key.Protocol, key.Field}] {
			return true
		}
	case *syntax.Meta:
		kind, field = "meta", key.Key
	case *syntax.CT:
		kind, field = "ct", key.Key
	case *syntax.Header:
		return b.finds(m.Value) && b.setOption(key, m.Value)
	}
	if kind != "payload" && field == "mark" {
		return b.setMark(m.Value, kind == "ct")
	}
	if !b.finds(m.Value) {
		return false
	}
	switch {
	case kind == "ct" && field == "zone":
		b.acted = true
		b.add(zoneOf(m))
		return true
	case harmless[kind+" "+field]:
		return true
	case kind == "meta" && field == "pkttype":
		return b.setPacketType(m.Value)
	case kind == "payload" && field == "checksum":
		b.add(op.OpaqueTarget("it sets a checksum, and the receiver refuses packets whose sum is wrong"))
		return true
	case kind == "payload" && field == "dscp":
		b.acted = true
		if lo, hi, ok := typeDSCP.constant(m.Value); ok && lo == hi {
			b.add(op.SetTOS(uint8(lo.lo<<2), 0xfc)) //nolint:gosec // it has 6 bits
			return true
		}
		b.add(op.ChangeTOS)
		return true
	case kind == "payload" && (field == "ttl" || field == "hoplimit"):
		n, isNumber := m.Value.(syntax.Number)
		if !isNumber || n < op.EnoughHops || n > math.MaxUint8 {
			return false
		}
		b.acted = true
		b.add(op.SetHops(uint8(n)))
		return true
	}
	return false
}

// setOption sets a field of a TCP option. The size of segments is only ever made smaller; a wrong time stamp makes the
// other end refuse the packet (nft_exthdr_tcp_set_eval in net/netfilter/nft_exthdr.c, tcp_paws_reject in
// include/net/tcp.h).
func (b *builder) setOption(h *syntax.Header, value syntax.Expr) bool {
	if h.Kind != "tcp option" {
		return false
	}
	b.has("tcp")
	b.acted = true
	if h.Name == "maxseg" && h.Field == "size" {
		if n, ok := value.(syntax.Number); ok && n > 0 && n <= math.MaxUint16 {
			b.add(op.ClampTo(uint16(n)))
		} else {
			b.add(op.Clamp)
		}
		return true
	}
	b.add(op.OpaqueTarget("it changes a TCP option, and the other end may refuse the packet: " + h.Name))
	return true
}

// mayGo are TCP options without which a connection works, whichever of its packets lack them (tcp_parse_options in
// net/ipv4/tcp_input.c). The window's scale is not: an end that does not see that the other one has answered with it
// takes the windows for much smaller than they are.
var mayGo = map[string]bool{
	"eol": true, "nop": true, "maxseg": true, "sack-perm": true, "sack-permitted": true, "sack": true, "sack0": true,
	"sack1": true, "sack2": true, "sack3": true, "timestamp": true,
}

// reset takes a TCP option out, and breaks the rule off for other protocols (nft_exthdr_tcp_strip_eval in
// net/netfilter/nft_exthdr.c).
func (b *builder) reset(r *syntax.Reset) bool {
	h, ok := r.Option.(*syntax.Header)
	if !ok || h.Kind != "tcp option" {
		return false
	}
	b.has("tcp")
	if !mayGo[h.Name] {
		b.add(op.OpaqueTarget("it takes a TCP option out, without which data may get lost: " + h.Name))
	}
	return true
}

// resets is of an option that is not known.
func resets(b *builder) {
	b.has("tcp")
	b.add(op.OpaqueTarget("it takes a TCP option out, without which data may get lost"))
}

// setPacketType sets whom the link-layer address is of. What is for the node's own goes on; what is not the kernel
// drops behind the hook (ip_rcv_core in net/ipv4/ip_input.c, ip6_rcv_core in net/ipv6/ip6_input.c, arp_rcv in
// net/ipv4/arp.c), but where a bridge or another device takes it, which may set it anew.
func (b *builder) setPacketType(v syntax.Expr) bool {
	lo, hi, ok := typePktType.constant(v)
	if ok && lo == hi && lo == (word{}) {
		return true
	}
	b.acted = true
	b.add(op.OpaqueTarget("it marks the packet as one for others, which the node may drop (meta pkttype set)"))
	return true
}

// setMark sets the mark of the packet, or of its connection.
func (b *builder) setMark(v syntax.Expr, ct bool) bool {
	x, ok := b.operand(v, typeMark)
	if !ok || x.draw != nil || x.from != nil && len(x.from.key) == 1 && x.from.key[0].draw != nil {
		return false
	}
	b.acted = true
	b.add(&setMark{expr: x, ct: ct})
	return true
}

type setMark struct {
	*expr
	ct bool
}

// Run implements [netfilter.Op].
func (s *setMark) Run(c *netfilter.Context) netfilter.Effect {
	vals, t := values(c, []*expr{s.expr}, nil)
	switch {
	case t == op.No:
		return breakOff
	case t == op.Maybe || !vals[0].exact():
		why := "it sets the mark to an unknown value: " + dependsOn([]*expr{s.expr})
		return netfilter.Effect{Kind: netfilter.Opaque, Why: why}
	}
	mark := uint32(vals[0].lo) //nolint:gosec // marks have 32 bits; the kernel cuts off the rest, too
	if !s.ct {
		c.Packet.Mark = mark
		return netfilter.Effect{}
	}
	switch hasConnection(c) {
	case op.Yes:
		c.Packet.CTMark = mark
	case op.Maybe:
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "whether the packet has a connection to mark is not known"}
	case op.No: // nft_ct_set_eval does nothing
	}
	return netfilter.Effect{}
}
