// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// expr is an expression of a rule, ready to be asked for its value.
type expr struct {
	field
	fixed *span   // a constant
	draw  *drawn  // a number that is drawn
	from  *lookup // a value that is looked up in a map
}

// drawn is a number that chance, or a hash of the packet, chooses: from first on, mod of them, each as likely as any other.
// numgen inc counts through them, so that each has its share over many connections, and so has each value of a hash over many
// clients.
type drawn struct {
	first, mod uint64
	hash       bool // the same packet draws the same number again
}

// builder turns the expressions and statements of one rule into ops.
type builder struct {
	*scope
	rule  *netfilter.Rule
	ops   []netfilter.Op
	acted bool // a statement before this place changes something: what comes behind must not be looked at sooner

	tellsFamily bool // something of the rule is for packets of one IP family, as far as nft prints it
}

// expressions are all that are known, by what JSON calls them (libnftables-json(5), EXPRESSIONS). A reader returns false for
// arguments that it does not understand.
var expressions map[string]func(b *builder, arg any) (*expr, bool)

func init() { //nolint:gochecknoinits // expressions contain expressions: a table of functions that use the table
	expressions = map[string]func(b *builder, arg any) (*expr, bool){
		"payload":     payload,
		"meta":        meta,
		"ct":          ctKey,
		"fib":         fib,
		"numgen":      numgen,
		"jhash":       hash,
		"symhash":     hash,
		"map":         mapped,
		"&":           calculated(value.bitAnd),
		"|":           calculated(value.bitOr),
		"^":           calculated(value.bitXor),
		"<<":          shifted(1),
		">>":          shifted(-1),
		"exthdr":      header(isFamily(netfilter.IPv6), "name"),
		"ip option":   header(isFamily(netfilter.IPv4), "name"),
		"tcp option":  notKnown(isProto(netfilter.TCP), "the TCP options"),
		"sctp chunk":  notKnown(isProto(netfilter.SCTP), "the SCTP chunks"),
		"dccp option": notKnown(isProto(netfilter.DCCP), "the DCCP options"),
		"socket":      notKnown(nil, "the node's sockets"),
		"osf":         notKnown(isProto(netfilter.TCP), "the TCP options"),
		"rt":          notKnown(nil, "the packet's route"),
		"ipsec":       notKnown(nil, "IPsec policies"),
		"tunnel":      notKnown(nil, "tunnels"),
	}
}

