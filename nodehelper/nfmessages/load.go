// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"bytes"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// wireExpressions are the expressions of the kernel that are known, by name (net/netfilter/nft_*.c). One that is not
// among them makes a statement that is not understood.
var wireExpressions map[string]expression

// expression is how an expression is read, and the attributes that it may have (enum nft_…_attributes): those that are
// read, and those that change nothing about which packets the rule is for, and where it sends them.
type expression struct {
	read  reads
	known known
}

func init() { //nolint:gochecknoinits // a statement may hold others: a table of functions that use the table
	wireExpressions = map[string]expression{
		"payload": {loadPayload, upTo(8)}, // how checksums are updated: 6 to 8
		"exthdr":  {loadHeader, upTo(7)},
		"meta":    {loadMeta, upTo(3)},
		"ct":      {loadCT, upTo(4)},
		"rt":      {loadRoute, upTo(2)},
		"socket":  {loadSocket, upTo(3)},
		"fib":     {loadFib, upTo(3)},
		"numgen":  {loadNumgen, upTo(4)},
		"hash":    {loadHash, upTo(7)},
		"osf":     {loadOther("osf", 1), upTo(3)},
		"xfrm":    {loadOther("ipsec", 1), upTo(4)},
		"tunnel":  {loadOther("tunnel", 2), upTo(3)},

		"immediate": {loadConstant, upTo(2)},
		"bitwise":   {bitwise, upTo(8)},
		"byteorder": {byteOrder, upTo(5)},
		"lookup":    {lookUp, upTo(5)},
		"cmp":       {compare, upTo(3)},
		"range":     {compareRange, upTo(4)},

		"nat":      {wireNAT, upTo(7)},
		"masq":     {wireMasquerade, upTo(3)},
		"redir":    {wireRedirect, upTo(3)},
		"tproxy":   {wireTProxy, upTo(3)},
		"synproxy": {simple("synproxy"), upTo(3)},
		"reject":   {wireReject, upTo(2)},
		"log":      {wireLog, upTo(6)},
		"counter":  {wireCounter, upTo(3)},
		"last":     {simple("last"), upTo(3)},
		"limit":    {wireLimit, upTo(6)},
		"quota":    {wireQuota, upTo(4)},

		"connlimit":    {wireConnlimit, upTo(2)},
		"notrack":      {simple("notrack"), 0},
		"queue":        {wireQueue, upTo(4)},
		"dup":          {wireDup, upTo(2)},
		"fwd":          {wireFwd, upTo(3)},
		"flow_offload": {wireFlow, upTo(1)},
		"objref":       {wireObject, upTo(5)},
		"dynset":       {wireDynset, upTo(10)},
		"match":        {wireXT("match"), upTo(3)},
		"target":       {wireXT("target"), upTo(3)},
	}
}

// load puts a field into a register, as it is.
func (m *machine) load(reg uint64, f wireField, size int) *loaded {
	v := &loaded{expr: f.expr, types: f.typ.alone()}
	if size == 0 {
		size = max(f.typ.size, registerBytes)
	}
	m.regs.set(reg, v, size)
	return v
}

// stored is what a register holds that a statement writes somewhere, as a constant of a type, or as an expression.
func (m *machine) stored(reg uint64, t *wireType) syntax.Expr {
	s := m.regs.get(reg)
	switch {
	case s.loaded == nil:
		return notUnderstood("an unknown register")
	case s.bytes != nil && t.bitmask:
		return t.flags(bigNumber(t.inOrder(m.dump, s.bytes, false)), "")
	case s.bytes != nil:
		return t.constant(m.dump, t.inOrder(m.dump, s.bytes[min(s.at, len(s.bytes)):], false))
	case s.at > 0:
		return notUnderstood("a part of a value")
	}
	return m.whole(s.loaded)
}

func mangled(key, value syntax.Expr) syntax.Statement {
	return &syntax.Mangle{Key: key, Value: value}
}

// loadPayload reads bytes of a header, or writes them (nft_payload.c).
func loadPayload(m *machine, a *attrs) error {
	const dreg, base, offset, length, sreg = 1, 2, 3, 4, 5
	if n := a.size(length); n == 0 || n > len(m.regs)*registerBytes {
		m.unknown("payload")
		return nil
	}
	h := m.header(a.num(base), a.size(offset), a.size(length))
	if a[sreg] == nil {
		m.regs.set(a.num(dreg), h, h.header.len)
		return nil
	}
	s := m.regs.get(a.num(sreg))
	if s.loaded != nil && s.at == 0 && s.of != nil && s.mask != nil && s.of.header != nil && *s.of.header == *h.header {
		if f, shift, value := rewritten(s.loaded); f != nil {
			m.uses(h.header)
			m.add(mangled(f.expr, f.typ.constant(m.dump, shiftedRight(value, shift))))
			return nil
		}
	}
	t := h.typ()
	value := m.stored(a.num(sreg), t)
	if s.loaded != nil && s.bytes != nil && t == wireInteger {
		value = t.constant(m.dump, s.bytes[:min(len(s.bytes), h.header.len)])
	}
	m.add(mangled(m.whole(h), value))
	return nil
}

