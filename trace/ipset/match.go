// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

var _ netfilter.SetLookup = (*Sets)(nil)

// Match returns whether the packet is in the set, as -m set does (ip_set_test in net/netfilter/ipset/ip_set_core.c).
// flags are "src" or "dst" for each dimension of the set; with fewer the set never matches, and additional ones are
// ignored. An element whose timeout has not expired in the snapshot counts as present. known is false where the sets or
// the set were not collected, its type or one of its options is not known to this version, or the result depends on
// something that the packet model does not have; why is the reason.
func (s *Sets) Match(c *netfilter.Context, name string, flags []string) (in, known bool, why string) {
	if s == nil {
		return false, false, "the ipsets were not collected (ipset-save.txt)"
	}
	x := s.byName[name]
	if x == nil {
		return false, false, "set " + name + " is not in ipset-save.txt"
	}
	for _, f := range flags {
		if f != "src" && f != "dst" {
			return false, false, "set " + name + " is matched with the flag " + f + ", which is neither src nor dst"
		}
	}
	if x.unknown != "" || len(x.dims) != 1 || x.dims[0] != dimSet {
		return x.match(c, flags)
	}
	return s.matchList(c, x, flags)
}

// matchList matches the sets of a list:set in turn. The kernel does not allow a list in a list (list_set_uadd).
func (s *Sets) matchList(c *netfilter.Context, x *set, flags []string) (in, known bool, why string) {
	if len(flags) == 0 {
		return false, true, ""
	}
	known = true
	for _, name := range x.lists {
		m := s.byName[name]
		i, k, w := false, false, "set "+name+", a member of the list "+x.name+", is not in ipset-save.txt"
		if m != nil && m.dims != nil && m.dims[0] == dimSet {
			w = "set " + name + " is a list in the list " + x.name
		} else if m != nil {
			i, k, w = m.match(c, flags)
		}
		switch {
		case k && i:
			return true, true, ""
		case !k && known:
			known, why = false, w
		}
	}
	return false, known, why
}

// probe is the element that a set looks up for a packet.
type probe struct {
	addr  [2]netip.Addr
	key   key
	iface string
	vague string // the part of the element that is not known of the packet; empty: none
	low   uint16 // where that is the port: the lowest that it may be
}

func (x *set) match(c *netfilter.Context, flags []string) (in, known bool, why string) {
	switch {
	case x.unknown != "":
		return false, false, x.unknown
	case len(flags) < len(x.dims):
		return false, true, ""
	case x.family != 0 && x.family != c.Packet.Family, x.size == 0 && !op.Changed(c.Packet, x.name):
		return false, true, ""
	case x.protos != nil && x.typ != "bitmap:port" && slices.Contains(x.dims, dimPort) && !x.protos[c.Packet.Proto]:
		return false, true, "" // whatever else is not known of the packet
	}
	p, ok, why := x.probe(c, flags)
	if why != "" {
		return false, false, why
	}
	if !ok {
		return false, true, ""
	}
	in, known = x.find(&p)
	if op.Changed(c.Packet, x.name) {
		return false, false, "a rule for packets of the connection changes the set " + x.name
	}
	if !known {
		return false, false, "set " + x.name + " has " + p.vague
	}
	return in, true, ""
}

// probe returns the element of the packet; ok is false where the kernel finds none, which is not a match.
func (x *set) probe(c *netfilter.Context, flags []string) (p probe, ok bool, why string) {
	pkt, addrs := c.Packet, 0
	for i, d := range x.dims {
		src := flags[i] == "src"
		switch d {
		case dimIP, dimNet:
			a := pkt.Dst
			if src {
				a = pkt.Src
			}
			if !a.IsValid() {
				return p, false, "set " + x.name + " is matched against the packet's " + flags[i] + " address, which is not known"
			}
			a = a.Unmap().WithZone("")
			if x.masked && (addrs == 0 || x.dims[0] == dimNet) {
				a = and(a, x.mask)
			}
			p.addr[addrs] = a
			addrs++
		case dimPort:
			if !x.port(&p, c, src) {
				return p, false, ""
			}
		case dimMark:
			p.key.mark = pkt.Mark & x.markMask
		case dimMAC:
			p.vague = "MAC addresses, which a snapshot does not have for a packet"
		case dimIface:
			p.iface = pkt.Out
			if src {
				p.iface = pkt.In
			}
			if p.iface == "" {
				return p, false, ""
			}
			p.vague = "interfaces, and the packet's is not known"
			if p.iface != netfilter.UnknownIface {
				p.vague = "a bridge port (physdev) for the packet's network"
			}
		case dimSet:
			return p, false, "set " + x.name + " is a list"
		}
	}
	return p, true, ""
}

