// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Bounds implements [netfilter.Bounder].
func (s *selector) Bounds(f func(netfilter.Bound)) {
	for _, x := range []struct {
		bit   uint8
		of    *network
		field netfilter.BoundField
	}{{bySrc, &s.src, netfilter.BoundSource}, {byDst, &s.dst, netfilter.BoundDestination}} {
		if s.has&x.bit == 0 {
			continue
		}
		if p, ok := x.of.prefix(); ok {
			f(netfilter.Bound{Field: x.field, Prefix: p, Not: s.not&x.bit != 0})
		}
	}
}

// Bounds implements [netfilter.Bounder].
func (o *ifaceOp) Bounds(f func(netfilter.Bound)) {
	if o.out {
		return
	}
	name, wild := strings.CutSuffix(o.pattern, "+")
	f(netfilter.Bound{Field: netfilter.BoundIncoming, Iface: name, Wild: wild, Not: o.not})
}

// prefix returns the addresses as a prefix; false where the mask is none, and for every address of any family.
func (n *network) prefix() (netip.Prefix, bool) {
	length := bits.LeadingZeros64(^n.maskHi)
	if length == 64 { //nolint:mnd // bits of a word
		length += bits.LeadingZeros64(^n.maskLo)
	}
	if length == 0 || length < 64 && n.maskLo != 0 || bits.OnesCount64(n.maskHi)+bits.OnesCount64(n.maskLo) != length {
		return netip.Prefix{}, false
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	a := netip.AddrFrom16(b)
	const mapped = 96 // the bits before an IPv4 address in an IPv4-mapped one
	if a.Is4In6() && length >= mapped {
		a, length = a.Unmap(), length-mapped
	}
	return netip.PrefixFrom(a, length), true
}
