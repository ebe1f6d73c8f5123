// SPDX-License-Identifier: Apache-2.0

package host

import (
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
)

// source6 chooses the source of an IPv6 packet to dst by dev, as RFC 6724 section 5 and ipv6_dev_get_saddr
// (net/ipv6/addrconf.c) do, without the rules about a mobile node's home address and about an application's preference.
// The zero Addr where it is not known.
func (n *Network) source6(dev string, dst netip.Addr) netip.Addr {
	public := n.sourceAs6(dev, dst, asPublic)
	if n.temporaries && public != n.sourceAs6(dev, dst, asTemporary) {
		return netip.Addr{}
	}
	return public
}

// Rule 7 is evaluated for both where it is not known which an interface prefers.
const (
	asPublic = iota
	asTemporary
)

// sourceAs6 is source6, with interfaces whose preference was not collected taken for such that prefer these addresses.
func (n *Network) sourceAs6(dev string, dst netip.Addr, unknown int) netip.Addr {
	best := n.better6(n.devs[dev], dev, dst, unknown)
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
	if best = n.better6(all, dev, dst, unknown); best == nil {
		return netip.Addr{}
	}
	return best.ip
}

// own6 tells whether ip is an address of an interface that is in use, and not only that of a local route.
func (n *Network) own6(ip netip.Addr) bool {
	return slices.ContainsFunc(n.addrs, func(a address) bool { return a.ip == ip && a.awaitsDAD == "" })
}

// better6 returns the best of the addresses with the indices of; nil if there is no IPv6 one. One that duplicate
// address detection has not found to be the node's alone is no candidate (__ipv6_dev_get_saddr in net/ipv6/addrconf.c).
func (n *Network) better6(of []int, dev string, dst netip.Addr, unknown int) *address {
	var best *address
	for _, i := range of {
		a := &n.addrs[i]
		if a.ip.Is4() || a.awaitsDAD != "" {
			continue
		}
		if best == nil || n.preferred6(a, best, dev, dst, unknown) {
			best = a
		}
	}
	return best
}

// preferred6 tells whether RFC 6724 prefers a to b: the first rule in which they differ decides (ipv6_get_saddr_eval in
// net/ipv6/addrconf.c).
func (n *Network) preferred6(a, b *address, dev string, dst netip.Addr, unknown int) bool {
	if sa, sb, sd := scope6(a.ip), scope6(b.ip), scope6(dst); sa != sb { // rule 2: appropriate scope
		if sa < sb {
			return sa >= sd
		}
		return sb < sd
	}
	if a.deprecated != b.deprecated { // rule 3
		return b.deprecated
	}
	if ofA := a.dev == dev; ofA != (b.dev == dev) { // rule 5: outgoing interface
		return ofA
	}
	label := n.label6(dst, dev)
	if same := n.label6(a.ip, a.dev) == label; same != (n.label6(b.ip, b.dev) == label) { // rule 6
		return same
	}
	if wanted := a.temporary == a.wanted[unknown]; wanted != (b.temporary == b.wanted[unknown]) { // rule 7
		return wanted
	}
	return common6(a, dst) > common6(b, dst) // rule 8
}

// readTemporary notes of each IPv6 address whether its interface prefers temporary ones (use_tempaddr of two and more).
func (n *Network) readTemporary() {
	for i := range n.addrs {
		a := &n.addrs[i]
		if a.ip.Is4() {
			continue
		}
		a.wanted = [2]bool{asTemporary: true}
		if v, err := strconv.Atoi(n.sysctl["net/ipv6/conf/"+a.dev+"/use_tempaddr"]); err == nil {
			a.wanted = [2]bool{v >= 2, v >= 2}
		}
		n.temporaries = n.temporaries || a.temporary
	}
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
