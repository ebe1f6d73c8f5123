// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Bounds implements [netfilter.Bounder].
func (m *comparison) Bounds(f func(netfilter.Bound)) {
	if len(m.left) != 1 || len(m.right) != 1 || m.sign != "==" && m.sign != "!=" {
		return
	}
	x, r := m.left[0], m.right[0]
	b := netfilter.Bound{Not: m.sign == "!="}
	switch x.index {
	case byIncoming:
		b.Field = netfilter.BoundIncoming
		b.Iface, b.Wild = nameOf(r)
		f(b)
		return
	case bySource:
		b.Field = netfilter.BoundSource
	case byDestination:
		b.Field = netfilter.BoundDestination
	case noIndex, byPort:
		return
	}
	var ok bool
	if b.Prefix, ok = prefixOf(r, x.typ == typeIPv4); ok {
		f(b)
	}
}

// nameOf is the reverse of what nameWord makes of an interface's name, and of the beginning of one.
func nameOf(r span) (name string, wild bool) {
	var b [nameLength]byte
	binary.BigEndian.PutUint64(b[:8], r.lo.hi)
	binary.BigEndian.PutUint64(b[8:], r.lo.lo)
	name, _, _ = strings.Cut(string(b[:]), "\x00")
	return name, r.lo != r.hi
}

// prefixOf returns a range of addresses as a prefix; false where it is none.
func prefixOf(r span, v4 bool) (netip.Prefix, bool) {
	first := r.lo.addr(v4)
	for length := first.BitLen(); length >= 0; length-- {
		if host := lowBits(first.BitLen() - length); r.lo.and(host) == (word{}) && r.lo.or(host) == r.hi {
			return netip.PrefixFrom(first, length), true
		}
	}
	return netip.Prefix{}, false
}