// exprs reads an expression, or a concatenation of several.
func (b *builder) exprs(v any) ([]*expr, bool) {
	if key, arg, ok := one(v); ok && key == "concat" {
		parts, _ := arg.([]any)
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
	x, ok := b.expr(v)
	return []*expr{x}, ok
}

func (b *builder) expr(v any) (*expr, bool) {
	key, arg, ok := one(v)
	read := expressions[key]
	if !ok || read == nil {
		return nil, false
	}
	return read(b, arg)
}

// operand reads an expression, or a constant of a type.
func (b *builder) operand(v any, t *datatype) (*expr, bool) {
	if x, ok := b.expr(v); ok {
		return x, true
	}
	lo, hi, ok := t.constant(v)
	return &expr{field: field{typ: t, get: func(*netfilter.Context) value { return known(lo) }}, fixed: &span{lo, hi}}, ok && lo == hi
}

func payload(_ *builder, arg any) (*expr, bool) {
	protocol, name := words(arg, "protocol"), words(arg, "field")
	if f, ok := payloads[protocol+" "+name]; ok {
		return &expr{field: f}, true
	}
	if need, ok := headers[protocol]; ok && name != "" {
		f := unknown("the packet's " + protocol + " " + name)
		f.need = need
		return &expr{field: f}, true
	}
	if words(arg, "base") != "" {
		return &expr{field: unknown("the packet's bytes")}, true
	}
	return nil, false
}

func meta(_ *builder, arg any) (*expr, bool) {
	f, ok := metas[words(arg, "key")]
	return &expr{field: f}, ok
}

func ctKey(_ *builder, arg any) (*expr, bool) {
	key, dir := words(arg, "key"), words(arg, "dir")
	if f, ok := cts[strings.TrimSpace(dir+" "+key)]; ok {
		return &expr{field: f}, true
	}
	depends, ok := ctKeys[key]
	f := unknown(depends)
	f.need = hasConnection
	return &expr{field: f}, ok
}

// header is a header or option that the first packet of a connection does not have: whether it is there can be asked for, but
// none of its fields (nft_exthdr.c).
func header(need op.Cond, name string) func(b *builder, arg any) (*expr, bool) {
	return func(_ *builder, arg any) (*expr, bool) {
		f := needs(need, always(typeBool, 0))
		if words(arg, "field") != "" {
			f.need = op.Nobody
			f.typ = typeOther
		}
		return &expr{field: f}, words(arg, name) != ""
	}
}

func notKnown(need op.Cond, depends string) func(b *builder, arg any) (*expr, bool) {
	return func(*builder, any) (*expr, bool) {
		f := unknown(depends)
		f.need = need
		return &expr{field: f}, true
	}
}

// calculated is a bitwise operation on two operands, or on more, from the left.
func calculated(do func(a, b value) value) func(b *builder, arg any) (*expr, bool) {
	return func(b *builder, arg any) (*expr, bool) {
		list, _ := arg.([]any)
		if len(list) < 2 {
			return nil, false
		}
		x, ok := b.expr(list[0])
		if !ok || x.draw != nil {
			return nil, false
		}
		for _, v := range list[1:] {
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

func shifted(sign int) func(b *builder, arg any) (*expr, bool) {
	return func(b *builder, arg any) (*expr, bool) {
		list, _ := arg.([]any)
		if len(list) != 2 {
			return nil, false
		}
		x, ok := b.expr(list[0])
		by, isNumber := list[1].(float64)
		if !ok || !isNumber || x.draw != nil || x.typ.bits > 64 || by < 0 || by > 64 {
			return nil, false
		}
		y := *x
		y.index = noIndex
		y.get = func(c *netfilter.Context) value { return x.get(c).shifted(sign*int(by), x.typ.bits) }
		return &y, true
	}
}

// fib asks the routing tables about an address of the packet (net/ipv4/netfilter/nft_fib_ipv4.c, net/ipv6/netfilter/nft_fib_ipv6.c).
func fib(_ *builder, arg any) (*expr, bool) {
	flags := map[string]bool{}
	switch f := member(arg, "flags").(type) {
	case string:
		flags[f] = true
	case []any:
		for _, x := range f {
			s, _ := x.(string)
			flags[s] = true
		}
	}
	if flags["saddr"] == flags["daddr"] {
		return nil, false
	}
	depends := "the node's routes"
	switch words(arg, "result") {
	case "type":
		return &expr{field: field{typ: typeFibType, get: fibType(flags), depends: depends}}, true
	case "oif", "oifname", "check":
		f := field{typ: typeBool, depends: depends, get: func(*netfilter.Context) value { return value{blur: number(1)} }}
		if flags["saddr"] && !flags["mark"] && !flags["oif"] {
			f.get = routeBack(!flags["iif"])
		}
		if words(arg, "result") == "oifname" {
			f = field{typ: typeIfname, get: blank, depends: depends}
		}
		return &expr{field: f}, true
	}
	return nil, false
}

// routeBack is what rpfilter asks; a mark may choose another table, and makes the route unknown by itself.
func routeBack(loose bool) func(c *netfilter.Context) value {
	return func(c *netfilter.Context) value {
		switch op.RouteBack(c, loose, false) {
		case op.Yes:
			return knownNumber(1)
		case op.No:
			return knownNumber(0)
		case op.Maybe:
		}
		return value{blur: number(1)}
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
	host.RouteUnicast: fibUnicast, host.RouteLocal: fibLocal, host.RouteBroadcast: fibBroadcast, host.RouteMulticast: fibMulticast,
	host.RouteBlackhole: fibBlackhole, host.RouteUnreachable: fibUnreachable, host.RouteNone: fibUnreachable, host.RouteProhibit: fibProhibit,
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
		if a.Is6() && !a.IsMulticast() { // the kernel asks the route, which may refuse in several ways
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

func numgen(_ *builder, arg any) (*expr, bool) {
	d, ok := drawnOf(arg)
	mode := words(arg, "mode")
	return &expr{field: field{typ: typeInteger, get: blank, depends: "chance"}, draw: d}, ok && (mode == "random" || mode == "inc")
}

// hash is jhash or symhash. Which value a packet has the snapshot does not tell.
func hash(_ *builder, arg any) (*expr, bool) {
	d, ok := drawnOf(arg)
	if ok {
		d.hash = true
	}
	return &expr{field: field{typ: typeInteger, get: blank, depends: "a hash of the packet"}, draw: d}, ok
}

func drawnOf(arg any) (*drawn, bool) {
	mod, ok := member(arg, "mod").(float64)
	offset, has := member(arg, "offset").(float64)
	if !ok || mod < 1 || member(arg, "offset") != nil && !has || offset < 0 {
		return nil, false
	}
	return &drawn{first: uint64(offset), mod: uint64(mod)}, true
}

// lookup is a value that a map gives for a key.
type lookup struct {
	key []*expr
	in  *set
}

// lookup reads {"key": …, "data": …}.
func (b *builder) lookup(arg any, verdict bool) (*lookup, bool) {
	key, ok := b.exprs(member(arg, "key"))
	if !ok {
		return nil, false
	}
	l := &lookup{key: key}
	switch data := member(arg, "data").(type) {
	case string:
		name, isName := strings.CutPrefix(data, "@")
		if l.in = b.sets[name]; !isName || l.in == nil {
			return nil, false
		}
	default:
		kind, list, ok := one(data)
		elements, isList := list.([]any)
		if !ok || kind != "set" || !isList {
			return nil, false
		}
		types := []*datatype{typeVerdict}
		if !verdict {
			types = b.dataTypes(elements)
		}
		l.in = b.anonymous(key, types, elements)
	}
	return l, l.in.isVerdictMap() == verdict && (l.in.unread != "" || len(l.in.fields) == len(key))
}

// dataTypes tells the types of what an anonymous map gives, from its first element: JSON does not name them.
func (b *builder) dataTypes(elements []any) []*datatype {
	if len(elements) == 0 {
		return []*datatype{typeOther}
	}
	pair, _ := elements[0].([]any)
	if len(pair) != 2 {
		return []*datatype{typeOther}
	}
	parts := []any{pair[1]}
	if key, arg, ok := one(pair[1]); ok && key == "concat" {
		parts, _ = arg.([]any)
	}
	out := make([]*datatype, len(parts))
	for i, p := range parts {
		out[i] = guess(p)
	}
	return out
}

// guess tells the type of a constant from what it looks like.
func guess(v any) *datatype {
	for {
		key, arg, ok := one(v)
		if !ok || key != "range" && key != "prefix" {
			break
		}
		switch a := arg.(type) {
		case []any:
			if len(a) == 0 {
				return typeOther
			}
			v = a[0]
		default:
			v = member(arg, "addr")
		}
	}
	switch v := v.(type) {
	case float64:
		return typeInteger
	case string:
		for _, t := range []*datatype{typeIPv4, typeIPv6} {
			if _, _, ok := t.read(v); ok {
				return t
			}
		}
	}
	return typeOther
}

// mapped is the value that a map gives. As an expression of its own it is known where its key is, and gives one field.
func mapped(b *builder, arg any) (*expr, bool) {
	l, ok := b.lookup(arg, false)
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

// find looks the packet up; No also where the packet has no such key.
func (l *lookup) find(c *netfilter.Context) (op.Truth, *element) {
	var buf [maxFields]value
	key, t := values(c, l.key, buf[:0])
	if t == op.No {
		return t, nil
	}
	c.Work += l.in.cost(key)
	e, found := l.in.find(key)
	return both(t, found), e
}

// values asks expressions for their values; No where the packet does not have one of them, and the kernel breaks the rule off.
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
