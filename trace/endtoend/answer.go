// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// answer walks the endpoint's answer back: out of its pod, through its node, over the network, through the client's
// node into the client's pod. Each namespace has what its own connection tracking knows of the request that it has
// seen.
func (f *follower) answer() report.Segment {
	const segment = report.SegmentAnswer
	if f.arrival == nil {
		return unknown(segment, "", f.to.Node, "conntrack -L", "it is not known how the request comes to the "+
			"endpoint's node")
	}
	if !f.arrival.start.Packet.Src.IsValid() {
		return unknown(segment, nodePlace(f.Client.Name), f.Client.Name, "conntrack -L",
			"the client's node gives the request one of several source addresses: to which the answer goes is not known")
	}
	if s, other := f.otherSource(); other {
		return s
	}
	by := f.arrival.end.Packet.Out // which the answer comes to the node by
	if f.inPod != nil {
		pod := f.podState()
		place := podPlace(f.to.Pod)
		f.inPod.answers = netfilter.Options{Bound: f.device()}
		res := f.inPod.walker.Answer(f.inPod.start, &f.inPod.end, "", f.inPod.answers)
		sent, bad := f.passes(pod, f.inPod.start.Packet.Family, &res, answered(f.inPod, netfilter.Sent))
		bad = f.keptAnswer(pod, place, f.inPod, &res, bad)
		if bad != nil {
			return f.lostAt(bad, pod, place)
		}
		if bad = f.goesOn(pod, f.inPod, "", &sent); bad != nil {
			return f.lostAt(bad, pod, place)
		}
		v := &veth{
			Connection: f.Connection, pod: pod, node: f.node, segment: segment, place: place, podPlace: place,
			noRoute: EndToEndAnswerLost, largest: f.largest(true), beside: besideOf(f.node, sent.Packet.Hop()),
		}
		return byEveryHop(&sent, func(p *netfilter.Packet) report.Segment {
			way := *v
			s, in, ok := way.leavesPod(p)
			if !ok {
				s.Message = theAnswer + s.Message
				return s
			}
			return way.eachReceiver(cmp.Or(in, by), func(in string) report.Segment { return f.answerAtNode(in, p) })
		})
	}
	if f.arrival.end.End != netfilter.Delivered {
		if s, lost := f.answerKept(f.node, by, &f.Start.Packet); lost {
			return s
		}
		return unknown(segment, podPlace(f.to.Pod), f.to.Node, enter("ip route get "+f.arrival.end.Packet.Src.String()),
			"the pod's return route was not read")
	}
	return f.answerAtNode(by, nil)
}

// otherSource tells whether a datagram that answers comes from another address than the one that was asked, so that no
// translation is known for it, and its client refuses it: that of a socket without an address of its own does, unless
// its process names the source itself. Connections of TCP have the address that was asked.
func (f *follower) otherSource() (s report.Segment, other bool) {
	at, state, place := f.inPod, f.podState(), podPlace(f.to.Pod)
	if at == nil {
		at, state, place = f.arrival, f.node.State, nodePlace(f.node.Name)
	}
	asked := &at.end.Packet
	x := f.socket
	if at.end.End != netfilter.Delivered || asked.Proto != netfilter.UDP || x == nil ||
		x.Address.IsValid() && !x.Address.IsUnspecified() {
		return s, false
	}
	get := "ip route get " + asked.Src.String()
	if at == f.inPod {
		get = enter(get)
	}
	const unless = "unless the process answers from the address to which the request was sent (IP_PKTINFO)"
	switch r := netfilter.AnswerRoute(state.Host, asked, x.Device); {
	case r.Known && (r.Unusable() || r.PrefSrc == asked.Dst):
		return s, false
	case !r.Known || !r.PrefSrc.IsValid():
		s = unknown(report.SegmentAnswer, place, f.to.Node, get, "from which address the socket answers is not known, as "+
			"it has none, and the route back decides, %s", unless)
	default:
		s = unknown(report.SegmentAnswer, place, f.to.Node, get, "the socket has no address, and answers from %s, that of "+
			"the route back to %s, and not from %s, %s", r.PrefSrc, asked.Src, asked.Dst, unless)
	}
	return with(s, "ss: "+socketText(x)), true
}

