// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// expr is a compiled expression of a rule.
type expr struct {
	field
	fixed *span   // a constant
	draw  *drawn  // a number that is drawn
	from  *lookup // a value that is looked up in a map
}

// drawn is a number that chance, or a hash of the packet, chooses: from first on, mod of them, each as likely as any
// other. numgen inc counts through them, so that each has its share over many connections, and so has each value of a
// hash over many clients.
type drawn struct {
	first, mod uint64
	hash       bool // the same packet draws the same number again
}

// builder turns the expressions and statements of one rule into ops.
type builder struct {
	*scope
	rule   *netfilter.Rule
	ops    []netfilter.Op
	acted  bool               // a statement before this place changes something: what comes behind is not asked sooner
	before []syntax.Statement // the statements before the one in progress
	apart  bool               // it has what no rule of iptables has: a set, or a range of what are not ports
}

// exprs compiles an expression, or a concatenation of several.
func (b *builder) exprs(e syntax.Expr) ([]*expr, bool) {
	if parts, ok := e.(syntax.Concat); ok {
		out := make([]*expr, 0, len(parts))
		for _, p := range parts {
			x, ok := b.expr(p)
			if !ok {
				return nil, false
			}
			out = append(out, x)
		}
		return out, 0 < len(out) && len(out) <= maxFields
	}
	x, ok := b.expr(e)
	return []*expr{x}, ok
}

// expr compiles an expression; false for one that is not understood.
func (b *builder) expr(e syntax.Expr) (*expr, bool) {
	switch e := e.(type) {
	case *syntax.Payload:
		return payload(e)
	case *syntax.RawPayload:
		return &expr{field: unknown("the packet's bytes")}, true
	case *syntax.Meta:
		f, ok := metas[e.Key]
		return &expr{field: f}, ok
	case *syntax.CT:
		return ctKey(e)
	case *syntax.Fib:
		return fib(e)
	case *syntax.Numgen:
		d, ok := drawnOf(e.Mod, e.Offset)
		ok = ok && (e.Mode == "random" || e.Mode == "inc")
		return &expr{field: field{typ: typeInteger, get: blank, depends: "chance"}, draw: d}, ok
	case *syntax.Hash:
		return hash(e)
	case *syntax.Map:
		return b.mapped(e, nil)
	case *syntax.Binary:
		return b.binary(e)
	case *syntax.Header:
		return header(e)
	case *syntax.Socket:
		return notKnown("socket")
	case *syntax.Route:
		return notKnown("rt")
	case *syntax.Opaque:
		return notKnown(e.Name)
	}
	return nil, false
}

// operand compiles an expression, or a constant of a type.
func (b *builder) operand(e syntax.Expr, t *datatype) (*expr, bool) {
	if m, isMap := e.(*syntax.Map); isMap {
		return b.mapped(m, t)
	}
	if x, ok := b.expr(e); ok {
		return x, true
	}
	lo, hi, ok := t.constant(e)
	get := func(*netfilter.Context) value { return known(lo) }
	return &expr{field: field{typ: t, get: get}, fixed: &span{lo, hi}}, ok && lo == hi
}

func payload(p *syntax.Payload) (*expr, bool) {
	if f, ok := payloads[headerField{p.Protocol, p.Field}]; ok {
		return &expr{field: f}, true
	}
	need, ok := headers[p.Protocol]
	if !ok {
		return nil, false
	}
	f := unknown("the packet's " + p.Protocol + " " + p.Field)
	f.need = need
	return &expr{field: f}, true
}

func ctKey(ct *syntax.CT) (*expr, bool) {
	if f, ok := cts[connectionKey{ct.Key, ct.Dir}]; ok {
		return &expr{field: f}, true
	}
	depends, ok := ctKeys[ct.Key]
	f := unknown(depends)
	f.need = hasConnection
	return &expr{field: f}, ok
}

// headerConds are the conditions for a packet to have a header or an option at all.
var headerConds = map[string]op.Cond{
	"exthdr": isFamily(netfilter.IPv6), "ip option": isFamily(netfilter.IPv4),
}

