// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// arrive prepares the packet as it comes to the endpoint's node, by the interface in; "" where that is not known.
func (f *follower) arrive(in string) {
	if in == "" {
		return
	}
	p := &f.end.Packet
	f.arrival = &passed{walker: f.Walker(f.node.State), start: netfilter.Start{
		Hook: netfilter.Prerouting, Packet: arriving(p, in),
	}}
}

// arriving is a packet that has left a network namespace as it comes in to the next one.
func arriving(p *netfilter.Packet, in string) netfilter.Packet {
	return netfilter.Packet{
		Family: p.Family, Proto: p.Proto, Src: p.Src, Dst: p.Dst, DstPort: p.DstPort, In: in, TOS: p.TOS, AnyTOS: p.AnyTOS,
		Ports: portsAfter(p),
	}
}

// endpointNode walks the packet through the endpoint's node, to the pod's interface.
func (f *follower) endpointNode() report.Segment {
	const segment = report.SegmentEndpointNode
	place := nodePlace(f.to.Node)
	if f.sameNode() {
		f.arrival = &passed{walker: f.Walker(f.Client.State), start: f.Start, end: *f.end}
		place = nodePlace(f.Client.Name)
		if f.end.End == netfilter.Delivered {
			return right(segment, place, "given to a socket of the node")
		}
		s := f.toPod(place)
		if s.Verdict == report.SegmentRight {
			s.Message = f.first() + "; " + s.Message
		}
		return s
	}
	if f.node == nil {
		return unknown(segment, place, "", "", "the node was not read")
	}
	if f.arrival == nil {
		return unknown(segment, place, f.to.Node, "ip route get "+f.to.At.Addr().String(),
			"by which interface the packet comes in is not known")
	}
	a := f.arrival
	in := a.start.Packet.In
	if s, ok := f.hasRoom(f.node.State, segment, place); !ok {
		return s
	}
	res := a.walker.Walk(a.start, netfilter.Options{Enters: true})
	end, bad := f.passes(f.node.State, a.start.Packet.Family, &res, func(o *netfilter.Outcome) bool {
		p := &o.Packet
		return p.Dst == f.to.At.Addr() && p.DstPort == f.to.At.Port() &&
			(o.End == netfilter.Sent || o.End == netfilter.Delivered && f.to.HostNetwork)
	})
	a.end = end
	if own := ownSource(f.node.State, &a.start.Packet, f.to.Node); own != nil && !bad.byRule() {
		return own.segment(EndpointNodeDrops, segment, place, f.to.Node, "")
	}
	if bad != nil && f.podHasAddress() {
		if own := f.kept(f.node.State, &res, f.to.At.Addr(), f.to.Node, "packets for the pod"); own != nil {
			return own.segment(EndpointNodeNoRoute, segment, place, f.to.Node, "")
		}
	}
	if bad != nil {
		code, command := EndpointNodeDrops, "nft list ruleset; iptables-save"
		if bad.noRoute {
			code, command = EndpointNodeNoRoute, "ip route get "+f.to.At.Addr().String()
		}
		if bad.noRoute || bad.unknown {
			f.arrival = nil
		}
		return bad.segment(code, segment, place, f.to.Node, command)
	}
	if end.End == netfilter.Delivered {
		return right(segment, place, "given to a socket of the node")
	}
	if off := forwardingOff(f.node.State, in, end.Packet.Dst.Is4()); off != "" {
		return with(wrong(EndpointNodeDrops, segment, place, "a setting of the kernel",
			"the node does not forward packets that come in by %s", in), off)
	}
	return f.toPod(place)
}

// ownSource says that the kernel of a namespace discards a packet for its source, which is an address of its own: it
// takes no such packet from outside (fib_validate_source in net/ipv4/fib_frontend.c), unless accept_local is set; nil
// where it is none, and for IPv6, where the answer is lost. With the network of an address of lo, it asks for the
// address alone.
func ownSource(s *nodestate.State, p *netfilter.Packet, who string) *trouble {
	own := s.Host.OwnSource(host.Query{Dst: p.Dst, Src: p.Src, In: p.In, AnyMark: true})
	dev := s.Host.DevOf(p.Src)
	if !own.Drops() || dev == "" && s.Host.Reaches("lo", p.Src) {
		return nil
	}
	t := &trouble{
		owner: "the network configuration",
		message: fmt.Sprintf("%s itself has the address %s, from which the packet comes: it drops it for its source", who,
			p.Src),
		evidence: []report.Evidence{{Text: fmt.Sprintf("ip addr: %s dev %s", p.Src, dev)}, {Text: own.Setting}},
	}
	if dev == "" {
		t.owner = "the network configuration"
		t.message = fmt.Sprintf("%s has a local route to %s, from which the packet comes: it drops it for its source", who,
			p.Src)
		t.evidence[0].Text = cmp.Or(own.By.String(), "ip route show table local: "+p.Src.String())
	}
	return t
}

// byRule tells whether a rule is certain to drop the packet.
func (t *trouble) byRule() bool { return t != nil && !t.unknown && !t.noRoute }

// podHasAddress tells whether the endpoint's pod is known to have the endpoint's address in a network namespace of its
// own.
func (f *follower) podHasAddress() bool {
	s := f.podState()
	return s != nil && !f.to.HostNetwork && s.Host.DevOf(f.to.At.Addr()) != ""
}

// hasRoom tells whether the connection table of a network namespace takes a new connection.
func (f *follower) hasRoom(s *nodestate.State, segment, place string) (full report.Segment, ok bool) {
	used, most, known := s.Host.ConnectionTable()
	if !known || used < most {
		return full, true
	}
	full = with(wrong(ConntrackFull, segment, place, "",
		"the kernel's connection table is full: new connections are dropped, whatever the rules say"),
		fmt.Sprintf("net/netfilter/nf_conntrack_count=%.0f", used), fmt.Sprintf("net/netfilter/nf_conntrack_max=%.0f", most))
	full.Node = f.node.Name
	return full, false
}

// toPod compares the interface that the packet leaves by with that of the pod, and the neighbour there with the pod's
// own address.
func (f *follower) toPod(place string) report.Segment {
	const segment = report.SegmentEndpointNode
	v := &veth{
		Connection: f.Connection, pod: f.podState(), node: f.node, segment: segment, place: place,
		podPlace: podPlace(f.to.Pod), noRoute: EndpointNodeNoRoute, largest: f.largest(false),
		came: f.arrival.start.Packet.In,
	}
	if p := f.Client.Pods[f.Pod]; f.fromPod != nil && p != nil && p.State != nil && f.sameNode() {
		v.sender = p.Host.MAC(f.fromPod.end.Packet.Out)
	}
	_, why := podOf(f.node, f.to.Pod)
	s := byEveryHop(&f.arrival.end, func(p *netfilter.Packet) report.Segment {
		way := *v
		if s, ok := way.entersPod(p, f.to.At.Addr(), why); !ok {
			return s
		}
		return right(segment, place, "forwarded to the pod's interface %s", way.end)
	})
	if s.Verdict != report.SegmentRight {
		return s
	}
	if s, lost := f.requestHops(place); lost {
		return s
	}
	hole := f.endpointHole
	if f.sameNode() {
		hole = func() (report.Segment, bool) { return f.clientHole(segment) }
	}
	if s, lost := hole(); lost {
		return s
	}
	return s
}
