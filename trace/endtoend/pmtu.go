// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// largest is how large the connection's packets may be, of the client or of the endpoint: of TCP each end sends none
// that are larger than its own route takes, and the other one announces (tcp_advertise_mss in net/ipv4/tcp_output.c); 0
// where nothing limits them.
func (f *follower) largest(back bool) (size int) {
	if f.end.Packet.Proto != netfilter.TCP {
		return 0
	}
	clamped, mss := f.clamped()
	if clamped && mss == 0 {
		return 1 // rules make them fit
	}
	for i, limits := range []func() (sends, takes int){f.clientLimits, f.endpointLimits} {
		limit, takes := limits()
		if (i == 0) == back {
			limit = takes
		}
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	if clamped && size > 0 {
		size = min(size, PacketOf(mss, f.end.Packet.Dst))
	}
	return size
}

// PacketOf is how large a packet of TCP to an address is that carries a segment of a size, in bytes, with headers
// without options (RFC 9293).
func PacketOf(mss int, to netip.Addr) int {
	const tcp = 20
	return mss + tcp + ipHeader(to)
}

// clamped tells whether a rule on the path of the request may make segments smaller, and to which size; 0 where they
// fit the links of the node that has the rule. Rules are taken to do the same to the answer.
func (f *follower) clamped() (clamped bool, mss int) {
	at := []*netfilter.Packet{&f.end.Packet}
	for _, p := range []*passed{f.fromPod, f.arrival, f.inPod} {
		if p != nil {
			at = append(at, &p.end.Packet)
		}
	}
	for _, p := range at {
		switch {
		case !p.Clamped:
		case p.MSS == 0:
			return true, 0
		case mss == 0 || int(p.MSS) < mss:
			clamped, mss = true, int(p.MSS)
		}
	}
	return clamped, mss
}

// clientLimits are how large packets may be that the client's pod sends, and those that it announces to take; 0 where
// that is not known.
func (f *follower) clientLimits() (sends, takes int) {
	if f.fromPod == nil {
		return 0, 0
	}
	return limitsOf(f.Client.Pods[f.Pod].Host, &f.fromPod.end.Packet)
}

// endpointLimits are clientLimits of the endpoint's pod.
func (f *follower) endpointLimits() (sends, takes int) {
	pod := f.podOf(f.to)
	if pod == nil {
		return 0, 0
	}
	p := netfilter.Packet{Src: f.to.At.Addr(), Dst: f.end.Packet.Src, Out: pod.Host.DevOf(f.to.At.Addr())}
	if l := pod.Host.Lookup(host.Query{Dst: p.Dst, Src: p.Src, AnyMark: true, AnyUID: true}); l.Known && l.Dev != "" {
		p.Out = l.Dev
	}
	return limitsOf(pod.Host, &p)
}

// limitsOf are how large packets may be that an end sends, and those that it announces to take: as large, unless its
// route has another size of segments.
func limitsOf(h *host.Network, p *netfilter.Packet) (sends, takes int) {
	sends, _ = limitOf(h, "", p, "")
	if !h.LimitsRoutes() {
		return sends, sends
	}
	l := h.Lookup(host.Query{Dst: p.Dst, Src: p.Src, AnyMark: true, AnyUID: true})
	if mss := l.By.AdvMSS(); l.Known && mss > 0 {
		return sends, PacketOf(mss, p.Dst)
	}
	return sends, sends
}

// podMTU is the MTU of an endpoint's pod; 0 where it was not read.
func (c *Connection) podMTU(e *Endpoint) int {
	p := c.podOf(e)
	if p == nil {
		return 0
	}
	return p.Host.MTU(p.Host.DevOf(e.At.Addr()))
}

// podOf is what was read of an endpoint's pod; nil where nothing was.
func (c *Connection) podOf(e *Endpoint) *Pod {
	n := c.Nodes[e.Node]
	if e.Node == c.Client.Name {
		n = c.Client
	}
	if n == nil {
		return nil
	}
	p, _ := podOf(n, e.Pod)
	return p
}

// largestOfAny is how large packets may be that the client's pod sends to any endpoint; 0 where nothing limits them.
func (c *Connection) largestOfAny() (size int) {
	if c.Start.Packet.Proto != netfilter.TCP {
		return 0
	}
	for i := range c.Endpoints {
		of := c.podMTU(&c.Endpoints[i])
		if of == 0 {
			return 0
		}
		size = max(size, of)
	}
	return size
}

// usual is the MTU that hosts outside of the cluster are taken to have.
const usual = 1500

// limitOf is how large packets may be that a namespace sends or forwards: the MTU of the interface that they leave by,
// of IPv6 its own setting (ip6_dst_mtu_maybe_forward in include/net/ip6_route.h), or that of the route
// (ip_dst_mtu_maybe_forward in include/net/ip.h); 0 where it is not known. line shows it.
func limitOf(h *host.Network, what string, p *netfilter.Packet, in string) (size int, line string) {
	size = h.MTU(p.Out)
	line = fmt.Sprintf("ip link %s: %s mtu %d", what, p.Out, size)
	if own, ok := h.MTU6(p.Out); ok && !p.Dst.Is4() && own < size {
		size, line = own, fmt.Sprintf("sysctl %s: net/ipv6/conf/%s/mtu=%d", what, p.Out, own)
	}
	if !h.LimitsRoutes() {
		return size, line
	}
	l := h.Lookup(host.Query{Dst: p.Dst, Src: p.Src, In: in, AnyMark: true})
	if limit := l.By.MTU(); l.Known && limit > 0 && (size == 0 || limit < size) {
		return limit, fmt.Sprintf("%s %s: mtu %d", l.By, what, limit)
	}
	return size, line
}

// stop is a namespace that a message passes by which a host learns that its packets are too large: first that of the
// router which sends it, then those on its way to the host.
type stop struct {
	*passed

	place, node, in string
}

func (x *stop) inPod() bool { return strings.HasPrefix(x.place, podPlace("")) }

// messageLost returns the rule that is certain to drop such a message, and where; nil if there is none.
func messageLost(about netfilter.Turn, stops []stop) (by netfilter.Ref, at *stop) {
	for i := range stops {
		x := &stops[i]
		var res netfilter.Result
		if i == 0 {
			res = x.walker.TooBig(x.start, &x.end, about, netip.Addr{})
		} else {
			res = x.walker.TooBigFrom(x.start, &x.end, about, x.in)
		}
		lost := res.Ended == "" && len(res.Outcomes) > 0 && res.Outcomes[0].Where.Chain != nil
		for k := range res.Outcomes {
			o := &res.Outcomes[k]
			lost = lost && o.Certain && (o.End == netfilter.Dropped || o.End == netfilter.Rejected)
		}
		if lost {
			return res.Outcomes[0].Where, x
		}
	}
	return by, nil
}

// hole is the segment of packets that are too large for a router, whose message about that is dropped.
func (f *follower) hole(segment string, about netfilter.Turn, dev string, stops []stop, lines ...string) (
	s report.Segment, lost bool,
) {
	by, at := messageLost(about, stops)
	if at == nil {
		return s, false
	}
	command := "nft list ruleset; iptables-save"
	if at.inPod() {
		command = enter(command)
	}
	end, what := "the client", "requests"
	if about == netfilter.Reply {
		end, what = "the endpoint", "answers"
	}
	s = unknown(segment, at.place, at.node, command,
		"%s drops %s, by which %s would learn that its packets are too large for %s: %s that are larger than one packet are "+
			"lost", by, netfilter.TooBigName(f.end.Packet.Family), end, dev, what)
	s.Code, s.Evidence = PMTUBlackHole, []report.Evidence{f.Cite(by)}
	return with(s, lines...), true
}

// clientStop is the client's pod, as the last stop; none where the client is elsewhere.
func (f *follower) clientStop() []stop {
	if f.fromPod == nil {
		return nil
	}
	return []stop{{f.fromPod, podPlace(f.Pod), f.Client.Name, f.fromPod.end.Packet.Out}}
}

// endpointStop is the endpoint's pod, as the last stop; none where the endpoint has its node's namespace.
func (f *follower) endpointStop() []stop {
	if f.inPod == nil {
		return nil
	}
	return []stop{{f.inPod, podPlace(f.to.Pod), f.to.Node, f.inPod.start.Packet.In}}
}

// sends is how large packets of the connection may be, with what shows that; 0 where that is not known, or nothing
// stands against any size. Outside of the cluster nobody is asked.
func (f *follower) sends(back bool) (size int, lines []string) {
	if size = f.largest(back); size <= 1 {
		return 0, nil
	}
	if f.Outside {
		size = min(size, usual)
	}
	if f.fromPod != nil {
		h, out := f.Client.Pods[f.Pod].Host, &f.fromPod.end.Packet
		lines = append(lines, fmt.Sprintf("ip link in %s: %s mtu %d", podPlace(f.Pod), out.Out, h.MTU(out.Out)))
	}
	if mtu := f.podMTU(f.to); mtu > 0 {
		lines = append(lines, fmt.Sprintf("ip link in %s: mtu %d", podPlace(f.to.Pod), mtu))
	}
	return size, lines
}

// firstWalk is the walk through the client's node.
func (f *follower) firstWalk() *passed {
	return &passed{walker: f.Walker(f.Client.State), start: f.Start, end: *f.end}
}

// fromClient is how large the client's packets may be that leave its node, with how large the node takes them.
func (f *follower) fromClient() (size, limit int, lines []string) {
	size, lines = f.sends(false)
	if size > 0 && f.fromPod != nil {
		most, _ := limitOf(f.Client.Pods[f.Pod].Host, "", &f.fromPod.end.Packet, "")
		size = min(size, cmp.Or(most, size))
	}
	limit, line := limitOf(f.Client.Host, "on "+f.Client.Name, &f.end.Packet, f.Start.Packet.In)
	return size, cmp.Or(limit, size), append(lines, line)
}

// clientHole tells whether large packets of the client's pod are lost on its node: they leave it by an interface of a
// smaller MTU than both ends have, and a rule of the pod drops the message that says so. What rules of the node do to
// it is judged with the node.
func (f *follower) clientHole(segment string) (s report.Segment, lost bool) {
	size, limit, lines := f.fromClient()
	if f.fromPod == nil || limit >= size {
		return s, false
	}
	s, lost = f.hole(segment, netfilter.Later, f.end.Packet.Out,
		append([]stop{{f.firstWalk(), nodePlace(f.Client.Name), f.Client.Name, ""}}, f.clientStop()...), lines...)
	return s, lost && s.Place == podPlace(f.Pod)
}

// endpointHole is clientHole for the endpoint's node, whose message the client's node passes, too.
func (f *follower) endpointHole() (s report.Segment, lost bool) {
	size, limit, lines := f.fromClient()
	a := f.arrival
	takes, line := limitOf(f.node.Host, "on "+f.node.Name, &a.end.Packet, a.start.Packet.In)
	if takes == 0 || takes >= min(size, limit) {
		return s, false
	}
	return f.hole(report.SegmentEndpointNode, netfilter.Later, a.end.Packet.Out, append([]stop{
		{a, nodePlace(f.node.Name), f.node.Name, ""},
		{f.firstWalk(), nodePlace(f.Client.Name), f.Client.Name, f.end.Packet.Out},
	}, f.clientStop()...), append(lines, line)...)
}

// blackHole tells whether large answers are lost on the endpoint's node, or then on the client's: they leave by an
// interface of a smaller MTU than both ends have, and a rule drops the message that says so to the endpoint. Each end
// announces the segments that it takes by its own MTU. back is the answer as it leaves the endpoint's node; last, as it
// leaves the client's, nil where it is not there yet.
func (f *follower) blackHole(back, last *netfilter.Packet) (s report.Segment, lost bool) {
	size, lines := f.sends(true)
	if size == 0 {
		return s, false
	}
	a := f.arrival
	own := []stop{{a, nodePlace(f.node.Name), f.node.Name, ""}}
	if back != nil {
		limit, line := limitOf(f.node.Host, "on "+f.node.Name, back, a.end.Packet.Out)
		lines = append(lines, line)
		if limit > 0 && limit < size {
			if f.inPod != nil && last == nil {
				return f.hole(report.SegmentAnswer, netfilter.Reply, back.Out, append(own, f.endpointStop()...), lines...)
			}
			size = limit
		}
	}
	if last == nil {
		return s, false
	}
	limit, line := limitOf(f.Client.Host, "on "+f.Client.Name, last, f.end.Packet.Out)
	if limit == 0 || limit >= size {
		return s, false
	}
	stops := []stop{{f.firstWalk(), nodePlace(f.Client.Name), f.Client.Name, ""}}
	if !f.sameNode() {
		own[0].in = a.start.Packet.In
		stops = append(stops, own...)
	}
	return f.hole(report.SegmentAnswer, netfilter.Reply, last.Out, append(stops, f.endpointStop()...),
		append(lines, line)...)
}