// header is a header or option that the first packet of a connection does not have: whether it is there can be asked
// for, but none of its fields (nft_exthdr.c).
func header(h *syntax.Header) (*expr, bool) {
	if h.Kind == "tcp option" && h.Name == "maxseg" && h.Field == "size" {
		return &expr{field: needs(op.HasMSS, between(16, "the TCP options", op.MSS))}, true
	}
	need, ok := headerConds[h.Kind]
	if !ok {
		return notKnown(h.Kind)
	}
	f := needs(need, always(typeBool, 0))
	if h.Field != "" {
		f.need = op.NoPacket
		f.typ = typeOther
	}
	return &expr{field: f}, h.Name != ""
}

// notKnowns are the expressions of whose value nothing is known.
var notKnowns = map[string]field{
	"tcp option":  needs(isProto(netfilter.TCP), unknown("the TCP options")),
	"sctp chunk":  needs(isProto(netfilter.SCTP), unknown("the SCTP chunks")),
	"dccp option": needs(isProto(netfilter.DCCP), unknown("the DCCP options")),
	"socket":      needs(op.MayHaveSocket, unknown("the node's sockets")), // without one: NFT_BREAK (nft_socket_eval)
	"osf":         needs(isProto(netfilter.TCP), unknown("the TCP options")),
	"rt":          unknown("the packet's route"),
	"ipsec":       unknown("IPsec policies"),
	"tunnel":      unknown("tunnels"),
}

func notKnown(kind string) (*expr, bool) {
	f, ok := notKnowns[kind]
	return &expr{field: f}, ok
}

// bitwise are the operations on two values.
var bitwise = map[string]func(a, b value) value{"&": value.bitAnd, "|": value.bitOr, "^": value.bitXor}

// binary is a bitwise operation on two operands, or on more, from the left.
func (b *builder) binary(e *syntax.Binary) (*expr, bool) {
	if len(e.Operands) < 2 { //nolint:mnd // it has two sides
		return nil, false
	}
	x, ok := b.expr(e.Operands[0])
	if !ok || x.draw != nil {
		return nil, false
	}
	do := bitwise[e.Op]
	if do == nil {
		return x.shiftedBy(e)
	}
	for _, v := range e.Operands[1:] {
		left := *x
		y, ok := b.operand(v, left.typ)
		if !ok || y.draw != nil {
			return nil, false
		}
		x = &expr{field: field{
			typ: left.typ, need: together(left.need, y.need), depends: left.depends + y.depends,
			get: func(c *netfilter.Context) value { return do(left.get(c), y.get(c)) },
		}}
	}
	return x, true
}

func together(a, b op.Cond) op.Cond {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(c *netfilter.Context) op.Truth { return both(a(c), b(c)) }
}

// shiftedBy is << or >> of an expression by a number.
func (x *expr) shiftedBy(e *syntax.Binary) (*expr, bool) {
	sign := map[string]int{"<<": 1, ">>": -1}[e.Op]
	by, isNumber := e.Operands[1].(syntax.Number)
	if sign == 0 || len(e.Operands) != 2 || !isNumber || x.typ.bits > 64 || by < 0 || by > 64 {
		return nil, false
	}
	y := *x
	y.index, y.bounds = noIndex, nil
	y.get = func(c *netfilter.Context) value { return x.get(c).shifted(sign*int(by), x.typ.bits) }
	return &y, true
}

// fib looks up an address of the packet in the routing tables (net/ipv4/netfilter/nft_fib_ipv4.c,
// net/ipv6/netfilter/nft_fib_ipv6.c).
func fib(e *syntax.Fib) (*expr, bool) {
	flags := map[string]bool{}
	for _, flag := range e.Flags {
		flags[flag] = true
	}
	if flags["saddr"] == flags["daddr"] {
		return nil, false
	}
	depends := "the node's addresses and routes (ip-addr.json, ip-route.json, ip6-route.json)"
	switch e.Result {
	case "type":
		return &expr{field: field{typ: typeFibType, get: fibType(flags), depends: depends}}, true
	case "oif", "oifname", "check":
		return &expr{field: field{typ: typeFibIface, get: fibIface(flags), depends: depends}}, true
	}
	return nil, false
}

