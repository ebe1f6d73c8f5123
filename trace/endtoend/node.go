// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// arrive prepares the packet as it comes to the endpoint's node, by the interface in; "" where that is not known.
func (f *follower) arrive(in string) {
	if in == "" {
		return
	}
	p := &f.end.Packet
	f.arrival = &passed{walker: f.Walker(f.node.State), start: netfilter.Start{
		Hook: netfilter.Prerouting, Packet: netfilter.Packet{
			Family: p.Family, Proto: p.Proto, Src: p.Src, Dst: p.Dst, DstPort: p.DstPort, In: in,
		},
	}}
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
	res := a.walker.Walk(a.start, netfilter.Options{Enters: true})
	end, bad := f.passes(f.node.State, a.start.Packet.Family, &res, func(o *netfilter.Outcome) bool {
		p := &o.Packet
		return p.Dst == f.to.At.Addr() && p.DstPort == f.to.At.Port() &&
			(o.End == netfilter.Sent || o.End == netfilter.Delivered && f.to.HostNetwork)
	})
	a.end = end
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
	if off := f.backOff(end.Packet.Out, end.Packet.Dst.Is4()); off != "" {
		return with(wrong(EndpointNodeDrops, segment, place, "a setting of the kernel",
			"the node does not forward the answer, which comes in by %s", end.Packet.Out), off)
	}
	return f.toPod(place)
}

// backOff is [forwardingOff] for the answer. A bridge's ports are not asked, the bridge is.
func (f *follower) backOff(in string, v4 bool) string {
	if netfilter.IsUnknown(in) {
		return ""
	}
	return forwardingOff(f.node.State, in, v4)
}

// toPod compares the interface that the packet leaves by with that of the pod, and the neighbour there with the pod's
// own address.
func (f *follower) toPod(place string) report.Segment {
	const segment = report.SegmentEndpointNode
	p := &f.arrival.end.Packet
	out, ip := p.Out, f.to.At.Addr()
	get := "ip route get " + ip.String()
	pod := f.podState()
	if pod == nil {
		_, why := podOf(f.node, f.to.Pod)
		return unknown(segment, place, f.to.Node, get,
			"sent by %s; whether that leads to the pod is not known, as %s", out, why)
	}
	dev := pod.Host.DevOf(ip)
	if dev == "" {
		return unknown(segment, place, f.to.Node, get, "sent by %s; the pod's network namespace does not have the "+
			"address %s",
			out, ip)
	}
	end := pod.Host.PeerIn(f.node.Host, dev)
	if end == "" {
		return unknown(segment, place, f.to.Node, "ip -d link",
			"sent by %s; which interface of the node is the other end of the pod's %s is not known", out, dev)
	}
	if end != out && f.node.Host.Master(end) != out {
		return with(wrong(EndpointNodeNoRoute, segment, place, "the CNI plugin",
			"the node sends packets for the pod by %s, and the pod is behind %s", out, end),
			"ip route get "+ip.String()+": dev "+out)
	}
	if up, known := f.node.Host.Up(end); known && !up || f.node.Host.NoCarrier(end) {
		return with(wrong(EndpointNodeNoRoute, segment, place, "the CNI plugin", "the pod's interface %s is down", end),
			"ip link: "+end)
	}
	if bridge := f.node.Host.Master(end); bridge != "" {
		if state := f.node.Host.PortState(bridge, end); state != "" {
			return with(wrong(EndpointNodeNoRoute, segment, place, "the CNI plugin",
				"the bridge %s sends nothing by its port %s, behind which the pod is", bridge, end),
				fmt.Sprintf("ip -d link: %s master %s state %s", end, bridge, state))
		}
	}
	hop := hopOf(p)
	e, there := f.node.Host.Neighbour(out, hop)
	mac := pod.Host.MAC(dev)
	if there && hop == ip && e.MAC != "" && mac != "" && !strings.EqualFold(e.MAC, mac) {
		line := fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", hop, out, e.MAC, e.State)
		own := fmt.Sprintf("ip link in the pod: %s has %s", dev, mac)
		if e.State == "PERMANENT" {
			return with(wrong(EndToEndWrongNeighbour, segment, place, "the CNI plugin, or whoever set the entry",
				"the node sends frames for the pod to %s, which is not the pod's address", e.MAC), line, own)
		}
		return with(unknown(segment, place, f.to.Node, "ip neigh show "+hop.String(),
			"the node last sent frames for the pod to %s, which is not the pod's address", e.MAC), line, own)
	}
	if there && e.Failed {
		return with(unknown(segment, place, f.to.Node, "ip neigh show "+hop.String(),
			"when the node last asked for the pod's link-layer address, nothing answered"),
			fmt.Sprintf("ip neigh: %s dev %s %s", hop, out, e.State))
	}
	return right(segment, place, "forwarded to the pod's interface %s", end)
}
