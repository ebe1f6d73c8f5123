// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// sent is a packet that a network namespace sends: by an interface, to an address, before that is translated.
type sent struct {
	dev      string
	src, dst netip.Addr
}

// hopsOf is the TTL or hop limit of a packet, with the route that has it, or else the setting (ip_select_ttl in
// include/net/ip.h, ip6_dst_hoplimit in net/ipv6/output_core.c); ok is false where it was not collected.
func hopsOf(s *nodestate.State, p sent) (hops int, by string, ok bool) {
	r := s.Host.Lookup(host.Query{Dst: p.dst, Src: p.src, AnyMark: true, AnyUID: true})
	if limit := r.By.HopLimit(); r.Known && limit > 0 {
		return limit, fmt.Sprintf("%s hoplimit %d", r.By, limit), true
	}
	key := "net/ipv6/conf/" + p.dev + "/hop_limit"
	if p.dst.Is4() {
		key = "net/ipv4/ip_default_ttl"
	}
	value, there := s.Host.Sysctl(key)
	hops, err := strconv.Atoi(value)
	return hops, key + "=" + value, there && err == nil && hops > 0
}

// outOfHops is the segment of a packet that is discarded by a node which has to forward it
// (ip_forward in net/ipv4/ip_forward.c, ip6_forward in net/ipv6/ip6_output.c). by has it as it leaves the sender, and
// each node that forwards it, with what rules there make of its TTL.
func outOfHops(
	code, segment, place, what, sender string, s *nodestate.State, p sent, by ...*netfilter.Packet,
) (seg report.Segment, lost bool) {
	hops, from, ok := hopsOf(s, p)
	if !ok {
		return seg, false
	}
	left := by[0].Raised.Behind.Of(hops)
	for _, node := range by[1:] {
		if left = node.Raised.Before.Of(left); left <= 1 {
			lost = true
			break
		}
		left = node.Raised.Behind.Of(left - 1)
	}
	if !lost {
		return seg, false
	}
	field := "hop limit"
	if p.dst.Is4() {
		field = "TTL"
	}
	counted := "a node on the path forwards them"
	if len(by) > 2 {
		counted = "two nodes on the path forward them"
	}
	seg = wrong(code, segment, place, "a setting of the kernel", "%s: %s sends packets with a %s of %d, and %s", what,
		sender, field, hops, counted)
	return with(seg, from+" ("+sender+")"), true
}

// request is the client's packet as it leaves the client, by an interface: the rules of its own node come behind that.
func (f *follower) request(out string) sent {
	return sent{out, f.Start.Packet.Src, f.Start.Packet.Dst}
}

// firstHop judges the hops of a pod's packets that its own node forwards to another one.
func (f *follower) firstHop(place string) (s report.Segment, lost bool) {
	if f.fromPod == nil {
		return s, false
	}
	from := &f.fromPod.end.Packet
	return outOfHops(EndpointNodeDrops, report.SegmentNetwork, place, "the client's packets are not forwarded",
		podPlace(f.Pod), f.Client.Pods[f.Pod].State, f.request(from.Out), from, &f.end.Packet)
}

// requestHops judges the hops of the client's packets where the endpoint's node forwards them, or the client's own to
// another interface: a bridge takes none.
func (f *follower) requestHops(place string) (s report.Segment, lost bool) {
	const what = "the client's packets are not forwarded"
	if f.sameNode() && f.end.Packet.Out == f.Start.Packet.In {
		return s, false
	}
	by := []*netfilter.Packet{&f.end.Packet}
	if !f.sameNode() {
		by = append(by, &f.arrival.end.Packet)
	}
	if f.fromPod != nil {
		from := &f.fromPod.end.Packet
		return outOfHops(EndpointNodeDrops, report.SegmentEndpointNode, place, what, podPlace(f.Pod),
			f.Client.Pods[f.Pod].State, f.request(from.Out), append([]*netfilter.Packet{from}, by...)...)
	}
	if f.Outside || f.Pod != "" || f.sameNode() {
		return s, false
	}
	return outOfHops(EndpointNodeDrops, report.SegmentEndpointNode, place, what, nodePlace(f.Client.Name),
		f.Client.State, f.request(f.end.Packet.Out), by...)
}

// answerHops judges the hops of the answer where the client's node is the last that forwards it. by has it as it leaves
// the endpoint's pod, if that has its own network namespace, and each node.
func (f *follower) answerHops(by ...*netfilter.Packet) (s report.Segment, lost bool) {
	from, sender := f.node.State, nodePlace(f.node.Name)
	switch {
	case f.sameNode() && f.end.Packet.Out == f.Start.Packet.In, f.Start.Hook != netfilter.Prerouting:
		return s, false
	case f.inPod != nil:
		from, sender = f.podState(), podPlace(f.to.Pod)
	case f.sameNode():
		return s, false
	}
	place := nodePlace(f.Client.Name)
	if len(by) > 2 {
		place = nodePlace(f.node.Name) + " to " + place
	}
	return outOfHops(EndToEndAnswerLost, report.SegmentAnswer, place, "the answer is not forwarded", sender, from,
		sent{by[0].Out, f.end.Packet.Dst, f.end.Packet.Src}, by...)
}
