// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"slices"
)

// Uplink returns the interface of the family's default route in the main table, "" where there is none, where it is not
// known and where there are several with equal metrics.
func (n *Network) Uplink(v4 bool) string {
	a := anyAddr(v4)
	if t := n.family(a).tables[tableMain]; t != nil {
		return t.among(netip.PrefixFrom(a, 0))
	}
	return ""
}

// among returns the interface of the routes of one prefix that are preferred; "" where there are several.
func (t *table) among(p netip.Prefix) string {
	whole := table{bits: []int{p.Bits()}, at: t.at}
	e := whole.first(p.Addr())
	if e == nil || e.unknown != "" {
		return ""
	}
	return e.route().Dev
}

// Toward returns the interface of the main table's unicast route to an address; "" where there is none, or several.
func (n *Network) Toward(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return ""
	}
	e := n.family(a).tables[tableMain].first(a)
	if e == nil || e.unknown != "" || e.typ != RouteUnicast {
		return ""
	}
	return e.route().Dev
}

// HasGateway tells whether some route of any table goes to a gateway by an interface: hosts beyond the link are reached
// by it, too.
func (n *Network) HasGateway(dev string, v4 bool) bool {
	if v4 {
		return n.fam[0].gateways[dev]
	}
	return n.fam[1].gateways[dev]
}

// DefaultGateway tells whether an address is the gateway of a default route, of any table.
func (n *Network) DefaultGateway(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	for _, t := range n.family(a).tables {
		if t.defaultBy(a) {
			return true
		}
	}
	return false
}

// MainGateway tells whether an address is the gateway of a default route of the table main, that of ordinary packets.
func (n *Network) MainGateway(a netip.Addr) bool {
	return a.IsValid() && n.family(a).tables[tableMain].defaultBy(a)
}

// everyAddress are the prefixes of default routes; a table has those of one family.
var everyAddress = [...]netip.Prefix{netip.PrefixFrom(anyAddr(true), 0), netip.PrefixFrom(anyAddr(false), 0)}

// defaultBy tells whether a default route of a table leads to a gateway.
func (t *table) defaultBy(gateway netip.Addr) bool {
	if t == nil {
		return false
	}
	for _, all := range everyAddress {
		es := t.at[all]
		for i := range es {
			if slices.ContainsFunc(es[i].hops, func(h Hop) bool { return h.Gateway == gateway }) {
				return true
			}
		}
	}
	return false
}

// IfaceOf returns the interface by which a packet from src is assumed to come in, that of the node's own route back to
// src: lo for the node's own addresses. known is false where there is no such route, or several.
func (n *Network) IfaceOf(src netip.Addr) (dev string, known bool) {
	r := n.OwnRoute(src)
	if !r.Known || r.Dev == "" || r.Type != RouteUnicast && r.Type != RouteLocal {
		return "", false
	}
	return r.Dev, true
}

// OwnRoute is the route that the node's own packets to an address have before they have a source or a mark.
func (n *Network) OwnRoute(a netip.Addr) Lookup {
	return n.Lookup(Query{Dst: a, Src: anyAddr(a.Unmap().Is4()), Local: true, Bare: true})
}

// HasAddressOf tells whether an interface has an address of a family beside those of the link, which the kernel makes
// by itself, and no plugin of CNI hands out.
func (n *Network) HasAddressOf(dev string, v4 bool) bool {
	return slices.ContainsFunc(n.AddressesOn(dev), func(a netip.Addr) bool {
		return a.Is4() == v4 && !a.IsLinkLocalUnicast()
	})
}
