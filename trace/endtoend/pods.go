// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// podOf returns what was read of a pod, and why nothing was.
func podOf(n *Node, name string) (p *Pod, why string) {
	p = n.Pods[name]
	switch {
	case p == nil:
		return nil, "its network namespace was not collected"
	case p.State == nil:
		return nil, "its network namespace was not read: " + p.Why
	}
	return p, ""
}

// enter is a command that runs another one in a pod's network namespace, by its process there.
func enter(command string) string { return "nsenter -t PID -n " + command }

// clientPod walks the packet through the client's pod. The walk is nil where it does not come to its end.
func (c *Connection) clientPod() (report.Segment, *passed) {
	const segment = report.SegmentClientPod
	if c.Pod == "" {
		return right(segment, nodePlace(c.Client.Name), "the client is in the node's own network namespace"), nil
	}
	place := podPlace(c.Pod)
	get := enter("ip route get " + c.Start.Packet.Dst.String())
	p, why := podOf(c.Client, c.Pod)
	if p == nil {
		return unknown(segment, place, c.Client.Name, get, "%s", why), nil
	}
	to := &c.Start.Packet
	from := netfilter.SourceFor(p.Host, to.Proto, netip.AddrPortFrom(to.Dst, to.DstPort))
	// The route is looked up before the socket has a source, so that rules which ask for one do not apply. IPv6 looks up
	// again with one where there is none (ip6_dst_lookup_tail in net/ipv6/ip6_output.c).
	r := netfilter.SourceRoute(p.Host, to.Proto, netip.AddrPortFrom(to.Dst, to.DstPort))
	if r.Known && r.Unusable() && !to.Dst.Is4() {
		r = p.Host.Lookup(host.Query{Dst: to.Dst, AnyMark: true, AnyUID: true})
	}
	lack, notRead := c.unread(p.State, to.Family, byRoutes)
	switch {
	case !r.Known:
		return unknown(segment, place, c.Client.Name, get, "the pod's route to %s is not known: %s", to.Dst, r.Why), nil
	case r.Unusable() && lack != nil:
		return unknown(segment, place, c.Client.Name, enter(lack.command), "%s", notRead), nil
	case r.Unusable():
		return wrong(PodNoRoute, segment, place, "the CNI plugin, or the workload",
			"the pod has no usable route to %s", to.Dst), nil
	}
	if s, none := portless(p.Host, place); none {
		return s, nil
	}
	if s, none := c.crowded(p, place); none {
		return s, nil
	}
	if !from.IsValid() {
		if s, none := sourceless(p.Host, place, &r, to.Dst); none && lack == nil {
			return s, nil
		}
		from = to.Src
	}
	w := c.Walker(p.State)
	start := netfilter.Start{Hook: netfilter.Output, Packet: netfilter.Packet{
		Family: to.Family, Proto: to.Proto, Src: from, Dst: to.Dst, DstPort: to.DstPort,
		Ports: c.clientPorts(),
	}}
	res := w.Walk(start, netfilter.Options{})
	end, bad := c.passes(p.State, to.Family, &res, func(o *netfilter.Outcome) bool {
		return o.End == netfilter.Sent && o.Packet.Dst == to.Dst && o.Packet.DstPort == to.DstPort && !o.Packet.DNAT
	})
	switch {
	case bad != nil && bad.noRoute && !bad.unknown:
		return bad.segment(PodNoRoute, segment, place, c.Client.Name, get), nil
	case bad != nil:
		if by := redirectOf(&res); by.Chain != nil {
			e := c.Cite(by)
			s := unknown(segment, place, c.Client.Name, enter("iptables-save -t nat"),
				"%s sends the packet to a proxy in the pod (%s): where that one connects to is not known here",
				e.Where.String(), cmp.Or(OwnerOf(by), "of an owner that is not known"))
			s.Evidence = []report.Evidence{e}
			return s, nil
		}
		if own := c.kept(p.State, &res, to.Dst, place, "requests"); own != nil {
			if takes(p.State, to.DstPort) { // as of an endpoint that answers clients directly
				own.unknown, own.command = true, "ss -Hltun"
				own.message += ", and something may listen there"
			}
			return own.segment(PodNoRoute, segment, place, c.Client.Name, get), nil
		}
		return bad.segment(PodDrops, segment, place, c.Client.Name, enter("iptables-save")), nil
	case end.Packet.Src != to.Src && p.Host.AwaitsDAD(to.Src) != "":
		return with(wrong(PodNoRoute, segment, place, "the CNI plugin, or another host with the address", "the pod does not "+
			"use its address %s, as duplicate address detection has not completed or has found another host with it: the pod "+
			"sends from %s", to.Src, end.Packet.Src), "ip -6 addr in the pod: "+to.Src.String()+" "+
			p.Host.AwaitsDAD(to.Src)), nil
	case end.Packet.Src != to.Src:
		return unknown(segment, place, c.Client.Name, get,
			"the pod sends from %s, and the path is judged for %s: give --from %s", end.Packet.Src, to.Src,
			end.Packet.Src), nil
	}
	out := &passed{walker: w, start: start, end: end}
	v := &veth{
		Connection: c, pod: p.State, node: c.Client, segment: segment, place: place, podPlace: place, noRoute: PodNoRoute,
		translated: c.translated, largest: c.largestOfAny(), beside: besideOf(c.Client, end.Packet.Hop()),
	}
	s := byEveryHop(&end, func(p *netfilter.Packet) report.Segment {
		way := *v
		s, in, ok := way.leavesPod(p)
		if !ok {
			return s
		}
		own := c.Start.Packet.In
		if len(way.others) > 0 && own != "" && (own == in || slices.Contains(way.others, own)) {
			return unknown(segment, place, c.Client.Name, "ip neigh show "+way.hop.String(), "which of its interfaces %s, %s "+
				"takes what %s sends to %s, is not known, and the path is judged for %s", in, strings.Join(way.others, ", "),
				place, way.hop, own)
		}
		if in != "" && own != "" && !netfilter.IsUnknown(own) && in != own {
			return unknown(segment, place, c.Client.Name, get, "the pod sends by %s, which comes in to the node by %s, and the "+
				"path is judged for %s", p.Out, in, own)
		}
		return right(segment, place, "from %s by %s%s", p.Src, p.Out, via(p.NextHop))
	})
	return s, out
}

