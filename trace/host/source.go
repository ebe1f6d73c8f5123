// SPDX-License-Identifier: Apache-2.0

package host

import (
	"math/bits"
	"net/netip"
	"slices"
)

// buildTables prepares the tables once all files were read. Next hops of IPv4 routes without a preferred source get the
// one that the kernel computes when the route is added (fib_info_update_nhc_saddr in net/ipv4/fib_semantics.c).
func (n *Network) buildTables() {
	for i := range n.fam {
		n.fam[i].gateways = map[string]bool{}
		for _, t := range n.fam[i].tables {
			for _, es := range t.at {
				for j := range es {
					e := &es[j]
					for k := range e.hops {
						h := &e.hops[k]
						if h.Gateway.IsValid() {
							n.fam[i].gateways[h.Dev] = true
						}
						if e.prefSrc.IsValid() {
							h.PrefSrc = e.prefSrc
						} else if i == 0 && h.Dev != "" {
							h.PrefSrc = n.selectAddress(h.Dev, h.Gateway, e.scope)
						}
					}
				}
			}
			t.build(i == 1)
		}
	}
}

// PrimaryAddress returns the primary address of an interface: of IPv4 the first that is not secondary and not confined
// to host or link, of IPv6 the first global one that is in use, and, failing that, the link-local one. The zero Addr
// where the interface has none, or addresses were not collected.
func (n *Network) PrimaryAddress(dev string, v4 bool) netip.Addr {
	var linkLocal netip.Addr
	for _, i := range n.devs[dev] {
		a := &n.addrs[i]
		switch {
		case a.ip.Is4() != v4 || a.secondary || a.awaitsDAD != "":
		case v4 && a.scope == scopeGlobal:
			return a.ip
		case !v4 && a.scope < scopeLink && !a.deprecated && !a.temporary:
			return a.ip
		case !v4 && a.scope == scopeLink && !linkLocal.IsValid():
			linkLocal = a.ip
		}
	}
	return linkLocal
}

// MasqueradeAddress returns the source to which MASQUERADE translates a packet that leaves by dev: near is the
// destination, or for IPv4 the gateway of IPv4 where there is one. IPv4 prefers an address of its subnet to the
// interface's first (inet_select_addr in net/ipv4/devinet.c, called by net/netfilter/nf_nat_masquerade.c). The zero
// Addr where it is not known.
func (n *Network) MasqueradeAddress(dev string, near netip.Addr) netip.Addr {
	near = near.Unmap().WithZone("")
	if near.Is4() {
		return n.selectAddress(dev, near, scopeGlobal)
	}
	return n.source6(dev, near)
}

// RedirectAddress returns the destination to which REDIRECT translates a packet that came in by dev: the interface's
// first address (nf_nat_redirect_ipv4 and _ipv6 in net/netfilter/nf_nat_redirect.c), and loopback for a packet of a
// local process. The zero Addr where it is not known; the kernel drops the packet where the interface has no address.
func (n *Network) RedirectAddress(dev string, v4 bool) netip.Addr {
	if dev == "lo" || dev == "" {
		if v4 {
			return localhost4
		}
		return netip.IPv6Loopback()
	}
	if !v4 {
		return n.PrimaryAddress(dev, false)
	}
	for _, i := range n.devs[dev] {
		if n.addrs[i].ip.Is4() {
			return n.addrs[i].ip
		}
	}
	return netip.Addr{}
}

// selectAddress is inet_select_addr (net/ipv4/devinet.c): the first primary address of dev whose scope is at least as
// wide as scope, preferably one whose subnet contains near; failing that, one of any other interface.
func (n *Network) selectAddress(dev string, near netip.Addr, scope uint8) netip.Addr {
	var first netip.Addr
	for _, i := range n.devs[dev] {
		a := &n.addrs[i]
		if !a.ip.Is4() || a.secondary || a.scope > scope {
			continue
		}
		if !near.Is4() || a.prefix.Contains(near) {
			return a.ip
		}
		if !first.IsValid() {
			first = a.ip
		}
	}
	if first.IsValid() {
		return first
	}
	for i := range n.addrs {
		if a := &n.addrs[i]; a.ip.Is4() && !a.secondary && a.scope != scopeLink && a.scope <= scope {
			return a.ip
		}
	}
	return netip.Addr{}
}

