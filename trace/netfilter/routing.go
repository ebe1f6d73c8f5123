// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// routed is the route that a packet has (skb_dst): it is looked up before a hook, and counts behind it.
type routed struct {
	known bool
	local bool       // to the node itself
	out   string     // UnknownIface where it is not known
	via   netip.Addr // the gateway
	mark  uint32     // the packet's mark at the lookup
	src   netip.Addr // and its source
}

// martian ends a branch that the node does not take for its destination, a loopback address, from outside. Where that
// is not known it is lost with one half, and goes on with the other.
func (w *Walker) martian(b *branch) bool {
	refused, known := w.host.Martian(b.pkt.In, b.pkt.Dst)
	// Whether the client's address is taken from where its answer comes in is asked only where settings tell: the first
	// packet would not have left otherwise (__mkroute_output in net/ipv4/route.c). IPv6 has no such setting.
	if known && !refused || !known && b.pkt.Turn.Answers() && b.pkt.Family == IPv4 {
		return false
	}
	what := "whether " + b.pkt.In + " takes packets to " + b.pkt.Dst.String()
	if !known {
		var lost branch
		lost, *b = w.fork(*b, martianKey{}, Uncertain{
			What: what,
			Why:  "that depends on settings (sysctl.txt) and routes that were not collected, or on the return route",
		})
		lost.last = &last{why: what}
		w.finish([]branch{lost}, Lost)
		return false
	}
	no := *b
	no.last = &last{why: "only lo takes packets to " + no.pkt.Dst.String()}
	w.finish([]branch{no}, NoRoute)
	return true
}

// loopedOutside tells whether a packet has the loopback address of IPv6 where it comes in by an interface of a link: no
// hook sees it (ip6_rcv_core in net/ipv6/ip6_input.c).
func (p *Packet) loopedOutside() bool {
	one := netip.IPv6Loopback()
	return (p.Src == one || p.Dst == one) && p.In != "lo" && !IsUnknown(p.In)
}

// martianKey stands for what Walker.martian asks.
type martianKey struct{}

// filtered ends branches that the kernel drops where it routes them, for the route back to their source, and returns
// the others. Where that is not known one half of a branch is.
func (w *Walker) filtered(bs []branch) []branch {
	if !w.opt.Enters {
		return bs
	}
	passed := bs[:0]
	for i := range bs {
		b := bs[i]
		if b.pkt.In == UnknownIface {
			passed = append(passed, b)
			continue
		}
		drop, _ := w.host.ReversePath(query(&b.pkt))
		switch {
		case drop.Drops():
			b.last = &last{why: drop.Setting, route: drop.Route, by: drop.By}
			w.finish([]branch{b}, Filtered)
			continue
		case drop.Unsure != "":
			var dropped branch
			dropped, b = w.fork(b, filterKey{b.pkt.In, b.pkt.Src}, Uncertain{
				What: "whether the reverse path filter of " + b.pkt.In + " lets packets from " + b.pkt.Src.String() + " pass",
				Why:  drop.Unsure,
			})
			dropped.last = &last{why: drop.Unsure, route: drop.Unsure}
			w.finish([]branch{dropped}, Filtered)
		}
		passed = append(passed, b)
	}
	return passed
}

// filterKey stands for what Walker.filtered asks.
type filterKey struct {
	in  string
	src netip.Addr
}

// byRoute sorts branches by whether their route is to the node itself; to both where that is not known.
func (w *Walker) byRoute(bs []branch) (local, other []branch) {
	beyond := 0
	for i := range bs {
		if r := &bs[i].pkt.route; r.known && !r.local {
			beyond++
		}
	}
	if beyond == len(bs) {
		return nil, bs
	}
	local, other = w.list(len(bs)), w.list(len(bs))
	for i := range bs {
		if r := &bs[i].pkt.route; r.known {
			if r.local {
				local = append(local, bs[i])
			} else {
				other = append(other, bs[i])
			}
			continue
		}
		local, other = w.byAddress(bs[i], local, other)
	}
	return local, other
}

