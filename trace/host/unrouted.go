// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"slices"
)

// Unrouted tells whether the node does not take packets to an address that one of its interfaces has: no table has the
// local route that the kernel adds with the address, so that somebody has removed it. It is false where the routes of
// all tables were not collected.
func (n *Network) Unrouted(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	i := slices.IndexFunc(n.addrs, func(x address) bool { return x.ip == a && x.awaitsDAD == "" })
	if i < 0 || a.IsLoopback() {
		return false
	}
	f := n.family(a)
	if !f.allTables || f.tables[tableLocal] == nil {
		return false
	}
	if l := n.links[n.addrs[i].dev]; !l.up || !l.flags {
		return false // it may have gone with the interface
	}
	own := func(e entry) bool { return e.typ == RouteLocal }
	for _, t := range f.tables {
		if slices.ContainsFunc(t.at[netip.PrefixFrom(a, a.BitLen())], own) {
			return false
		}
	}
	return !slices.ContainsFunc(f.localNets, func(x localNet) bool { return x.prefix.Contains(a) })
}
