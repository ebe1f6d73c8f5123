// SPDX-License-Identifier: Apache-2.0

package op

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// LocalOn tells whether an address is the node's own, on an interface where one is named.
func LocalOn(c *netfilter.Context, a netip.Addr, dev string) Truth {
	local, ok := c.Host.Local(a)
	switch {
	case !ok:
		return Maybe
	case !local:
		return No
	case dev == "":
		return Yes
	case dev == netfilter.UnknownIface:
		return Maybe
	case a.IsLoopback():
		return Is(dev == "lo")
	}
	for _, d := range c.Host.Devs() {
		if c.Host.PrimaryAddress(d, a.Is4()) == a {
			return Is(d == dev)
		}
	}
	return Maybe
}

// RouteBack tells whether there is a route back to the packet's source by the interface that it came in by; loose takes
// any interface, local also takes the node's own addresses (net/ipv4/netfilter/ipt_rpfilter.c,
// net/ipv6/netfilter/ip6t_rpfilter.c).
func RouteBack(c *netfilter.Context, loose, local bool) Truth {
	in := c.Packet.In
	if in == "lo" {
		return Yes
	}
	r, ok, _ := c.Host.Route(c.Packet.Src)
	switch {
	case !ok:
		return Maybe
	case r.Type == host.RouteLocal && !local, r.Type != host.RouteUnicast && r.Type != host.RouteLocal:
		return No
	case loose, r.Dev == in && in != "":
		return Yes
	case in == netfilter.UnknownIface, r.Dev == "", r.Type == host.RouteLocal:
		return Maybe
	}
	return No
}