// answerAtNode judges the answer from the endpoint's node on, to which it comes by an interface. was is the answer as
// the pod has sent it; nil where that has the node's network namespace.
func (f *follower) answerAtNode(by string, was *netfilter.Packet) report.Segment {
	if !f.sameNode() {
		a := f.arrival
		place := nodePlace(f.node.Name)
		a.answers = netfilter.Options{Enters: true, Bound: f.device(), Was: was}
		res := a.walker.Answer(a.start, &a.end, by, a.answers)
		sent, bad := f.passes(f.node.State, a.start.Packet.Family, &res, answered(a, netfilter.Sent))
		bad = f.keptAnswer(f.node.State, f.node.Name, a, &res, bad)
		if bad != nil {
			return f.lostAt(bad, f.node.State, place)
		}
		if bad = f.goesOn(f.node.State, a, by, &sent); bad != nil {
			return f.lostAt(bad, f.node.State, place)
		}
		if s, lost := f.answerKept(f.node, by, &sent.Packet); lost && was != nil {
			return s
		}
		return byEveryHop(&sent, func(p *netfilter.Packet) report.Segment { return f.answerLeaves(p, was) })
	}
	in := ""
	if f.end.End != netfilter.Delivered {
		in = by
	}
	return f.backAtClient(in, nil, was)
}

// answerLeaves judges the answer from where it leaves the endpoint's node on. was is the answer as the endpoint's pod
// has sent it; nil where that has the node's network namespace.
func (f *follower) answerLeaves(p, was *netfilter.Packet) report.Segment {
	if s, lost := f.otherWay(p); lost {
		return s
	}
	if s, lost := f.blackHole(p, nil); lost {
		return s
	}
	x := f.cross(f.node, f.Client, p, f.to.At.Port())
	x.largest = f.largest(true)
	s, in := x.judge(nodePlace(f.node.Name) + " to " + nodePlace(f.Client.Name))
	if s.Verdict != report.SegmentRight {
		s.Segment = report.SegmentAnswer
		s.Message = theAnswer + s.Message
		return s
	}
	f.carried = x.carried(in)
	return f.backAtClient(in, p, was)
}

// keptAnswer is what stands against an answer that a namespace gives to its own sockets, which know nothing of the
// connection: the client is elsewhere.
func (f *follower) keptAnswer(
	s *nodestate.State, who string, p *passed, res *netfilter.Result, bad *trouble,
) *trouble {
	if bad == nil || !bad.unknown {
		return bad
	}
	if own := f.kept(s, res, p.start.Packet.Src, who, "the answer"); own != nil {
		return own
	}
	return bad
}

// answered tells whether the answer to a walk's packet comes to its end with the addresses of the connection.
func answered(p *passed, end netfilter.End) func(*netfilter.Outcome) bool {
	return func(o *netfilter.Outcome) bool { return o.End == end && netfilter.Answered(p.start, o) }
}

// lostAt is the segment of an answer that is lost in a namespace.
func (f *follower) lostAt(t *trouble, s *nodestate.State, place string) report.Segment {
	command, node := "nft list ruleset; iptables-save", s.Name
	if t.noRoute {
		command = "ip route"
	}
	if place == podPlace(f.to.Pod) || place == podPlace(f.Pod) {
		command = enter(command)
	}
	t.message = cmp.Or(t.packet, "the answer") + ": " + t.message
	return t.segment(EndToEndAnswerLost, report.SegmentAnswer, place, node, command)
}

// theAnswer begins what is said of it in words that others have, too.
const theAnswer = "the answer: "

