// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// loaded is what an expression of the kernel has put into registers.
type loaded struct {
	expr  syntax.Expr // nil for a constant
	types []*wireType // what it is of; several of a concatenation
	bytes []byte      // of a constant
	// swapped tells that it was brought into network byte order.
	swapped bool

	header *headerBytes // of bytes of a header
	// mask is what it was and-ed with last, and of is what it was before that: for fields that are no whole bytes, and
	// bits.
	mask []byte
	xor  []byte // with what it was xor-ed after that
	of   *loaded
	// context says what a comparison of it with a constant tells of the headers behind it.
	context context
}

// headerBytes are bytes of a header, from an offset on.
type headerBytes struct {
	base        uint64 // baseLink, …
	offset, len int    // bytes
	bit         int    // where they begin in the header that nft sees there
	protocol    string // "" where it is not known which header it is
	field       *wireField
	begins      *wireField // of bytes that a field begins with
}

// The bases of headers (enum nft_payload_bases).
const (
	baseLink = iota
	baseNetwork
	baseTransport
)

// context is what a value tells, where it is compared with a constant.
type context uint8

const (
	noContext context = iota
	isNetworkProtocol
	isNetworkFamily
	isTransportProtocol
	isHardware
)

func (v *loaded) typ() *wireType {
	if len(v.types) == 0 {
		return wireInteger
	}
	return v.types[0]
}

// slot is 4 bytes of registers: a part of what was loaded.
type slot struct {
	*loaded
	at int // the byte of it that the slot begins with
}

// registers are those of the kernel, 4 bytes each.
type registers [16]slot

// registerBytes is the size of one.
const registerBytes = 4

// slotOf returns where a register begins, as the kernel numbers it in messages: 1 to 4 have 16 bytes, those from 8 on
// have 4 (nft_parse_register in net/netfilter/nf_tables_api.c).
func slotOf(reg uint64) (int, bool) {
	switch {
	case reg >= 1 && reg <= 4:
		return int(reg-1) * 4, true
	case reg >= 8 && reg < 8+uint64(len(registers{})):
		return int(reg - 8), true
	}
	return 0, false
}

// set puts a value of so many bytes into registers.
func (r *registers) set(reg uint64, v *loaded, bytes int) {
	at, ok := slotOf(reg)
	if !ok {
		return
	}
	for i := 0; i < max(1, (bytes+registerBytes-1)/registerBytes) && at+i < len(r); i++ {
		r[at+i] = slot{v, i * registerBytes}
	}
}

// get returns what a register begins with; nil where nothing is known of it.
func (r *registers) get(reg uint64) slot {
	at, ok := slotOf(reg)
	if !ok || at >= len(r) {
		return slot{}
	}
	return r[at]
}

// forget forgets all registers: something that is not known may have written any of them.
func (r *registers) forget() { *r = registers{} }

// notUnderstood is an expression that the compiler does not know, so that what is made of it is Unknown.
func notUnderstood(what string) *syntax.Opaque {
	return &syntax.Opaque{Name: "unknown", Text: syntax.JSONObject("unknown", syntax.JSONString(what))}
}

// key returns the expression that so many bytes from a register on are: one, or the concatenation of several, of the
// given types. lengths are those of the types in bytes.
func (m *machine) key(reg uint64, types []*wireType, lengths []int) (syntax.Expr, []*wireType) {
	at, ok := slotOf(reg)
	if !ok {
		return notUnderstood("an unknown register"), types
	}
	var parts []syntax.Expr
	var of []*wireType
	for i, length := range lengths {
		t := wireInteger
		if i < len(types) {
			t = types[i]
		}
		if at >= len(m.regs) || m.regs[at].loaded == nil {
			return notUnderstood("an unknown register"), types
		}
		s := m.regs[at]
		part, partType := m.part(s, t, length)
		parts, of = append(parts, part), append(of, partType)
		at += (length + registerBytes - 1) / registerBytes
	}
	if len(parts) == 1 {
		return parts[0], of
	}
	return syntax.Concat(parts), of
}

// part is an expression of a concatenation, or all of it.
func (m *machine) part(s slot, t *wireType, length int) (syntax.Expr, *wireType) {
	v := s.loaded
	switch {
	case v.bytes != nil:
		if s.at+length > len(v.bytes) {
			return notUnderstood("a constant that is too short"), t
		}
		c := t.constant(m.dump, t.inOrder(m.dump, v.bytes[s.at:s.at+length], false))
		return c, t
	case v.header != nil && (s.at > 0 || length < v.header.len && v.header.field == nil):
		h := m.header(v.header.base, v.header.offset+s.at, length)
		return m.whole(h), h.typ()
	case s.at > 0:
		return notUnderstood("a part of a value"), t
	}
	return m.whole(v), v.typ()
}

