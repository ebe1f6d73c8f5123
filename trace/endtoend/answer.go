// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
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
	back := "the answer"
	if f.inPod != nil {
		pod := f.podState()
		place := podPlace(f.to.Pod)
		res := f.inPod.walker.Answer(f.inPod.start, &f.inPod.end, "", netfilter.Options{})
		_, bad := f.passes(pod, f.inPod.start.Packet.Family, &res, answered(f.inPod, netfilter.Sent))
		if bad != nil {
			return f.lostAt(bad, pod, place)
		}
	} else if f.arrival.end.End != netfilter.Delivered {
		return unknown(segment, podPlace(f.to.Pod), f.to.Node, enter("ip route get "+f.arrival.end.Packet.Src.String()),
			"the pod's way back was not read")
	}
	in := ""
	if !f.sameNode() {
		a := f.arrival
		place := nodePlace(f.node.Name)
		res := a.walker.Answer(a.start, &a.end, a.end.Packet.Out, netfilter.Options{Enters: true})
		sent, bad := f.passes(f.node.State, a.start.Packet.Family, &res, answered(a, netfilter.Sent))
		if bad != nil {
			return f.lostAt(bad, f.node.State, place)
		}
		p := &sent.Packet
		x := &crossing{f.Connection, f.node, f.Client, p.Out, hopOf(p), p.Mark, p.Proto, f.to.At.Port()}
		s, by := x.judge(nodePlace(f.node.Name) + " to " + nodePlace(f.Client.Name))
		if s.Verdict != report.SegmentRight {
			s.Segment = segment
			s.Message = back + ": " + s.Message
			return s
		}
		in = by
	} else if f.end.End != netfilter.Delivered {
		in = f.end.Packet.Out
	}
	return f.backAtClient(in)
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
	t.message = "the answer: " + t.message
	return t.segment(EndToEndAnswerLost, report.SegmentAnswer, place, node, command)
}

// backAtClient walks the answer through the client's node, which it comes to by in, and into the client's pod.
func (f *follower) backAtClient(in string) report.Segment {
	const segment = report.SegmentAnswer
	first := &passed{f.Walker(f.Client.State), f.Start, *f.end}
	want := netfilter.Sent
	if f.Start.Hook == netfilter.Output {
		want = netfilter.Delivered
	}
	res := first.walker.Answer(f.Start, f.end, in, netfilter.Options{Enters: in != ""})
	sent, bad := f.passes(f.Client.State, f.Start.Packet.Family, &res, answered(first, want))
	if bad != nil {
		return f.lostAt(bad, f.Client.State, nodePlace(f.Client.Name))
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
	res = f.fromPod.walker.Answer(f.fromPod.start, &f.fromPod.end, dev, netfilter.Options{Enters: true})
	if _, bad = f.passes(pod, f.Start.Packet.Family, &res, answered(f.fromPod, netfilter.Delivered)); bad != nil {
		return f.lostAt(bad, pod, place)
	}
	return right(segment, place, "back at the client, from %s", f.Start.Packet.Dst)
}