// port fills in protocol and port as ip_set_get_ip4_port does (net/netfilter/ipset/ip_set_getport.c): protocols without
// ports have port 0. It returns false where the kernel finds no element.
func (x *set) port(p *probe, c *netfilter.Context, src bool) bool {
	pkt := c.Packet
	p.key.proto, p.key.port = pkt.Proto, pkt.DstPort
	if src {
		p.key.port = pkt.SrcPort
	}
	switch pkt.Proto {
	case netfilter.TCP, netfilter.UDP, netfilter.SCTP, netfilter.UDPLite:
		if p.key.port == 0 {
			p.vague = "ports, and the packet's " + map[bool]string{true: "source", false: "destination"}[src] +
				" port is not known"
			if !src {
				p.low = op.LowestPort(c)
			}
		}
	case netfilter.ICMP, netfilter.ICMPv6:
		p.vague = "ICMP types, and the packet's is not known"
	default:
		p.key.port = 0
	}
	if x.typ == "bitmap:port" {
		p.key.proto = 0 // and it allows these two protocols only (ip_set_get_ip_port in ip_set_bitmap_port.c)
		return pkt.Proto == netfilter.TCP || pkt.Proto == netfilter.UDP
	}
	return true
}

// find looks up the element: by the longest prefix of the first address first, then of the second (mtype_test_cidrs in
// ip_set_hash_gen.h). The first one found decides.
func (x *set) find(p *probe) (in, known bool) {
	one := []int{0}
	bitsA, bitsB := one, one
	if p.addr[0].IsValid() {
		bitsA = x.bits[0]
	}
	if p.addr[1].IsValid() {
		bitsB = x.bits[1]
	}
	for _, i := range bitsA {
		p.key.a, _ = p.addr[0].Prefix(i)
		for _, j := range bitsB {
			p.key.b, _ = p.addr[1].Prefix(j)
			if in, known, found := x.at(p); found {
				return in, known
			}
		}
	}
	return false, true
}

// at looks up exactly p.key.
func (x *set) at(p *probe) (in, known, found bool) {
	if p.iface != "" {
		return x.atIface(p)
	}
	if p.vague != "" {
		k := p.key
		k.port = 0
		high, some := x.some[k]
		return false, false, some && high >= p.low
	}
	if nomatch, ok := x.exact[p.key]; ok {
		return !nomatch, true, true
	}
	if len(x.spans) > 0 {
		k := p.key
		k.port = 0
		for _, s := range x.spans[k] {
			if s.from <= p.key.port && p.key.port <= s.to {
				return !s.nomatch, true, true
			}
		}
	}
	return false, true, false
}

// atIface looks up a network with the packet's interface. A network that is in the set, even if only with other
// interfaces, ends the search (the "multi" of hash_netiface4_data_equal).
func (x *set) atIface(p *probe) (in, known, found bool) {
	unsure := false
	for _, e := range x.ifaces[p.key] {
		switch {
		case e.physdev || p.iface == netfilter.UnknownIface:
			unsure = true
		case e.name == p.iface || e.wildcard && strings.HasPrefix(p.iface, e.name):
			return !e.nomatch, true, true
		}
	}
	return false, !unsure, len(x.ifaces[p.key]) > 0
}

// and masks an address; with a mask of the other family it returns the address unchanged.
func and(a, mask netip.Addr) netip.Addr {
	if a.BitLen() != mask.BitLen() {
		return a
	}
	x, m := a.AsSlice(), mask.AsSlice()
	for i := range x {
		x[i] &= m[i]
	}
	out, _ := netip.AddrFromSlice(x)
	return out
}