// source6 chooses the source of an IPv6 packet to dst by dev, as RFC 6724 section 5 and ipv6_dev_get_saddr
// (net/ipv6/addrconf.c) do, without the rules about a mobile node's home address and about an application's preference.
func (n *Network) source6(dev string, dst netip.Addr) netip.Addr {
	best := n.better6(n.devs[dev], dev, dst)
	// only the interface's own addresses are allowed
	near := dst.IsLinkLocalUnicast() || dst.IsMulticast() || dst.IsLoopback()
	if !near && n.own6(dst) {
		return dst // rule 1: the same address
	}
	if best != nil && (scope6(best.ip) >= scope6(dst) && !best.deprecated || near) {
		return best.ip
	}
	if near {
		return netip.Addr{}
	}
	all := make([]int, len(n.addrs))
	for i := range all {
		all[i] = i
	}
	if best = n.better6(all, dev, dst); best == nil {
		return netip.Addr{}
	}
	return best.ip
}

// own6 tells whether ip is an address of an interface that is in use, and not only that of a local route.
func (n *Network) own6(ip netip.Addr) bool {
	return slices.ContainsFunc(n.addrs, func(a address) bool { return a.ip == ip && a.awaitsDAD == "" })
}

// better6 returns the best of the addresses with the indices of; nil if there is no IPv6 one. One that duplicate address
// detection has not found to be the node's alone is no candidate (__ipv6_dev_get_saddr in net/ipv6/addrconf.c).
func (n *Network) better6(of []int, dev string, dst netip.Addr) *address {
	var best *address
	for _, i := range of {
		a := &n.addrs[i]
		if a.ip.Is4() || a.awaitsDAD != "" {
			continue
		}
		if best == nil || preferred6(a, best, dev, dst) {
			best = a
		}
	}
	return best
}

// preferred6 tells whether RFC 6724 prefers a to b: the first rule in which they differ decides.
func preferred6(a, b *address, dev string, dst netip.Addr) bool {
	if sa, sb, sd := scope6(a.ip), scope6(b.ip), scope6(dst); sa != sb { // rule 2: appropriate scope
		if sa < sb {
			return sa >= sd
		}
		return sb < sd
	}
	for _, x := range [][2]bool{
		{!a.deprecated, !b.deprecated},                             // rule 3
		{a.dev == dev, b.dev == dev},                               // rule 5: outgoing interface
		{label6(a.ip) == label6(dst), label6(b.ip) == label6(dst)}, // rule 6
		{!a.temporary, !b.temporary},                               // rule 7, as the kernel has it by default
	} {
		if x[0] != x[1] {
			return x[0]
		}
	}
	return common6(a, dst) > common6(b, dst) // rule 8
}

// scope6 returns the scope of an IPv6 address: a wider one is larger.
func scope6(a netip.Addr) int {
	switch {
	case a.IsMulticast():
		return int(a.As16()[1] & 0xf)
	case a.IsLinkLocalUnicast(), a.IsLoopback():
		return 2
	}
	return 14
}

var labels6 = []struct {
	prefix netip.Prefix
	label  int
}{ // RFC 6724 section 2.1, longest first, without deprecated prefixes
	{netip.MustParsePrefix("::1/128"), 0},
	{netip.MustParsePrefix("2001::/32"), 5},
	{netip.MustParsePrefix("2002::/16"), 2},
	{netip.MustParsePrefix("fc00::/7"), 13},
}

func label6(a netip.Addr) int {
	for _, l := range labels6 {
		if l.prefix.Contains(a) {
			return l.label
		}
	}
	return 1
}

// common6 counts the leading bits that the addresses share, within the source's subnet.
func common6(a *address, dst netip.Addr) int {
	x, y := a.ip.As16(), dst.As16()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return min(i*8+bits.LeadingZeros8(d), a.prefix.Bits())
		}
	}
	return 128
}
