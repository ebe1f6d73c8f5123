// SPDX-License-Identifier: Apache-2.0

package op

import (
	"net/netip"
	"slices"

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

// Back is what a rule asks about the route back to a packet's source: Loose takes any interface, and not only the one
// that the packet came in by; Local also takes the node's own addresses; Mark looks the route up with the packet's
// mark, instead of none.
type Back struct{ Loose, Local, Mark bool }

// RouteBack tells whether there is such a route (rpfilter_mt in net/ipv4/netfilter/ipt_rpfilter.c and
// net/ipv6/netfilter/ip6t_rpfilter.c, nft_fib4_eval and nft_fib6_eval in net/ipv4/netfilter/nft_fib_ipv4.c and
// net/ipv6/netfilter/nft_fib_ipv6.c). The lookup is that of a packet from the destination that comes in by lo.
func RouteBack(c *netfilter.Context, b Back) Truth {
	p := c.Packet
	in := p.In
	if in == "lo" {
		return Yes
	}
	// Whether the protocol is looked up depends on the kernel's version.
	q := host.Query{Dst: p.Src, Src: p.Dst, In: "lo", TOS: p.TOS, AnyTOS: p.AnyTOS}
	if b.Mark {
		q.Mark = p.Mark
	}
	r := c.Host.Lookup(q)
	by := func(dev string) bool {
		return slices.ContainsFunc(r.NextHops(), func(h host.Hop) bool { return h.Dev == dev })
	}
	switch {
	case !r.Known:
		return Maybe
	case r.Type == host.RouteLocal && !b.Local, r.Type != host.RouteUnicast && r.Type != host.RouteLocal:
		return No
	case b.Loose, in != "" && by(in):
		return Yes
	case in == netfilter.UnknownIface, r.Type == host.RouteLocal, by(""):
		return Maybe
	}
	return No
}

// RouteTo is a lookup of the route to a packet's destination, or to its Source, with its Mark or with none, as of a
// packet that comes in by an interface.
type RouteTo struct {
	Source, Mark bool
	In           string
}

// RouteDevs returns the interfaces of that route; none where there is none, or it is the node itself.
func RouteDevs(c *netfilter.Context, r RouteTo) (devs []string, known bool) {
	p := c.Packet
	if !p.Src.IsValid() || !p.Dst.IsValid() || netfilter.IsUnknown(r.In) {
		return nil, false
	}
	q := host.Query{Dst: p.Dst, Src: p.Src, In: r.In, TOS: p.TOS, AnyTOS: p.AnyTOS}
	if r.Source {
		q.Dst, q.Src = q.Src, q.Dst
	}
	if r.Mark {
		q.Mark = p.Mark
	}
	l := c.Host.Lookup(q)
	switch {
	case !l.Known, l.Type == host.RouteBroadcast, l.Type == host.RouteMulticast, q.Dst.IsLinkLocalUnicast():
		return nil, false
	case l.Type != host.RouteUnicast:
		return nil, true
	}
	for _, h := range l.NextHops() {
		if h.Dev == "" {
			return nil, false
		}
		devs = append(devs, h.Dev)
	}
	return devs, len(devs) > 0
}