// byAddress sorts a branch by whether its destination is an address of the node; to both where that is not known.
func (w *Walker) byAddress(b branch, local, other []branch) (l, o []branch) {
	is, known := w.host.Local(b.pkt.Dst)
	switch {
	case !known:
		what := Uncertain{
			What: "whether " + b.pkt.Dst.String() + " is an address of the node",
			Why:  "the node's addresses were not collected (ip-addr.json)",
		}
		if !b.pkt.Dst.IsValid() {
			what.What = "whether the packet goes to the node"
			what.Why = "which address its connection was translated to is not known (ip-addr.json, ip-route.json, " +
				"ip6-route.json)"
		}
		yes, no := w.fork(b, b.pkt.Dst, what)
		return append(local, yes), append(other, no)
	case is:
		return append(local, b), other
	}
	return local, append(other, b)
}

// RoutedMark is the mark that the packet had when its last route was looked up.
func (p *Packet) RoutedMark() uint32 { return p.route.mark }

// query is what the kernel looks up for a packet (ip_route_input_slow in net/ipv4/route.c, ip6_route_input in
// net/ipv6/route.c), or looks up again for one of a local process whose destination or mark has changed
// (ip_route_me_harder in net/ipv4/netfilter.c, ip6_route_me_harder in net/ipv6/netfilter.c).
func query(p *Packet) host.Query {
	q := host.Query{
		Dst: p.Dst, Src: p.Src, Local: p.Local, Mark: p.Mark, TOS: p.TOS, AnyTOS: p.AnyTOS, Proto: p.Proto,
		SrcPort: p.SrcPort, DstPort: p.DstPort, AnyUID: p.Local, Out: p.Bound,
	}
	if p.In != UnknownIface && !p.Local {
		q.In = p.In
	}
	return q
}

// route looks up the route of a packet as it is: of one that came in by Packet.In, or that a local process sends.
func (w *Walker) route(p *Packet) host.Lookup { return w.host.Lookup(query(p)) }

// take gives a branch a route, and appends it to out: once for each next hop, where there are several. What has no
// route ends. Where the route is not known, and may be none, or behind the translation lead to several next hops, the
// branch is lost with one half.
func (w *Walker) take(before Hook, b *branch, r host.Lookup, out []branch) []branch {
	if before == Forward && r.Known && r.Type == host.RouteLocal {
		before = Input
	}
	b.pkt.route = routed{out: UnknownIface, mark: b.pkt.Mark, src: b.pkt.Src}
	if !r.Known {
		if r.MayFail || r.Apart && before != Output {
			var lost branch
			about := routeKey{query(&b.pkt), r.Why}
			lost, *b = w.fork(*b, about, Uncertain{What: "the route to " + b.pkt.Dst.String(), Why: r.Why})
			lost.last = &last{why: r.Why}
			w.finish([]branch{lost}, Lost)
		}
		return append(out, *b)
	}
	w.routed(before, b, &r)
	if r.Unusable() {
		w.noRoute(*b, r.By)
		return out
	}
	if r.Type == host.RouteLocal && w.keeps(b, r.By) || w.toMany(before, b, &r) {
		return out
	}
	// A packet from outside to a broadcast address is the node's own (ip_route_input_slow, brd_input).
	b.pkt.route.known = true
	b.pkt.route.local = r.Type == host.RouteLocal || before == Forward && r.Type == host.RouteBroadcast
	if len(r.Hops) == 0 {
		b.pkt.route.by(r.Dev, r.Gateway)
		return append(out, *b)
	}
	return w.hops(*b, r.Hops, out)
}

// routeKey stands for a route that is not known.
type routeKey struct {
	q   host.Query
	why string
}

// by sets the next hop.
func (r *routed) by(dev string, gateway netip.Addr) {
	r.out, r.via = dev, gateway
	if dev == "" {
		r.out = UnknownIface
	}
}