// whole is the expression of a value that is used as it is.
func (m *machine) whole(v *loaded) syntax.Expr {
	if f, shift := v.subfield(); f != nil && shift == 0 {
		m.uses(v.of.header)
		return f.expr
	}
	for from := v; from != nil; from = from.of {
		if from.header != nil && from.header.field != nil {
			m.uses(from.header)
		}
	}
	if v.expr == nil {
		return notUnderstood("a constant")
	}
	return v.expr
}

// subfield returns the field that the bits are which a mask leaves, and by how many bits it has to be shifted to the
// right.
func (v *loaded) subfield() (f *wireField, shift int) {
	if v.of == nil || v.xor != nil || v.of.header == nil || v.of.of != nil {
		return nil, 0
	}
	if v.of.header.protocol == "" || len(v.mask) != v.of.header.len {
		return nil, 0
	}
	first, bits, ok := oneRun(v.mask)
	if !ok {
		return nil, 0
	}
	return fieldAt(v.of.header.protocol, v.of.header.bit+first, bits), len(v.mask)*8 - first - bits
}

// bitsAt is subfield of what a register holds: in sets and maps, nft keeps the bits of such a field at their place.
func (m *machine) bitsAt(reg uint64) (*wireField, int) {
	s := m.regs.get(reg)
	if s.loaded == nil || s.at != 0 {
		return nil, 0
	}
	f, shift := s.subfield()
	if f != nil {
		m.uses(s.of.header)
	}
	return f, shift
}

// moved is the type of values that stand so many bits to the left.
func (t *wireType) moved(by int) *wireType {
	return &wireType{name: t.name, write: func(d *dump, v []byte) syntax.Expr {
		return t.constant(d, shiftedRight(v, by))
	}}
}

// oneRun returns where the only run of ones begins, and its length in bits.
func oneRun(mask []byte) (first, bits int, ok bool) {
	first = -1
	for i := range len(mask) * 8 {
		set := mask[i/8]>>(7-i%8)&1 == 1
		switch {
		case set && first < 0:
			first = i
		case set && i != first+bits:
			return 0, 0, false
		}
		if set {
			bits++
		}
	}
	return first, bits, first >= 0
}

// fieldAt returns the field of a header that begins at a bit, and has so many; nil where there is none.
func fieldAt(protocol string, offset, bits int) *wireField {
	fields := wireHeaders[protocol]
	at := slices.IndexFunc(fields, func(f wireField) bool { return f.offset == offset && f.bits == bits })
	if at < 0 {
		return nil
	}
	return &fields[at]
}

// header is the value that bytes of a header are, with the header's name where the rule has made sure which one it is.
func (m *machine) header(base uint64, offset, length int) *loaded {
	h := &headerBytes{base: base, offset: offset, len: length, bit: offset * 8, protocol: m.protocol(base)}
	v := &loaded{header: h}
	if base == baseLink && h.protocol == "vlan" {
		h.bit -= etherBytes * 8
	}
	h.field = fieldAt(h.protocol, h.bit, length*8)
	if h.field == nil {
		fields := wireHeaders[h.protocol]
		at := slices.IndexFunc(fields, func(f wireField) bool {
			return f.offset == h.bit && f.bits > length*8 && f.typ.size > 1
		})
		if at >= 0 {
			h.begins = &fields[at]
		}
	}
	if h.field == nil {
		v.expr = rawBytes(base, offset, length)
		return v
	}
	v.expr, v.types = h.field.expr, h.field.typ.alone()
	switch {
	case h.field.typ == wireProto && base == baseNetwork:
		v.context = isTransportProtocol
	case h.field.typ == wireEthType && base == baseLink:
		v.context = isNetworkProtocol
	}
	return v
}

// etherBytes is how long an Ethernet header is.
const etherBytes = 14

// baseNames are what nft -j calls the bases.
var baseNames = []string{"ll", "nh", "th", "ih"}

func rawBytes(base uint64, offset, length int) syntax.Expr {
	if base >= uint64(len(baseNames)) {
		return notUnderstood("bytes of a header")
	}
	return &syntax.RawPayload{Base: baseNames[base], Offset: float64(offset * 8), Len: float64(length * 8)}
}

// protocol returns which header is at a base, as far as the rule has made sure of it.
func (m *machine) protocol(base uint64) string {
	switch base {
	case baseLink:
		return m.link
	case baseNetwork:
		return m.network
	case baseTransport:
		if m.transport == "" {
			return "th"
		}
		return m.transport
	}
	return ""
}