// fibIface is the interface of the route to an address of the packet, no name where there is no such route
// (nft_fib4_eval, nft_fib6_eval).
func fibIface(flags map[string]bool) func(c *netfilter.Context) value {
	return func(c *netfilter.Context) value {
		p := c.Packet
		if p.In == "lo" && c.Hook != netfilter.Forward {
			return value{word: nameWord(p.In, 0)}
		}
		dev := ""
		switch {
		case flags["oif"]:
			dev = p.Out
		case flags["iif"]:
			dev = p.In
		}
		q := op.RouteTo{Source: flags["saddr"], Mark: flags["mark"], In: "lo"}
		if flags["saddr"] && flags["iif"] && !flags["oif"] && c.Hook == netfilter.Forward {
			q.In = p.Out
		}
		devs, known := op.RouteDevs(c, q)
		switch {
		case !known || netfilter.IsUnknown(dev):
			return value{blur: ones}
		case dev != "" && slices.Contains(devs, dev):
			return value{word: nameWord(dev, 0)}
		case dev != "" || len(devs) == 0:
			return value{}
		}
		// Which one of several it is has no effect on bits that their names share.
		out := value{word: nameWord(devs[0], 0)}
		for _, d := range devs[1:] {
			out.blur = out.blur.or(nameWord(d, 0).xor(out.word))
		}
		out.word = out.and(out.blur.not())
		return out
	}
}

// The types of addresses.
const (
	fibUnicast = 2 << iota
	fibLocal
	fibBroadcast
	_
	fibMulticast
	fibBlackhole
	fibUnreachable
	fibProhibit
	fibAll = fibProhibit<<1 - 1
)

var fibTypes = map[host.RouteType]uint64{
	host.RouteUnicast: fibUnicast, host.RouteLocal: fibLocal, host.RouteBroadcast: fibBroadcast,
	host.RouteMulticast: fibMulticast,
	host.RouteBlackhole: fibBlackhole, host.RouteUnreachable: fibUnreachable, host.RouteNone: fibUnreachable,
	host.RouteProhibit: fibProhibit,
}

func fibType(flags map[string]bool) func(c *netfilter.Context) value {
	return func(c *netfilter.Context) value {
		a, dev := c.Packet.Dst, ""
		if flags["saddr"] {
			a = c.Packet.Src
		}
		switch {
		case flags["iif"]:
			dev = c.Packet.In
		case flags["oif"]:
			dev = c.Packet.Out
		}
		if !a.IsValid() {
			return value{blur: lowBits(32)}
		}
		switch op.LocalOn(c, a, dev) {
		case op.Yes:
			return knownNumber(fibLocal)
		case op.Maybe:
			return value{blur: lowBits(32)}
		case op.No:
		}
		t, ok := c.Host.AddrType(a)
		if a.Is6() && !a.IsMulticast() { // the kernel looks up the route, which has several refusing types
			r, known, _ := c.Host.Route(a)
			t, ok = r.Type, known
		}
		switch {
		case !ok:
			return value{blur: number(fibAll &^ fibLocal)}
		case t == host.RouteLocal: // on another interface
			t = host.RouteUnicast
		}
		return knownNumber(fibTypes[t])
	}
}

// hash is jhash or symhash. Which value a packet has the snapshot does not tell.
func hash(e *syntax.Hash) (*expr, bool) {
	d, ok := drawnOf(e.Mod, e.Offset)
	if ok {
		d.hash = true
	}
	return &expr{field: field{typ: typeInteger, get: blank, depends: "a hash of the packet"}, draw: d}, ok
}

func drawnOf(mod, offset float64) (*drawn, bool) {
	if mod < 1 || offset < 0 {
		return nil, false
	}
	return &drawn{first: uint64(offset), mod: uint64(mod)}, true
}

// lookup is a value that a map gives for a key.
type lookup struct {
	key []*expr
	in  *set
}

