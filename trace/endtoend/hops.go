// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// hopsOf is the TTL or hop limit of packets that a network namespace sends by an interface, with the setting
// (ip_select_ttl in include/net/ip.h, ip6_dst_hoplimit in net/ipv6/output_core.c); ok is false where it was not
// collected.
func hopsOf(s *nodestate.State, dev string, v4 bool) (hops int, setting string, ok bool) {
	key := "net/ipv6/conf/" + dev + "/hop_limit"
	if v4 {
		key = "net/ipv4/ip_default_ttl"
	}
	value, there := s.Host.Sysctl(key)
	hops, err := strconv.Atoi(value)
	return hops, key + "=" + value, there && err == nil && hops > 0
}

// outOfHops is the segment of a packet that is discarded by the last of so many nodes which have to forward it
// (ip_forward in net/ipv4/ip_forward.c, ip6_forward in net/ipv6/ip6_output.c).
func outOfHops(
	code, segment, place, what, sender string, s *nodestate.State, dev string, v4 bool, forwards int,
) (seg report.Segment, lost bool) {
	hops, setting, ok := hopsOf(s, dev, v4)
	if !ok || hops > forwards {
		return seg, false
	}
	field := "hop limit"
	if v4 {
		field = "TTL"
	}
	counted := "a node on the way forwards them"
	if forwards > 1 {
		counted = "two nodes on the way forward them"
	}
	seg = wrong(code, segment, place, "a setting of the kernel", "%s: %s sends packets with a %s of %d, and %s", what,
		sender, field, hops, counted)
	return with(seg, setting+" ("+sender+")"), true
}

// firstHop judges the hops of a pod's packets that its own node forwards to another one.
func (f *follower) firstHop(place string) (s report.Segment, lost bool) {
	if f.fromPod == nil {
		return s, false
	}
	return outOfHops(EndpointNodeDrops, report.SegmentNetwork, place, "the client's packets are not forwarded",
		podPlace(f.Pod), f.Client.Pods[f.Pod].State, f.fromPod.end.Packet.Out, f.end.Packet.Dst.Is4(), 1)
}

// requestHops judges the hops of the client's packets where the endpoint's node forwards them, or the client's own to
// another interface: a bridge takes none.
func (f *follower) requestHops(place string) (s report.Segment, lost bool) {
	const what = "the client's packets are not forwarded"
	v4, forwards := f.end.Packet.Dst.Is4(), 1
	if f.sameNode() && f.end.Packet.Out == f.Start.Packet.In {
		return s, false
	}
	if f.fromPod != nil {
		if !f.sameNode() {
			forwards++ // the client's node
		}
		return outOfHops(EndpointNodeDrops, report.SegmentEndpointNode, place, what, podPlace(f.Pod),
			f.Client.Pods[f.Pod].State, f.fromPod.end.Packet.Out, v4, forwards)
	}
	if f.Outside || f.Pod != "" || f.sameNode() {
		return s, false
	}
	return outOfHops(EndpointNodeDrops, report.SegmentEndpointNode, place, what, nodePlace(f.Client.Name),
		f.Client.State, f.end.Packet.Out, v4, forwards)
}

// answerHops judges the hops of the answer where the client's node is the last that forwards it. out is the interface
// by which the endpoint sends it.
func (f *follower) answerHops(out string) (s report.Segment, lost bool) {
	from, sender, forwards := f.node.State, nodePlace(f.node.Name), 1
	switch {
	case f.sameNode() && f.end.Packet.Out == f.Start.Packet.In, f.Start.Hook != netfilter.Prerouting:
		return s, false
	case f.inPod != nil:
		from, sender = f.podState(), podPlace(f.to.Pod)
		if !f.sameNode() {
			forwards++ // the endpoint's node
		}
	case f.sameNode():
		return s, false
	}
	place := nodePlace(f.Client.Name)
	if forwards > 1 {
		place = nodePlace(f.node.Name) + " to " + place
	}
	return outOfHops(EndToEndAnswerLost, report.SegmentAnswer, place, "the answer is not forwarded", sender, from, out,
		f.end.Packet.Dst.Is4(), forwards)
}