// keeps ends a branch whose route keeps it on the node, though its destination is none of the node's addresses: no
// socket is there for it. A proxy that takes such packets has them by TPROXY.
func (w *Walker) keeps(b *branch, by host.Decision) bool {
	if local, known := w.host.Local(b.pkt.Dst); local || !known {
		return false
	}
	b.last = &last{why: "the route to " + b.pkt.Dst.String() + " keeps the packet on the node", by: by}
	w.finish([]branch{*b}, NoRoute)
	return true
}

// toMany ends a branch to one host whose route says that many have the address. Of what comes in the node refuses
// what a route of the type multicast is for (ip_route_input_slow, martian_destination). What a local process sends
// leaves for all hosts of the link (arp_constructor in net/ipv4/arp.c), and none takes it for its own or forwards it
// (tcp_v4_rcv in net/ipv4/tcp_ipv4.c, ip_forward in net/ipv4/ip_forward.c), if the kernel lets it connect at all
// (tcp_v4_connect). Of other protocols than TCP that depends on the socket: one half is lost.
func (w *Walker) toMany(before Hook, b *branch, r *host.Lookup) bool {
	p := &b.pkt
	switch {
	case p.Family != IPv4, p.Dst.IsMulticast(), p.Dst == netip.AddrFrom4([4]byte{255, 255, 255, 255}),
		r.Type != host.RouteMulticast && (r.Type != host.RouteBroadcast || before == Forward):
		return false
	}
	why := "only a route of the type " + string(r.Type) + " to " + p.Dst.String()
	if before == Forward || p.Proto == TCP {
		b.last = &last{why: why, by: r.By}
		w.finish([]branch{*b}, NoRoute)
		return true
	}
	var lost branch
	lost, *b = w.fork(*b, routeKey{query(p), why}, Uncertain{
		What: "the route to " + p.Dst.String(), Why: "the node has " + why + ", which sockets use that ask for it",
	})
	lost.last = &last{why: why}
	w.finish([]branch{lost}, Lost)
	return false
}

// maxHops is how many next hops of a route are followed one by one.
const maxHops = 8

// hops gives a branch each of several next hops. The kernel chooses by a hash: of the ports, too, with policy 1, so
// that the hops' weights are shares of the connections; else of the addresses alone, so that all connections of one
// origin have the same hop, and which one is not known (fib_multipath_hash in net/ipv4/route.c, rt6_multipath_hash in
// net/ipv6/route.c).
func (w *Walker) hops(b branch, hops []host.Hop, out []branch) []branch {
	if len(hops) > maxHops {
		return append(out, b)
	}
	key := "net/ipv4/fib_multipath_hash_policy"
	if b.pkt.Family == IPv6 {
		key = "net/ipv6/fib_multipath_hash_policy"
	}
	policy, _ := w.host.Sysctl(key)
	sum := 0
	for i := range hops {
		sum += hops[i].Weight
	}
	rest := b
	for i := range hops {
		next := rest
		switch {
		case policy == "1":
			next.p = b.p * float64(hops[i].Weight) / float64(sum)
		case i+1 < len(hops):
			next, rest = w.fork(rest, hopKey{b.pkt.Dst, hops[i].Dev, hops[i].Gateway}, Uncertain{
				What: "the next hop to " + b.pkt.Dst.String(),
				Why:  "the route has several next hops, and the kernel chooses by a hash of the addresses",
			})
		}
		next.pkt.route.by(hops[i].Dev, hops[i].Gateway)
		out = append(out, next)
	}
	return out
}

// hopKey stands for a next hop that may be chosen.
type hopKey struct {
	dst     netip.Addr
	dev     string
	gateway netip.Addr
}

// leave lets branches leave by the interface of their route.
func leave(bs []branch) []branch {
	for i := range bs {
		p := &bs[i].pkt
		p.Out, p.NextHop = p.route.out, p.route.via
	}
	return bs
}