// lookup compiles a look-up in a map; typ is the type of what the map gives, where its form does not tell; nil: not
// known.
func (b *builder) lookup(m *syntax.Map, typ *datatype) (*lookup, bool) {
	key, ok := b.exprs(m.Key)
	if !ok {
		return nil, false
	}
	l := &lookup{key: key}
	b.apart = true
	switch data := m.Data.(type) {
	case syntax.String:
		name, isName := strings.CutPrefix(string(data), "@")
		if l.in = b.sets[name]; !isName || l.in == nil {
			return nil, false
		}
	case syntax.AnonymousSet:
		types := []*datatype{typeVerdict}
		if typ != typeVerdict {
			types = dataTypes(data, typ)
		}
		l.in = b.anonymous(key, types, data)
	default:
		return nil, false
	}
	return l, l.in.isVerdictMap() == (typ == typeVerdict) && (l.in.unread != "" || len(l.in.fields) == len(key)) &&
		b.runs(l)
}

// dataTypes tells the types of what an anonymous map gives, from its first element: nothing names them. typ is that of
// one whose form does not tell.
func dataTypes(elements []syntax.Element, typ *datatype) []*datatype {
	if len(elements) == 0 || elements[0].Value == nil {
		return []*datatype{typeOther}
	}
	var one [1]syntax.Expr
	parts := fieldsOf(elements[0].Value, &one)
	out := make([]*datatype, len(parts))
	for i, p := range parts {
		out[i] = guess(p)
	}
	if len(out) == 1 && out[0] == typeOther && typ != nil {
		out[0] = typ
	}
	return out
}

// guess tells the type of a constant from its form.
func guess(e syntax.Expr) *datatype {
	for {
		switch inner := e.(type) {
		case *syntax.Range:
			e = inner.From
			continue
		case *syntax.Prefix:
			e = inner.Addr
			continue
		}
		break
	}
	switch e := e.(type) {
	case syntax.Number:
		return typeInteger
	case syntax.Addr:
		if e.Is4() {
			return typeIPv4
		}
		return typeIPv6
	case syntax.String:
		for _, t := range []*datatype{typeIPv4, typeIPv6} {
			if _, _, ok := t.read(string(e)); ok {
				return t
			}
		}
	}
	return typeOther
}

// mapped is the value that a map gives. As an expression of its own it is known where its key is, and gives one field;
// typ is as for lookup.
func (b *builder) mapped(m *syntax.Map, typ *datatype) (*expr, bool) {
	l, ok := b.lookup(m, typ)
	if !ok || len(l.in.data) == 0 {
		return nil, false
	}
	x := &expr{from: l, field: field{typ: l.in.data[0], depends: "what a map has for the packet"}}
	if len(l.key) == 1 && l.key[0].draw != nil || len(l.in.data) != 1 {
		x.get = blank
		return x, true
	}
	x.need = func(c *netfilter.Context) op.Truth {
		t, _ := l.find(c)
		return t
	}
	x.get = func(c *netfilter.Context) value {
		if t, e := l.find(c); t == op.Yes && e.data[0].lo == e.data[0].hi {
			return known(e.data[0].lo)
		}
		return value{blur: lowBits(x.typ.bits)}
	}
	return x, true
}

// find looks up the key of the packet; No also where the packet has no such key.
func (l *lookup) find(c *netfilter.Context) (op.Truth, *element) {
	var buf [maxFields]value
	key, t := values(c, l.key, buf[:0])
	if t == op.No {
		return t, nil
	}
	c.Work += l.in.cost(key)
	if op.Changed(c.Packet, l.in.list) {
		return op.Maybe, nil
	}
	e, found := l.in.find(key)
	return both(t, found), e
}

// values asks expressions for their values; No where the packet does not have one of them, and the kernel breaks the
// rule off.
func values(c *netfilter.Context, xs []*expr, buf []value) ([]value, op.Truth) {
	t := op.Yes
	for _, x := range xs {
		if x.need != nil {
			if t = both(t, x.need(c)); t == op.No {
				return nil, op.No
			}
		}
		buf = append(buf, x.get(c))
	}
	return buf, t
}

// depends says on what a value that is not known depends.
func depends(xs []*expr) string {
	for _, x := range xs {
		if x.depends != "" {
			return x.depends
		}
	}
	return ""
}
