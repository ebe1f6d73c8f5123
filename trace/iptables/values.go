// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// network is a set of addresses, those that are equal to one of them under a mask; IPv4 as IPv4-mapped IPv6. The
// kernel's ip_packet_match compares the same. It has no pointers: a dump may have 100,000 of them.
type network struct {
	hi, lo         uint64
	maskHi, maskLo uint64
}

func wordsOf(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// has tells whether an address is in the set; maybe where the address is not known.
func (n *network) has(a netip.Addr) truth {
	if !a.IsValid() {
		return op.Known(true, n.maskHi|n.maskLo == 0)
	}
	hi, lo := wordsOf(a)
	return op.Is((hi^n.hi)&n.maskHi == 0 && (lo^n.lo)&n.maskLo == 0)
}

// single tells whether the set holds one address only.
func (n *network) single() bool { return n.maskHi&n.maskLo == ^uint64(0) }

// readNetwork reads an address with or without /BITS or /MASK. A mask need not be a prefix: iptables allows any.
func readNetwork(s string) (n network, a netip.Addr, ok bool) {
	addr, mask, has := strings.Cut(s, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return n, a, false
	}
	n.maskHi, n.maskLo = ^uint64(0), ^uint64(0)
	if has {
		m, err := netip.ParseAddr(mask)
		switch {
		case err == nil && m.BitLen() == a.BitLen():
			n.maskHi, n.maskLo = wordsOf(m)
			if a.Is4() {
				n.maskHi, n.maskLo = ^uint64(0), n.maskLo|0xffffffff<<32
			}
		default:
			ones, err := strconv.Atoi(mask)
			if err != nil || ones < 0 || ones > a.BitLen() {
				return n, a, false
			}
			ones += 128 - a.BitLen()
			n.maskHi = ^(^uint64(0) >> min(ones, 64))
			n.maskLo = ^(^uint64(0) >> (max(ones, 64) - 64))
		}
	}
	n.hi, n.lo = wordsOf(a)
	n.hi, n.lo = n.hi&n.maskHi, n.lo&n.maskLo
	if a.Is4() && n.maskLo<<32 == 0 {
		n.maskHi, n.maskLo, n.hi, n.lo = 0, 0, 0, 0 // every address
	}
	return n, a, true
}

// portRange is min:max.
type portRange struct{ lo, hi uint16 }

func ports(s string) (portRange, bool) {
	lo, hi, isRange := strings.Cut(s, ":")
	if !isRange {
		hi = lo
	} else if lo == "" {
		lo = "0"
	}
	if isRange && hi == "" {
		hi = "65535"
	}
	a, ok1 := portNumber(lo)
	b, ok2 := portNumber(hi)
	return portRange{a, b}, ok1 && ok2 && a <= b
}

func portNumber(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil
}

func (r portRange) has(p uint16) truth { return op.Is(r.lo <= p && p <= r.hi) }

// hasPort is has for a port of a packet, of which 0 means that it is not known: that of the client where none was
// named, also as the destination of answers.
func (r portRange) hasPort(p uint16) truth {
	switch {
	case p != 0:
		return r.has(p)
	case r.lo <= 1 && r.hi == 65535:
		return yes
	case r.hi == 0:
		return no
	}
	return maybe
}

// hasSome tells whether it has a port that is one of some.
func (r portRange) hasSome(of netfilter.PortRange) truth {
	return op.Bounds{Low: uint64(of.First), High: uint64(of.Last)}.Within(uint64(r.lo), uint64(r.hi))
}

// number reads a number as iptables does, in any base.
func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 0, 32)
	return uint32(n), err == nil
}

// valueMask reads value[/mask] of a mark.
func valueMask(s string) (value, mask uint32, ok bool) {
	v, m, has := strings.Cut(s, "/")
	value, ok = number(v)
	if !ok || !has {
		return value, ^uint32(0), ok
	}
	mask, ok = number(m)
	return value, mask, ok
}

// apply replaces the bits of an address that the set fixes.
func (n *network) apply(a netip.Addr) netip.Addr {
	hi, lo := wordsOf(a)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi&^n.maskHi|n.hi)
	binary.BigEndian.PutUint64(b[8:], lo&^n.maskLo|n.lo)
	if a.Is4() {
		return netip.AddrFrom16(b).Unmap()
	}
	return netip.AddrFrom16(b)
}