// rewritten is the field of which all bits are written anew, while the bits around it stay: kept by a mask, set by an
// xor, unless all are 0.
func rewritten(v *loaded) (f *wireField, shift int, value []byte) {
	keeps, xor := loaded{of: v.of, mask: slices.Clone(v.mask)}, v.xor
	if xor == nil {
		xor = make([]byte, len(v.mask))
	}
	value = make([]byte, len(v.mask))
	for i := range v.mask {
		keeps.mask[i] = ^v.mask[i]
		value[i] = xor[i] & keeps.mask[i]
		if xor[i]&v.mask[i] != 0 {
			return nil, 0, nil
		}
	}
	f, shift = keeps.subfield()
	return f, shift, value
}

// loadMeta reads what is known of the packet beside its bytes, or writes it (nft_meta.c).
func loadMeta(m *machine, a *attrs) error {
	const dreg, key, sreg = 1, 2, 3
	f, ok := wireMetas[a.num(key)]
	if !ok {
		m.unknown("meta")
		return nil
	}
	if a[sreg] != nil {
		m.add(mangled(f.expr, m.stored(a.num(sreg), f.typ)))
		return nil
	}
	v := m.load(a.num(dreg), f, 0)
	v.context = map[uint64]context{
		metaProtocol: isNetworkProtocol, metaIIFType: isHardware, metaNFProto: isNetworkFamily,
		metaL4Proto: isTransportProtocol,
	}[a.num(key)]
	return nil
}

// The numbers of addresses and of ports of ct, which have a direction.
const (
	ctSrc = 8
	ctDst = 9
)

// loadCT reads the packet's connection, or writes to it (nft_ct.c).
func loadCT(m *machine, a *attrs) error {
	const dreg, key, direction, sreg = 1, 2, 3, 4
	n := a.num(key)
	f, ok := wireCTs[n]
	if !ok {
		m.unknown("ct")
		return nil
	}
	ct := *f.expr.(*syntax.CT)    // wireCTs has no others
	if n == ctSrc || n == ctDst { // an address of the table's family
		switch m.family {
		case "ip":
			f.typ, ct.Key = wireIPv4, "ip "+ct.Key
		case "ip6":
			f.typ, ct.Key = wireIPv6, "ip6 "+ct.Key
		}
		f.expr = &ct
	}
	if dir, has := a.number(direction); has && dir < 2 {
		ct.Dir = []string{"original", "reply"}[dir]
		f.expr = &ct
	}
	if a[sreg] != nil {
		m.add(mangled(f.expr, m.stored(a.num(sreg), f.typ)))
		return nil
	}
	m.load(a.num(dreg), f, 0)
	return nil
}

// loadKnown loads a field; where its key was not found, what has it is unknown.
func (m *machine) loadKnown(name string, dreg uint64, f wireField, ok bool) {
	if !ok {
		m.unknown(name)
		return
	}
	m.load(dreg, f, 0)
}

func loadRoute(m *machine, a *attrs) error {
	const dreg, key = 1, 2
	f, ok := wireRoutes[a.num(key)]
	m.loadKnown("rt", a.num(dreg), f, ok)
	return nil
}

func loadSocket(m *machine, a *attrs) error {
	const key, dreg = 1, 2
	f, ok := wireSockets[a.num(key)]
	m.loadKnown("socket", a.num(dreg), f, ok)
	return nil
}

// loadFib is a lookup in the routing tables (nft_fib.c).
func loadFib(m *machine, a *attrs) error {
	const dreg, result, flags = 1, 2, 3
	const present = 1 << 5
	results := []*wireType{1: wireIfindex, 2: wireIfname, 3: wireFibType}
	n, bits := a.num(result), a.num(flags)
	if n == 0 || n >= uint64(len(results)) || bits >= present<<1 {
		m.unknown("fib")
		return nil
	}
	t := results[n]
	if bits&present != 0 {
		t = wireBool
	}
	fib := &syntax.Fib{Result: []string{1: "oif", 2: "oifname", 3: "type"}[n]}
	for i, name := range []string{"saddr", "daddr", "mark", "iif", "oif"} {
		if bits>>i&1 == 1 {
			fib.Flags = append(fib.Flags, name)
		}
	}
	m.load(a.num(dreg), wireField{typ: t, expr: fib}, 0)
	return nil
}

