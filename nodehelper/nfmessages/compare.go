// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// The signs of comparisons (enum nft_cmp_ops).
var compareSigns = []string{"==", "!=", "<", "<=", ">", ">="}

// compare is cmp: a match of what a register holds with a constant.
func compare(m *machine, a *attrs) error {
	const sreg, sign, data = 1, 2, 3
	s := m.regs.get(a.num(sreg))
	n, right := a.num(sign), m.value(a[data])
	if s.loaded == nil || s.at != 0 || right == nil || n >= uint64(len(compareSigns)) {
		m.match("==", notUnderstood("a comparison"), notUnderstood("a value"))
		return nil
	}
	m.compared(s.loaded, compareSigns[n], right)
	return nil
}

// compared adds the comparison of a value with a constant.
func (m *machine) compared(v *loaded, sign string, right []byte) {
	equality := sign == "==" || sign == "!="
	switch {
	case equality && v.of != nil && m.maskedMatch(v, sign, right):
	case equality && v.header != nil && v.header.begins != nil && len(right) >= v.header.len:
		f := v.header.begins
		m.uses(v.header)
		m.match(sign, f.expr, network(m.dump, f.typ, right[:v.header.len], v.header.len*8))
	case equality && v.header == nil && v.of == nil && v.typ().prefix && len(right) < v.typ().size:
		m.match(sign, m.whole(v), network(m.dump, v.typ(), right, len(right)*8))
	case sign == "==" && v.header != nil && v.header.field == nil && m.several(v.header, right):
	case equality && v.typ() == wireIfname && len(right) < wireIfname.size:
		m.match(sign, m.whole(v), syntax.String(cString(right)+"*"))
	case sign == "<=" && m.endsRange(v, right):
	default:
		m.match(sign, m.whole(v), m.constant(v, right))
		if sign == "==" && v.context != noContext {
			m.learns(v, right, len(m.out))
		}
	}
	m.last = v
}

// constant is what a value is compared with.
func (m *machine) constant(v *loaded, right []byte) syntax.Expr {
	t := v.typ()
	return t.constant(m.dump, t.inOrder(m.dump, right, v.swapped))
}

// network writes the network that begins with some bytes of an address.
func network(d *dump, t *wireType, first []byte, bits int) syntax.Expr {
	full := make([]byte, t.size)
	copy(full, first)
	return &syntax.Prefix{Addr: t.constant(d, full), Len: float64(bits)}
}

// maskedMatch adds the comparison of bits of a value: of a field that is no whole bytes, of a network, of flags. It
// returns false where it is none of these.
func (m *machine) maskedMatch(v *loaded, sign string, right []byte) bool {
	if v.mask == nil || v.xor != nil {
		return false
	}
	t := v.of.typ()
	if f, shift := v.subfield(); f != nil {
		m.uses(v.of.header)
		m.match(sign, f.expr, f.typ.constant(m.dump, shiftedRight(right, shift)))
		return true
	}
	mask, value := t.inOrder(m.dump, v.mask, v.of.swapped), t.inOrder(m.dump, right, v.of.swapped)
	if len(mask) > 8 && !t.prefix || len(value) < len(mask) {
		return false
	}
	first, bits, isRun := oneRun(mask)
	switch {
	case t.prefix && isRun && first == 0:
		m.match(sign, m.whole(v.of), network(m.dump, t, value[:len(mask)], bits))
	case t.bitmask && bigNumber(value) == 0:
		m.match(map[string]string{"!=": "in", "==": "!"}[sign], m.whole(v.of), t.flags(bigNumber(mask), ""))
	case t.bitmask:
		left := &syntax.Binary{Op: "&", Operands: []syntax.Expr{m.whole(v.of), t.flags(bigNumber(mask), "")}}
		m.match(sign, left, t.flags(bigNumber(value), ""))
	default:
		return false
	}
	return true
}

func shiftedRight(v []byte, by int) []byte {
	out := slices.Clone(v)
	for range by {
		carry := byte(0)
		for i, b := range out {
			out[i] = b>>1 | carry
			carry = b << 7
		}
	}
	return out
}

// several splits the comparison of neighbouring fields, which nft compares at once.
func (m *machine) several(h *headerBytes, right []byte) bool {
	var parts []*wireField
	for bit := h.bit; bit < h.bit+h.len*8; {
		fields := wireHeaders[h.protocol]
		at := slices.IndexFunc(fields, func(f wireField) bool { return f.offset == bit && f.offset%8 == 0 && f.bits%8 == 0 })
		if at < 0 || bit+fields[at].bits > h.bit+h.len*8 || len(right)*8 < bit-h.bit+fields[at].bits {
			return false
		}
		parts = append(parts, &fields[at])
		bit += fields[at].bits
	}
	for _, f := range parts {
		from := (f.offset - h.bit) / 8
		m.compared(m.header(h.base, h.offset+from, f.bits/8), "==", right[from:from+f.bits/8])
	}
	return true
}

// endsRange makes a range of two comparisons one after the other, with the first and with the last value.
func (m *machine) endsRange(v *loaded, right []byte) bool {
	if m.last != v || len(m.out) == 0 {
		return false
	}
	before, _ := m.out[len(m.out)-1].(*syntax.Match)
	if before == nil || before.Op != ">=" {
		return false
	}
	m.out[len(m.out)-1] = &syntax.Match{
		Op: "==", Left: before.Left, Right: &syntax.Range{From: before.Right, To: m.constant(v, right)},
	}
	return true
}

// compareRange is range: whether a value is between two.
func compareRange(m *machine, a *attrs) error {
	const sreg, sign, from, to = 1, 2, 3, 4
	s := m.regs.get(a.num(sreg))
	n, lo, hi := a.num(sign), m.value(a[from]), m.value(a[to])
	if s.loaded == nil || s.at != 0 || lo == nil || hi == nil || n > 1 {
		m.match("==", notUnderstood("a range"), notUnderstood("a value"))
		return nil
	}
	between := &syntax.Range{From: m.constant(s.loaded, lo), To: m.constant(s.loaded, hi)}
	m.match(compareSigns[n], m.whole(s.loaded), between)
	return nil
}

// value reads a value (enum nft_data_attributes); nil where it is none.
func (m *machine) value(data []byte) []byte {
	var a attrs
	if parseAttrs(data, m.Order, &a) != nil {
		return nil
	}
	if _, more := a.beyond(upTo(dataVerdictAttr)); more {
		return nil
	}
	return a[dataValue]
}

const (
	dataValue       = 1
	dataVerdictAttr = 2
)