// sourceless is the segment of a client whose addresses are all confined to their link, or to the host: the route gives
// its socket none (inet_select_addr in net/ipv4/devinet.c), and connect fails (ip_route_connect in
// include/net/route.h).
func sourceless(h *host.Network, place string, r *host.Lookup, dst netip.Addr) (s report.Segment, none bool) {
	own := slices.DeleteFunc(h.AddressesOn(r.Dev), func(a netip.Addr) bool { return !a.Is4() })
	if !dst.Is4() || len(r.Hops) > 0 || len(own) == 0 || h.Master(r.Dev) != "" ||
		h.MasqueradeAddress(r.Dev, dst).IsValid() {
		return s, false
	}
	s = wrong(PodNoRoute, report.SegmentClientPod, place, "the CNI plugin, or the network configuration",
		"no address of the pod may be used beyond its link: the kernel has no source for packets to %s", dst)
	for _, a := range own {
		s = with(s, fmt.Sprintf("ip addr in the pod: %s dev %s has the scope link or host", a, r.Dev))
	}
	return s, true
}

// takes tells whether something in a network namespace may listen at a port.
func takes(s *nodestate.State, port uint16) bool {
	return !s.SocketsRead || slices.ContainsFunc(s.Sockets, func(x host.Socket) bool { return x.Port == port })
}

// besideOf is what was read of a pod of a node that has an address; nil for none.
func besideOf(n *Node, a netip.Addr) *nodestate.State {
	for _, name := range slices.Sorted(maps.Keys(n.Pods)) {
		if p := n.Pods[name]; p.State != nil && p.Host.DevOf(a) != "" {
			return p.State
		}
	}
	return nil
}