// loadNumgen draws a number (nft_numgen.c).
func loadNumgen(m *machine, a *attrs) error {
	const dreg, modulus, mode, offset = 1, 2, 3, 4
	n := a.num(mode)
	if n > 1 {
		m.unknown("numgen")
		return nil
	}
	m.load(a.num(dreg), wireField{typ: wireHostInt, expr: &syntax.Numgen{
		Mode: []string{"inc", "random"}[n], Mod: float64(a.num(modulus)), Offset: float64(a.num(offset)),
	}}, registerBytes)
	return nil
}

// loadHash computes a hash of registers, or of the packet (nft_hash.c).
func loadHash(m *machine, a *attrs) error {
	const sreg, dreg, length, modulus, seed, offset, kind = 1, 2, 3, 4, 5, 6, 7
	h := &syntax.Hash{Name: "symhash", Mod: float64(a.num(modulus)), Offset: float64(a.num(offset))}
	switch a.num(kind) {
	case 0:
		h.Name = "jhash"
		h.Expr = m.hashed(a.num(sreg), a.size(length))
		h.Seed = float64(a.num(seed))
		h.Seeded = h.Seed != 0
	case 1:
	default:
		m.unknown("hash")
		return nil
	}
	m.load(a.num(dreg), wireField{typ: wireHostInt, expr: h}, registerBytes)
	return nil
}

// hashed is what so many bytes of registers hold, value by value.
func (m *machine) hashed(reg uint64, length int) syntax.Expr {
	at, ok := slotOf(reg)
	var lengths []int
	for n := 0; ok && n < length; {
		if at+n/registerBytes >= len(m.regs) || m.regs[at+n/registerBytes].loaded == nil {
			return notUnderstood("an unknown register")
		}
		size := m.regs[at+n/registerBytes].typ().size
		if size == 0 {
			size = registerBytes
		}
		lengths = append(lengths, size)
		n += (size + registerBytes - 1) / registerBytes * registerBytes
	}
	expr, _ := m.key(reg, nil, lengths)
	return expr
}

// loadOther is an expression of which only the presence matters; dreg is the attribute with its register.
func loadOther(name string, dreg int) reads {
	f := wireField{typ: wireInteger, expr: &syntax.Opaque{
		Name: name, Text: syntax.JSONObject(name, syntax.JSONObject("key", syntax.JSONString("something"))),
	}}
	return func(m *machine, a *attrs) error {
		m.load(a.num(dreg), f, len(m.regs)*registerBytes)
		return nil
	}
}

// loadHeader reads a field of an IPv6 extension header or of an option, or whether there is one, or writes it
// (nft_exthdr.c).
func loadHeader(m *machine, a *attrs) error {
	const dreg, typ, offset, length, flags, kind, sreg = 1, 2, 3, 4, 5, 6, 7
	names := []string{"exthdr", "tcp option", "ip option", "sctp chunk", "dccp option"}
	n := a.num(kind)
	if n >= uint64(len(names)) {
		m.unknown("exthdr")
		return nil
	}
	number := uint8(a.num(typ)) //nolint:gosec // an attribute of one byte
	m.uses(&headerBytes{base: optionOf[n].base, protocol: optionOf[n].protocol})
	h := &syntax.Header{Kind: names[n], Name: optionName(n, number)}
	f := wireField{typ: wireBool, expr: h}
	if a.num(flags)&1 == 0 {
		h.Field = optionField(n, number, a.size(offset), a.size(length))
		f.typ = wireInteger
	}
	switch {
	case a[sreg] != nil:
		value := m.stored(a.num(sreg), wireInteger)
		if s := m.regs.get(a.num(sreg)); s.loaded != nil && s.bytes != nil {
			value = wireInteger.constant(m.dump, s.bytes[:min(len(s.bytes), a.size(length))])
		}
		m.add(mangled(f.expr, value))
	case a[dreg] == nil:
		m.add(&syntax.Reset{Option: f.expr})
	default:
		m.load(a.num(dreg), f, a.size(length))
	}
	return nil
}

// loadConstant is immediate: a constant, or the rule's verdict (nft_immediate.c).
func loadConstant(m *machine, a *attrs) error {
	const dreg, data = 1, 2
	var d attrs
	if err := parseAttrs(a[data], m.Order, &d); err != nil {
		return err
	}
	_, more := d.beyond(upTo(dataVerdictAttr))
	if d[dataVerdictAttr] != nil && !more {
		return m.ends(d[dataVerdictAttr])
	}
	if d[dataValue] == nil || more {
		m.unknown("immediate")
		return nil
	}
	m.regs.set(a.num(dreg), &loaded{bytes: d[dataValue]}, len(d[dataValue]))
	return nil
}