// output routes a packet that a local process sends, before OUTPUT. What is looked up depends on the protocol and on
// when the socket gets its source, which the packet has already:
//
//   - IPv4, connected: once without a source, to choose it, and again with that (ip_route_connect in
//     include/net/route.h). A datagram whose socket is not connected has the first of these routes
//     (udp_sendmsg in net/ipv4/udp.c).
//   - IPv6: without a source; only where that has no route, again with a source (ip6_dst_lookup_tail in
//     net/ipv6/ip6_output.c).
//   - What TCP answers has the source from its beginning (inet_csk_route_req in net/ipv4/inet_connection_sock.c,
//     inet6_csk_route_req in net/ipv6/inet6_connection_sock.c).
func (w *Walker) output(b branch, out []branch) []branch {
	p := &b.pkt
	with := query(p)
	if p.Proto == TCP && p.Turn.Answers() {
		return w.take(Output, &b, w.host.Lookup(with), out)
	}
	first := sourceQuery(p.Proto, netip.AddrPortFrom(p.Dst, p.DstPort))
	first.Mark, first.Out, first.TOS, first.AnyTOS = p.Mark, p.Bound, p.TOS, p.AnyTOS
	r := w.host.Lookup(first)
	switch {
	case p.Family == IPv6 && (!r.Known || !r.Unusable()):
		return w.take(Output, &b, r, out)
	case p.Family == IPv6:
		return w.take(Output, &b, w.host.Lookup(with), out)
	case r.Known && r.Unusable(), !r.Known && r.MayFail:
		kept := len(out)
		if out = w.take(Output, &b, r, out); len(out) == kept {
			return out
		}
		b = out[kept]
		out = out[:kept]
	}
	again := w.host.Lookup(with)
	if p.Proto == TCP || sameRoute(&r, &again) {
		return w.take(Output, &b, again, out)
	}
	yes, no := w.fork(b, connectKey{p.Dst}, Uncertain{
		What: "the route to " + p.Dst.String(),
		Why: "it depends on whether the process connects its socket before it sends, as the source then counts: " +
			either(r.By, again.By),
	})
	return w.take(Output, &no, r, w.take(Output, &yes, again, out))
}

// connectKey stands for whether a socket is connected.
type connectKey struct{ dst netip.Addr }

func either(a, b host.Decision) string {
	if s := a.String(); s != "" {
		return s + "; or " + b.String()
	}
	return b.String()
}

func sameRoute(a, b *host.Lookup) bool {
	return a.Known == b.Known && a.MayFail == b.MayFail && a.Type == b.Type && a.Dev == b.Dev && a.Gateway == b.Gateway &&
		slices.Equal(a.Hops, b.Hops)
}

// reroute looks up the routes of a local process's packets again behind chains of OUTPUT that changed the destination
// (nat chains: nf_nat_ipv4_local_fn in net/netfilter/nf_nat_proto.c), or the mark or an address (route chains:
// ipt_mangle_out in net/ipv4/netfilter/iptable_mangle.c, nf_route_table_hook4 in net/netfilter/nft_chain_route.c). The
// interface that the hook's other chains see stays the old one.
func (w *Walker) reroute(s *slot, before *Packet, bs []branch, from int) []branch {
	if before.Resolves() {
		return bs // the interface is that of the neighbour, whatever its mark is
	}
	route := slices.ContainsFunc(s.chains, func(c *Chain) bool { return c.Base.Type == TypeRoute })
	changed := func(p *Packet) bool {
		return p.Dst != before.Dst ||
			route && (p.Mark != before.Mark || p.Src != before.Src || !p.SameTOS(before))
	}
	if !slices.ContainsFunc(bs[from:], func(b branch) bool { return changed(&b.pkt) }) {
		return bs
	}
	fresh := slices.Clone(bs[from:])
	bs = bs[:from]
	for i := range fresh {
		b := &fresh[i]
		if b.pkt.Virtual.IsValid() && !before.Virtual.IsValid() || !changed(&b.pkt) {
			bs = append(bs, *b) // what IPVS has scheduled it routes itself
			continue
		}
		q := query(&b.pkt)
		q.Local, q.In, q.AnyUID = true, "", true
		// Not all versions of the kernel look up IPv6 with the TOS here (ip6_route_me_harder in net/ipv6/netfilter.c).
		q.AnyTOS = q.AnyTOS || b.pkt.Family == IPv6 && q.TOS != 0
		bs = w.take(Postrouting, b, w.host.Lookup(q), bs)
	}
	return bs
}