// translated tells whether the client's node is certain to translate the destination.
func (c *Connection) translated() bool {
	res := c.Walker(c.Client.State).Walk(c.Start, netfilter.Options{Enters: c.enters()})
	return len(res.Outcomes) > 0 && !slices.ContainsFunc(res.Outcomes, func(o netfilter.Outcome) bool {
		return !o.Packet.DNAT
	})
}

func via(hop netip.Addr) string {
	if !hop.IsValid() {
		return ""
	}
	return " via " + hop.String()
}

// redirectOf returns the rule that translates a destination in a pod; the zero Ref for none.
func redirectOf(res *netfilter.Result) netfilter.Ref {
	for i := range res.Outcomes {
		if p := &res.Outcomes[i].Packet; p.DNAT {
			return p.DNATBy
		}
	}
	return netfilter.Ref{}
}

// endpointPod walks the packet into the endpoint's pod, and looks for who listens there.
func (f *follower) endpointPod() report.Segment {
	const segment = report.SegmentEndpointPod
	place := podPlace(cmp.Or(f.to.Pod, f.to.At.String()))
	if f.to.Pod == "" && f.to.HostNetwork {
		place = nodePlace(f.to.Node)
	}
	if f.node == nil || f.arrival == nil {
		return unknown(segment, place, f.to.Node, enter("ss -ltnup"), "it is not known how the packet comes to the pod")
	}
	if f.to.HostNetwork || f.arrival.end.End == netfilter.Delivered {
		return f.listens(f.node.State, f.to.At, place, f.arrival.start.Packet.In, -1)
	}
	p, why := podOf(f.node, f.to.Pod)
	if p == nil {
		return unknown(segment, place, f.to.Node, enter("ss -ltnup"), "%s", why)
	}
	dev, _, _ := podDev(p.Host, f.node.Host, f.to.At.Addr())
	if dev == "" {
		return unknown(segment, place, f.to.Node, enter("ip addr"),
			"the pod's network namespace does not have the address %s: what has it instead (a sandbox, a virtual machine) "+
				"is not known here", f.to.At.Addr())
	}
	from := &f.arrival.end.Packet
	if s, ok := f.hasRoom(p.State, segment, place); !ok {
		return s
	}
	start := netfilter.Start{Hook: netfilter.Prerouting, Packet: arriving(from, dev)}
	w := f.Walker(p.State)
	res := w.Walk(start, netfilter.Options{Enters: true})
	end, bad := f.passes(p.State, from.Family, &res, func(o *netfilter.Outcome) bool {
		return o.End == netfilter.Delivered
	})
	if own := ownSource(p.State, &start.Packet, place); own != nil && !bad.byRule() {
		bad = own
	}
	if bad != nil {
		return bad.segment(PodDrops, segment, place, f.to.Node, enter("iptables-save"))
	}
	f.inPod = &passed{walker: w, start: start, end: end}
	at := netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort)
	s := f.listens(p.State, at, place, dev, p.Packets)
	if at == f.to.At {
		return s
	}
	e := f.Cite(end.Packet.DNATBy)
	switch s.Code {
	case EndpointNotListening, EndpointListensElse:
		s.Code = EndpointNotListening
		s.Message = fmt.Sprintf("%s sends the packet to a proxy in the pod (%s), and nothing listens at its port %d: "+
			"connections are refused", e.Where.String(),
			cmp.Or(OwnerOf(end.Packet.DNATBy), "of an owner that is not known"), at.Port())
		s.Evidence = append([]report.Evidence{e}, s.Evidence...)
		return s
	}
	if s.Verdict != report.SegmentRight {
		return s
	}
	s = unknown(segment, place, f.to.Node, enter("ss -ltnup"),
		"%s sends the packet to a proxy in the pod, at port %d (%s): %s; where that one connects to is not known here",
		e.Where.String(), at.Port(), cmp.Or(OwnerOf(end.Packet.DNATBy), "of an owner that is not known"), s.Message)
	s.Evidence = []report.Evidence{e}
	return s
}

