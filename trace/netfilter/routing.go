// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// martian ends a branch that the node does not take for its destination, a loopback address, from outside. Where that
// is not known it is lost with one half, and goes on with the other.
func (w *Walker) martian(b *branch) bool {
	refused, known := w.host.Martian(b.pkt.In, b.pkt.Dst)
	// Whether the client's address is taken from where its answer comes in is asked only where settings tell: the first
	// packet would not have left otherwise (__mkroute_output in net/ipv4/route.c).
	if known && !refused || !known && b.pkt.Turn == Reply {
		return false
	}
	what := "whether " + b.pkt.In + " takes packets to " + b.pkt.Dst.String()
	if !known {
		var lost branch
		lost, *b = w.fork(*b, martianKey{}, Uncertain{
			What: what,
			Why:  "that depends on settings (sysctl.txt) and routes that were not collected, or on the way back",
		})
		lost.why = what
		w.finish([]branch{lost}, Lost)
		return false
	}
	no := *b
	no.why = "only lo takes packets to " + no.pkt.Dst.String()
	w.finish([]branch{no}, NoRoute)
	return true
}

// filtered ends a branch that the kernel drops where it routes it, for the route back to its source.
func (w *Walker) filtered(b branch) bool {
	if !w.opt.Enters || b.pkt.In == UnknownIface {
		return false
	}
	if r, known := w.route(&b.pkt); known && unusable(r.Type) {
		return false // the route there is looked up first
	}
	drop, _ := w.host.ReversePath(host.Query{Dst: b.pkt.Dst, Src: b.pkt.Src, In: b.pkt.In, Mark: b.pkt.Mark})
	if drop == (host.Reverse{}) {
		return false
	}
	b.why, b.route = drop.Setting, drop.Route
	w.finish([]branch{b}, Filtered)
	return true
}

// martianKey stands for what Walker.martian asks.
type martianKey struct{}

// byAddress sorts a branch by whether its destination is an address of the node; to both where that is not known.
func (w *Walker) byAddress(b branch, local, other []branch) (l, o []branch) {
	is, known := w.host.Local(b.pkt.Dst)
	switch {
	case !known:
		yes, no := w.fork(b, b.pkt.Dst, Uncertain{
			What: "whether " + b.pkt.Dst.String() + " is an address of the node",
			Why:  "the node's addresses were not collected (ip-addr.json)",
		})
		return append(local, yes), append(other, no)
	case is:
		return append(local, b), other
	}
	return local, append(other, b)
}

// egress looks up the interface to leave by, in place, before a hook; what has no route ends.
func (w *Walker) egress(before Hook, bs []branch) []branch {
	out := bs[:0]
	for _, b := range bs {
		r, known := w.route(&b.pkt)
		if known {
			w.routed(before, &b, r)
		}
		switch {
		case !known:
			b.pkt.Out = UnknownIface
		case unusable(r.Type):
			w.noRoute(b)
			continue
		case r.Dev == "":
			b.pkt.Out = UnknownIface
		default:
			b.pkt.Out = r.Dev
		}
		out = append(out, b)
	}
	return out
}

// route looks up the route of a packet. For one that came in by an interface the routing rules may match source, mark
// and interface as they are (ip_route_input_slow in net/ipv4/route.c, ip6_route_input in net/ipv6/route.c); a process's
// is looked up before it has a source.
func (w *Walker) route(p *Packet) (r host.Route, known bool) {
	if p.Local || p.In == "" || p.In == UnknownIface {
		r, known, _ = w.host.Route(p.Dst)
		return r, known
	}
	r, known, _ = w.host.RouteIn(host.Query{Dst: p.Dst, Src: p.Src, In: p.In, Mark: p.Mark})
	return r, known
}

// unusable tells whether a route ends the packet.
func unusable(t host.RouteType) bool {
	return t == host.RouteNone || t == host.RouteBlackhole || t == host.RouteUnreachable || t == host.RouteProhibit
}

func (w *Walker) noRoute(b branch) {
	b.why = "no route to " + b.pkt.Dst.String()
	w.finish([]branch{b}, NoRoute)
}

// routed records a routing decision.
func (w *Walker) routed(before Hook, b *branch, r host.Route) {
	if !w.opt.Steps {
		return
	}
	for i := range w.routes {
		if x := &w.routes[i]; x.Before == before && x.Dst == b.pkt.Dst && x.Route == r {
			x.P += b.p
			return
		}
	}
	if len(w.routes) < maxRoutes {
		w.routes = append(w.routes, RouteStep{before, b.pkt.Dst, r, b.p})
	}
}

// maxRoutes is how many routing decisions are recorded; a walk takes as many as there are endpoints, twice.
const maxRoutes = 1 << 10

// routedIn records that packets are for the node itself.
func (w *Walker) routedIn(bs []branch) {
	for i := range bs {
		w.routed(Input, &bs[i], host.Route{Type: host.RouteLocal})
	}
}

// SourceFor returns the address that a local process's packet to dst carries as its source: that of the route, and for
// the node's own addresses the destination itself. The zero Addr when it is not known.
func SourceFor(h *host.Network, dst netip.Addr) netip.Addr {
	if local, known := h.Local(dst); known && local {
		return dst
	}
	if r, known, _ := h.Route(dst); known {
		return r.PrefSrc
	}
	return netip.Addr{}
}