// backAtClient walks the answer through the client's node, which it comes to by in, and into the client's pod. back is
// the answer as it has left the endpoint's node, if that is another one; was as it has left the endpoint's pod, if that
// has its own network namespace.
func (f *follower) backAtClient(in string, back, was *netfilter.Packet) report.Segment {
	const segment = report.SegmentAnswer
	first := f.firstWalk()
	want := netfilter.Sent
	if f.Start.Hook == netfilter.Output {
		want = netfilter.Delivered
	}
	first.answers = netfilter.Options{Enters: in != "", Bound: f.device(), Was: cmp.Or(back, was), Mark: f.carried}
	res := first.walker.Answer(f.Start, f.end, in, first.answers)
	sent, bad := f.passes(f.Client.State, f.Start.Packet.Family, &res, answered(first, want))
	if want == netfilter.Sent {
		bad = f.keptAnswer(f.Client.State, f.Client.Name, first, &res, bad)
	}
	if bad != nil && bad.unknown {
		if s, lost := f.untranslated(&res); lost {
			return s
		}
	}
	if bad != nil {
		return f.lostAt(bad, f.Client.State, nodePlace(f.Client.Name))
	}
	if by := slices.DeleteFunc([]*netfilter.Packet{was, back, &sent.Packet}, func(p *netfilter.Packet) bool {
		return p == nil
	}); len(by) > 1 {
		if s, lost := f.answerHops(by...); lost {
			return s
		}
	}
	if want == netfilter.Sent {
		if s, lost := f.answerKept(f.Client, in, &sent.Packet); lost {
			return s
		}
		if s, lost := f.blackHole(back, &sent.Packet); lost {
			return s
		}
	}
	if f.Outside {
		return byEveryHop(&sent, f.leaves)
	}
	if f.Pod == "" {
		return right(segment, nodePlace(f.Client.Name), "back at the client, from %s", f.Start.Packet.Dst)
	}
	place := podPlace(f.Pod)
	if f.fromPod == nil {
		return unknown(segment, place, f.Client.Name, enter("iptables-save"),
			"back at the pod's interface %s; what the pod does with it is not known, as the pod's own walk is not",
			sent.Packet.Out)
	}
	dev := f.fromPod.end.Packet.Out
	pod := f.Client.Pods[f.Pod].State
	v := &veth{
		Connection: f.Connection, pod: pod, node: f.Client, segment: segment, place: nodePlace(f.Client.Name),
		podPlace: place, noRoute: EndToEndAnswerLost, largest: f.largest(true), came: in,
	}
	if s := f.podState(); s != nil && f.inPod != nil && f.sameNode() {
		v.sender = s.Host.MAC(f.inPod.end.Packet.In)
	}
	if _, end := pairBelow(pod.Host, f.Client.Host, dev); end != "" {
		if s, ok := v.entersPod(&sent.Packet, f.Start.Packet.Src, ""); !ok {
			s.Message = theAnswer + s.Message
			return s
		}
		dev = v.dev
	}
	was = &netfilter.Packet{TOS: sent.Packet.TOS, AnyTOS: sent.Packet.AnyTOS}
	f.fromPod.answers = netfilter.Options{Enters: true, Was: was}
	res = f.fromPod.walker.Answer(f.fromPod.start, &f.fromPod.end, dev, f.fromPod.answers)
	sent, bad = f.passes(pod, f.Start.Packet.Family, &res, answered(f.fromPod, netfilter.Delivered))
	if bad == nil {
		bad = f.goesOn(pod, f.fromPod, dev, &sent)
	}
	if bad != nil {
		return f.lostAt(bad, pod, place)
	}
	return right(segment, place, "back at the client, from %s", f.Start.Packet.Dst)
}

// answerKept tells whether a node does not forward the answer, which comes in by an interface of it.
func (f *follower) answerKept(n *Node, in string, p *netfilter.Packet) (s report.Segment, lost bool) {
	off := ""
	if in != "" && !netfilter.IsUnknown(in) {
		off = forwardingOff(n.State, in, p.Dst.Is4())
	}
	if off == "" {
		return s, false
	}
	return with(wrong(EndToEndAnswerLost, report.SegmentAnswer, nodePlace(n.Name), "a setting of the kernel",
		"the node does not forward the answer, which comes in by %s", in), off), true
}