// listens looks for the socket that takes the packet, which comes in by the interface in. packets is how many sockets
// of the namespace take frames before IP does; -1 where that was not read.
func (f *follower) listens(s *nodestate.State, at netip.AddrPort, place, in string, packets int) report.Segment {
	const segment = report.SegmentEndpointPod
	proto, ok := protocols[f.Start.Packet.Proto]
	command := enter("ss -ltnup")
	if f.to.HostNetwork {
		command = "ss -ltnup"
	}
	switch {
	case !ok:
		return unknown(segment, place, f.to.Node, enter("ss -Sln"), "sockets of this protocol are not listed")
	case !s.SocketsRead || s.Reading(snapshot.ListenFile).State != nodestate.Whole:
		return unknown(segment, place, f.to.Node, command, "who listens there was not read (%s)", snapshot.ListenFile)
	}
	l := listenersAt(s, proto, at, in)
	switch {
	case len(l.taking) > 0:
		return f.queued(s, &l, at, place)
	case len(l.maybe) > 0 && l.maybe[0].Device != "":
		return with(unknown(segment, place, f.to.Node, command, "whether the socket at %s takes what comes in by %s is not "+
			"known", socketText(l.maybe[0]), in), textsOf(l.maybe)...)
	case len(l.maybe) > 0:
		return with(unknown(segment, place, f.to.Node, command,
			"whether the socket at %s takes IPv4, too, is not known", socketText(l.maybe[0])), textsOf(l.maybe)...)
	case packets > 0:
		return unknown(segment, place, f.to.Node, enter("ss -0lnp"),
			"nothing listens at %s %s, but %d packet sockets see every frame (a user space's IP stack as gVisor's, a "+
				"capture)",
			at, proto, packets)
	case len(l.same) > 0:
		return l.elsewhere(proto, at, place)
	case packets < 0 && !f.to.HostNetwork && s != f.node.State:
		return unknown(segment, place, f.to.Node, command, "nothing listens at %s %s; whether packet sockets take its "+
			"frames was not read (%s)", at, proto, snapshot.PacketFile)
	case len(l.other) > 0 && !f.to.HostNetwork:
		return with(wrong(EndpointListensElse, segment, place, "the workload",
			"nothing accepts %s connections to %s: the pod listens at other ports", strings.ToUpper(proto), at),
			textsOf(l.other)...)
	}
	return l.nobody(proto, at, place)
}

// elsewhere says where sockets listen that have the port and not the address.
func elsewhere(list []*host.Socket, at netip.AddrPort) string {
	loopback, family, device := true, true, true
	for _, x := range list {
		device = device && x.Device != ""
		loopback = loopback && x.Address.IsLoopback()
		family = family && x.Address.Is4() != at.Addr().Is4()
	}
	switch {
	case device:
		return "connections are accepted only on the interface " + list[0].Device
	case loopback:
		return "processes listen only at the loopback address"
	case family && at.Addr().Is4():
		return "processes listen only for IPv6"
	case family:
		return "processes listen only for IPv4"
	}
	return "processes listen only at other addresses"
}

func processOf(s *host.Socket) string {
	if s.Process == "" {
		return "a process"
	}
	return fmt.Sprintf("process %s (%d)", strings.Clone(s.Process), s.PID)
}

// socketText is a socket as a line of ss.
func socketText(s *host.Socket) string {
	address := s.Bound()
	if s.Device != "" {
		address += "%" + s.Device
	}
	text := fmt.Sprintf("%s %s:%d", s.Protocol, address, s.Port)
	switch {
	case s.Protocol == "tcp" && s.Diagnosed:
		text += fmt.Sprintf(" (%d of %d wait to be accepted)", s.Queue, s.Backlog)
	case s.Protocol == "udp" && s.Crowded():
		room := ""
		if s.Buffer > 0 {
			room = fmt.Sprintf(" of %d", s.Buffer)
		}
		text += fmt.Sprintf(" (%d%s bytes are taken)", max(s.Queue, s.Held), room)
	}
	if s.Process != "" {
		text += " " + processOf(s)
	}
	return text
}

func textsOf(list []*host.Socket) []string {
	var out []string
	for _, s := range list {
		if t := "ss: " + socketText(s); !slices.Contains(out, t) && len(out) < maxEvidence {
			out = append(out, t)
		}
	}
	return out
}