// The operations of bitwise (enum nft_bitwise_ops, with those of newer kernels).
const (
	maskXor = iota
	shiftLeft
	shiftRight
	bitAnd
	bitOr
	bitXor
)

// bitwise calculates with a register, and with a constant or another register (nft_bitwise.c).
func bitwise(m *machine, a *attrs) error {
	const sreg, dreg, length, mask, xor, kind, data, sreg2 = 1, 2, 3, 4, 5, 6, 7, 8
	s := m.regs.get(a.num(sreg))
	size := a.size(length)
	if s.loaded == nil || s.at != 0 || s.expr == nil {
		m.regs.set(a.num(dreg), nil, size)
		return nil
	}
	var out *loaded
	switch n := a.num(kind); {
	case n == maskXor:
		out = m.masked(s.loaded, m.value(a[mask]), m.value(a[xor]))
	case n == shiftLeft || n == shiftRight:
		out = m.shifted(s.loaded, n == shiftRight, m.value(a[data]))
	case n <= bitXor && a[sreg2] != nil:
		other := m.regs.get(a.num(sreg2))
		if other.loaded != nil && other.at == 0 && other.expr != nil {
			sign := []string{bitAnd: "&", bitOr: "|", bitXor: "^"}[n]
			out = &loaded{expr: &syntax.Binary{
				Op: sign, Operands: []syntax.Expr{m.whole(s.loaded), m.whole(other.loaded)},
			}, types: s.types, swapped: s.swapped}
		}
	}
	m.regs.set(a.num(dreg), out, size)
	return nil
}

// masked is (v & mask) ^ xor, which nft prints as and, xor and or (netlink_parse_bitwise_mask_xor in
// src/netlink_delinearize.c). A mask is at its place in the value, whatever the machine's order of bytes.
func (m *machine) masked(v *loaded, mask, xor []byte) *loaded {
	if len(mask) == 0 || len(mask) != len(xor) {
		return nil
	}
	and, or, rest := slices.Clone(mask), make([]byte, len(mask)), make([]byte, len(mask))
	for i := range mask {
		or[i] = xor[i] &^ mask[i]
		rest[i] = xor[i] & mask[i]
		and[i] |= or[i]
	}
	t := v.typ()
	out := &loaded{expr: v.expr, types: v.types, swapped: v.swapped, of: v, mask: mask}
	for _, c := range []struct {
		sign string
		bits []byte
		none byte // what the bits are where nothing is calculated
	}{{"&", and, 0xff}, {"^", rest, 0}, {"|", or, 0}} {
		if bytes.Count(c.bits, []byte{c.none}) == len(c.bits) {
			continue
		}
		bits := t.inOrder(m.dump, c.bits, v.swapped)
		var right syntax.Expr
		switch {
		case t.prefix && !t.host:
			right = t.constant(m.dump, bits)
		case len(bits) > 8:
			right = syntax.String(hexText(bits))
		case t.bitmask:
			right = t.flags(bigNumber(bits), "")
		default:
			right = syntax.Number(bigNumber(bits))
		}
		out.expr = &syntax.Binary{Op: c.sign, Operands: []syntax.Expr{out.expr, right}}
	}
	if bytes.Count(xor, []byte{0}) != len(xor) {
		out.xor = xor
	}
	return out
}

// shifted moves a value by a number of bits. What a mask leaves of a header, moved to its low end, is a field.
func (m *machine) shifted(v *loaded, right bool, by []byte) *loaded {
	if len(by) != registerBytes {
		return nil
	}
	n := int(m.hostNumber(by))
	if f, shift := v.subfield(); f != nil && right && shift == n {
		m.uses(v.of.header)
		return &loaded{expr: f.expr, types: f.typ.alone()}
	}
	sign := "<<"
	if right {
		sign = ">>"
	}
	return &loaded{expr: &syntax.Binary{
		Op: sign, Operands: []syntax.Expr{m.whole(v), syntax.Number(n)},
	}, types: v.types, swapped: v.swapped}
}

// byteOrder changes the order of a value's bytes (nft_byteorder.c): the value is the same. nft also asks for it where a
// value is shorter than what is swapped: the kernel then does nothing.
func byteOrder(m *machine, a *attrs) error {
	const sreg, dreg, length, each = 1, 2, 4, 5
	s := m.regs.get(a.num(sreg))
	size := a.size(length)
	switch {
	case a.num(length) < a.num(each) && a.num(sreg) == a.num(dreg):
	case s.loaded == nil || s.at != 0 || s.bytes != nil || a.num(each) != a.num(length):
		m.regs.set(a.num(dreg), nil, size)
	default:
		out := *s.loaded
		out.swapped = !s.swapped
		m.regs.set(a.num(dreg), &out, size)
	}
	return nil
}