// untranslated tells whether the answer is certain to come to the client from the endpoint's own address: connection
// tracking does not translate it back, and the client has not asked that address.
func (f *follower) untranslated(res *netfilter.Result) (s report.Segment, lost bool) {
	for i := range res.Outcomes {
		o := &res.Outcomes[i]
		p := &o.Packet
		arrives := o.End == netfilter.Sent || o.End == netfilter.Delivered
		asItWas := p.Dst == f.Start.Packet.Src && netip.AddrPortFrom(p.Src, p.SrcPort) == f.to.At
		if !o.Certain || !arrives || !asItWas {
			return s, false
		}
	}
	unread := rulesUnread(f.Client.State, f.Start.Packet.Family)
	if len(res.Outcomes) == 0 || f.to.At == f.frontend() || res.Ended != "" || unread != "" {
		return s, false
	}
	return wrong(EndToEndAnswerLost, report.SegmentAnswer, nodePlace(f.Client.Name), "",
		"the node does not translate the answer back: the client gets it from %s, and not from %s", f.to.At,
		f.frontend()), true
}

// otherWay tells whether the endpoint's node sends the answer to a client outside of the cluster by another next hop
// than the node that the request came in to. That one alone knows the connection's translation
// (nf_nat_packet in net/netfilter/nf_nat_core.c): the client gets an answer from an address that it has not asked, and
// refuses it.
func (f *follower) otherWay(p *netfilter.Packet) (s report.Segment, lost bool) {
	local, known := f.Client.Host.Local(p.Dst)
	if !f.Outside || p.Dst != f.Start.Packet.Src || !known || local {
		return s, false
	}
	hop := p.Hop()
	if local, known = f.Client.Host.Local(hop); !known || local {
		return s, false
	}
	s = wrong(EndToEndAnswerLost, report.SegmentAnswer, nodePlace(f.node.Name), "",
		"the answer goes directly to %s, as %s has not translated the source address: the client gets it from %s, and "+
			"not from %s", p.Dst, f.Client.Name, f.to.At, f.frontend())
	s.Untranslated = true
	return with(s, fmt.Sprintf("ip route get %s: %s dev %s", p.Dst, hop, p.Out)), true
}

// frontend is what the client connects to.
func (c *Connection) frontend() netip.AddrPort {
	return netip.AddrPortFrom(c.Start.Packet.Dst, c.Start.Packet.DstPort)
}

// leaves judges how the answer leaves the node that the request came in to, for a client outside of the cluster. What
// is behind the next hop is not known.
func (f *follower) leaves(p *netfilter.Packet) report.Segment {
	const segment = report.SegmentAnswer
	place, hop, own := nodePlace(f.Client.Name), p.Hop(), f.Client.Host
	if netfilter.IsUnknown(p.Out) || p.Out == "" {
		return unknown(segment, place, f.Client.Name, "ip route get "+p.Dst.String(),
			"the answer: the interface that it leaves by is not known")
	}
	if s, dead := lifeless(f.Client, p.Out, place); dead {
		s.Segment, s.Message = segment, theAnswer+s.Message
		return s
	}
	if e, there := own.Neighbour(p.Out, hop); there && e.Failed {
		return with(unknown(segment, place, f.Client.Name, "ip neigh show "+hop.String()+" dev "+p.Out,
			"the answer: when the node last asked for the link-layer address of %s, nothing answered", hop),
			fmt.Sprintf("ip neigh: %s dev %s %s", hop, p.Out, e.State))
	}
	s := right(segment, place, "leaves for %s by %s%s, from %s", p.Dst, p.Out, via(p.NextHop), f.frontend())
	if in := f.Start.Packet.In; in != "" && !netfilter.IsUnknown(in) && in != p.Out {
		s.Message += "; the request came in by " + in
	}
	return s
}
