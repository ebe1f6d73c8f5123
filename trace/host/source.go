// SPDX-License-Identifier: Apache-2.0

package host

import "net/netip"

// buildTables prepares the tables once all files were read. Next hops of IPv4 routes without a preferred source get the
// one that the kernel computes when the route is added (fib_info_update_nhc_saddr in net/ipv4/fib_semantics.c).
func (n *Network) buildTables() {
	n.readTemporary()
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

// NoMasquerade tells whether MASQUERADE drops all packets of IPv4 that leave by an interface: neither that nor another
// one has an address that is not confined to the host or the link (nf_nat_masquerade_ipv4).
func (n *Network) NoMasquerade(dev string) bool {
	return n.addrs != nil && n.master != nil && !n.mayBeInVRF(dev) &&
		!n.selectAddress(dev, netip.Addr{}, scopeGlobal).IsValid()
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
// wide as scope, preferably one whose subnet contains near; failing that, one of any other interface. With
// route_localnet an address of the host counts as one of the link.
func (n *Network) selectAddress(dev string, near netip.Addr, scope uint8) netip.Addr {
	var first netip.Addr
	narrowest := scopeHost
	if yes, _ := n.routesLoopback(dev); yes {
		narrowest = scopeLink
	}
	for _, i := range n.devs[dev] {
		a := &n.addrs[i]
		if !a.ip.Is4() || a.secondary || min(a.scope, narrowest) > scope {
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