// resendRoute looks up the route to a real server as IPVS does, by the destination alone (do_output_route4 and
// __ip_vs_route_output_v6 in net/netfilter/ipvs/ip_vs_xmit.c).
func (w *Walker) resendRoute(bs []branch) []branch {
	var out []branch
	for i := range bs {
		out = w.take(Output, &bs[i], w.host.OwnRoute(bs[i].pkt.Dst), out)
	}
	return leave(out)
}

func (w *Walker) noRoute(b branch, by host.Decision) {
	b.last = &last{why: "no route to " + b.pkt.Dst.String(), by: by}
	w.finish([]branch{b}, NoRoute)
}

// routed records a routing decision.
func (w *Walker) routed(before Hook, b *branch, r *host.Lookup) {
	if !w.opt.Steps {
		return
	}
	for i := range w.routes {
		if x := &w.routes[i]; x.Before == before && x.Dst == b.pkt.Dst && x.Route == r.Route && x.By == r.By {
			x.P += b.p
			return
		}
	}
	if len(w.routes) < maxRoutes {
		w.routes = append(w.routes, RouteStep{before, len(w.steps), b.pkt.Dst, r.Route, r.By, b.p})
	}
}

// maxRoutes is how many routing decisions are recorded; a walk takes as many as there are endpoints, twice.
const maxRoutes = 1 << 10

// sourceQuery is the lookup that chooses the source of a local process's packet: it has none, and of connections no
// port either.
func sourceQuery(proto uint8, dst netip.AddrPort) host.Query {
	return host.Query{
		Dst: dst.Addr(), Src: unspecified(dst.Addr()), Local: true, Proto: proto, DstPort: dst.Port(),
		NoSrcPort: proto == TCP, AnyUID: true,
	}
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Unmap().Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// SourceRoute looks up the route that chooses the source of a local process's packet to dst ([SourceFor]).
func SourceRoute(h *host.Network, proto uint8, dst netip.AddrPort) host.Lookup {
	return h.Lookup(sourceQuery(proto, dst))
}

// AnswerRoute looks up the route of the datagram by which a socket without an address of its own answers a packet that
// was delivered to it. Its PrefSrc is the answer's source, whatever address the packet had been sent to (udp_sendmsg in
// net/ipv4/udp.c, ip6_dst_lookup_tail in net/ipv6/ip6_output.c). dev is the interface that the socket is bound to; ""
// for none.
func AnswerRoute(h *host.Network, p *Packet, dev string) host.Lookup {
	q := sourceQuery(p.Proto, netip.AddrPortFrom(p.Src, p.SrcPort))
	q.SrcPort, q.Out = p.DstPort, dev
	return h.Lookup(q)
}

// SourceFor returns the address that a local process's packet to dst carries as its source: that of the route to it
// before any translation, and for the node's own addresses the destination itself. The zero Addr when it is not known.
func SourceFor(h *host.Network, proto uint8, dst netip.AddrPort) netip.Addr {
	if r := SourceRoute(h, proto, dst); r.Known && !r.Unusable() {
		return r.PrefSrc
	}
	if local, known := h.Local(dst.Addr()); known && local {
		return dst.Addr()
	}
	return netip.Addr{}
}
