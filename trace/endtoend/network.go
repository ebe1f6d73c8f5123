// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// crossing is a packet that leaves a node for another one.
type crossing struct {
	*Connection

	from, to *Node
	out      string     // the interface that it leaves by
	hop      netip.Addr // the next hop there: the gateway, or the destination itself
	mark     uint32     // the packet's, which the outer packet of a tunnel keeps
	proto    uint8
	port     uint16
}

// network compares what both nodes say of the network between them.
func (f *follower) network() report.Segment {
	const segment = report.SegmentNetwork
	if f.sameNode() {
		f.node = f.Client
		return right(segment, nodePlace(f.Client.Name), "none: the endpoint is on %s", f.first())
	}
	place := nodePlace(f.Client.Name) + " to " + nodePlace(f.to.Node)
	if f.to.Node == "" {
		return unknown(segment, "", f.Client.Name, "ip route get "+f.to.At.Addr().String(),
			"the EndpointSlice does not tell which node the endpoint is on")
	}
	f.node = f.Nodes[f.to.Node]
	if f.node == nil {
		why := f.Unread[f.to.Node]
		if why == "" {
			why = "it was not collected"
		}
		return unknown(segment, place, "", "", "the node %s was not read: %s", f.to.Node, why)
	}
	p := &f.end.Packet
	x := &crossing{f.Connection, f.Client, f.node, p.Out, hopOf(p), p.Mark, p.Proto, p.DstPort}
	s, in := x.judge(place)
	if s.Verdict != report.SegmentWrong {
		f.arrive(in)
	}
	return s
}

// hopOf is the next hop of a packet on the link that it leaves by.
func hopOf(p *netfilter.Packet) netip.Addr {
	if p.NextHop.IsValid() {
		return p.NextHop
	}
	return p.Dst
}

// judge says whether the packet comes to the other node, and by which interface; "" where that is not known.
func (x *crossing) judge(place string) (s report.Segment, in string) {
	const segment = report.SegmentNetwork
	if netfilter.IsUnknown(x.out) || x.out == "" {
		return unknown(segment, place, x.from.Name, "ip route get "+x.hop.String(),
			"the interface that the packet leaves by is not known"), ""
	}
	kind, known := x.from.Host.Kind(x.out)
	switch {
	case !known:
		return unknown(segment, place, x.from.Name, "ip -d link show "+x.out,
			"which kind of interface %s is was not read (%s)", x.out, snapshot.LinkFile), ""
	case x.from.Host.NoCarrier(x.out):
		return with(wrong("NoCarrier", segment, place, "the network", "%s of %s has no carrier", x.out, x.from.Name),
			"ip link: "+x.out+" is UP and has NO-CARRIER"), ""
	case kind == "vxlan":
		return x.vxlan(place)
	case direct[kind]:
		return x.direct(place)
	}
	return unknown(segment, place, x.from.Name, "ip -d link show "+x.out,
		"packets leave by %s, of the kind %s, whose other end is not compared", x.out, kind), ""
}

// direct are the kinds of interfaces that frames leave by as they are; "" is hardware.
var direct = map[string]bool{"": true, "veth": true, "bond": true, "vlan": true, "bridge": true, "team": true}

// direct judges a link without a tunnel: the next hop is the other node itself, or a router of which nothing is known.
func (x *crossing) direct(place string) (s report.Segment, in string) {
	const segment = report.SegmentNetwork
	in = x.to.Host.DevOf(x.hop)
	if in == "" {
		if x.to.Host.Addresses() == nil {
			return unknown(segment, place, x.to.Name, "ip addr", "the addresses of %s were not read (%s)", x.to.Name,
				snapshot.AddrFile), ""
		}
		return unknown(segment, place, x.from.Name, x.traceroute(),
			"the next hop %s by %s is none of the addresses of %s: what is between the two cannot be read", x.hop, x.out,
			x.to.Name), ""
	}
	if x.to.Host.NoCarrier(in) {
		return with(wrong("NoCarrier", segment, place, "the network", "%s of %s has no carrier", in, x.to.Name),
			"ip link: "+in+" is UP and has NO-CARRIER"), ""
	}
	if s, ok := x.neighbour(place, in); !ok {
		return s, in
	}
	if s, ok := x.sizes(place, x.out, in); !ok {
		return s, in
	}
	return right(segment, place, "without a tunnel, by %s to %s (%s of %s)", x.out, x.hop, in, x.to.Name), in
}

func (x *crossing) traceroute() string {
	if x.proto == netfilter.TCP {
		return fmt.Sprintf("traceroute -n -T -p %d %s", x.port, x.hop)
	}
	return "traceroute -n " + x.hop.String()
}

// neighbour compares the link-layer address that one node has of the next hop with those that the other one has. An
// entry that is missing is made by the next packet.
func (x *crossing) neighbour(place, in string) (s report.Segment, ok bool) {
	const segment = report.SegmentNetwork
	show := "ip neigh show " + x.hop.String() + " dev " + x.out
	if !x.from.Host.NeighboursKnown() {
		return unknown(segment, place, x.from.Name, show, "the neighbours of %s were not read (%s)", x.from.Name,
			snapshot.NeighbourFile), false
	}
	e, there := x.from.Host.Neighbour(x.out, x.hop)
	mac := x.to.Host.MAC(in)
	line := fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", x.hop, x.out, e.MAC, e.State)
	switch {
	case !there:
		return s, true
	case e.Failed:
		return with(unknown(segment, place, x.from.Name, show,
			"when %s last asked for the link-layer address of %s, nothing answered", x.from.Name, x.hop),
			fmt.Sprintf("ip neigh: %s dev %s %s", x.hop, x.out, e.State)), false
	case e.MAC == "" || strings.EqualFold(e.MAC, mac):
		return s, true
	case mac == "":
		return unknown(segment, place, x.to.Name, "ip link show "+in, "the link-layer address of %s was not read (%s)", in,
			snapshot.LinkFile), false
	}
	other := slices.ContainsFunc(x.to.Host.Devs(), func(d string) bool {
		return strings.EqualFold(x.to.Host.MAC(d), e.MAC)
	})
	own := fmt.Sprintf("ip link on %s: %s has %s", x.to.Name, in, mac)
	if !other && e.State == "PERMANENT" {
		return with(wrong(EndToEndWrongNeighbour, segment, place, "the CNI plugin, or whoever set the entry",
				"%s sends frames for %s to %s, which no interface of %s has", x.from.Name, x.hop, e.MAC, x.to.Name), line, own),
			false
	}
	return with(unknown(segment, place, x.from.Name, show,
		"%s sends frames for %s to %s, and not to the address of %s: someone between the two has to pass them on",
		x.from.Name, x.hop, e.MAC, x.to.Name), line, own), false
}

// sizes compares how large packets may be at both ends of a link.
func (x *crossing) sizes(place, out, in string) (s report.Segment, ok bool) {
	sent, taken := x.from.Host.MTU(out), x.to.Host.MTU(in)
	if sent == 0 || taken == 0 || sent <= taken {
		return s, true
	}
	s = with(unknown(report.SegmentNetwork, place, x.from.Name,
		fmt.Sprintf("ping -c 3 -M do -s %d %s", sent-headers(x.hop), x.hop),
		"%s sends packets of up to %d bytes, and %s takes %d: larger ones may be lost without a message", x.from.Name, sent,
		x.to.Name, taken),
		fmt.Sprintf("ip link on %s: %s mtu %d", x.from.Name, out, sent),
		fmt.Sprintf("ip link on %s: %s mtu %d", x.to.Name, in, taken))
	s.Code = LinkMTUDiffers
	return s, false
}

// headers are how many bytes of a packet of ping are no payload.
func headers(a netip.Addr) int {
	if a.Is4() {
		return 28
	}
	return 48
}

// vxlanOverhead is how much a tunnel adds to a packet: the outer IP, UDP and VXLAN headers and the inner Ethernet
// header.
func vxlanOverhead(outer netip.Addr) int {
	if outer.Is4() {
		return 50
	}
	return 70
}

// vxlan judges a VXLAN: its other end, the entries that lead there, and the outer packet.
func (x *crossing) vxlan(place string) (s report.Segment, in string) {
	const segment = report.SegmentNetwork
	v, ok := x.from.Host.VXLAN(x.out)
	show := "ip -d link show " + x.out
	if !ok || v.External {
		return unknown(segment, place, x.from.Name, show,
			"%s is a VXLAN interface of which the table of forwarding does not tell all", x.out), ""
	}
	if in, s = x.otherEnd(place, &v); in == "" {
		return s, ""
	}
	if up, known := x.to.Host.Up(in); known && !up {
		return with(wrong(TunnelPeerMissing, segment, place, "the CNI plugin", "%s of %s is down", in, x.to.Name),
			"ip link on "+x.to.Name+": "+in+" is not UP"), ""
	}
	if s, ok := x.neighbour(place, in); !ok {
		return s, in
	}
	end, s, ok := x.tunnelEnd(place, &v)
	if !ok {
		return s, in
	}
	outerIn, s, ok := x.outer(place, &v, end)
	if !ok {
		return s, in
	}
	if s, ok := x.tunnelSizes(place, &v, end, outerIn); !ok {
		return s, in
	}
	return right(segment, place, "VXLAN %d by %s to %s (%s of %s)", v.ID, x.out, end, in, x.to.Name), in
}

// otherEnd finds the other node's interface of the same tunnel; "" and a segment where there is none.
func (x *crossing) otherEnd(place string, v *host.VXLAN) (dev string, s report.Segment) {
	for _, d := range x.to.Host.VXLANs() {
		if o, _ := x.to.Host.VXLAN(d); o.ID == v.ID && o.Port == v.Port && !o.External {
			return d, s
		}
	}
	if _, known := x.to.Host.Kind("lo"); !known {
		return "", unknown(report.SegmentNetwork, place, x.to.Name, "ip -d link",
			"the interfaces of %s were not read (%s)", x.to.Name, snapshot.LinkFile)
	}
	for _, d := range x.to.Host.Devs() {
		if kind, _ := x.to.Host.Kind(d); kind == "vxlan" {
			return "", unknown(report.SegmentNetwork, place, x.to.Name, "ip -d link show "+d,
				"whether %s of %s is the other end of VXLAN %d (port %d) is not known", d, x.to.Name, v.ID, v.Port)
		}
	}
	return "", wrong(TunnelPeerMissing, report.SegmentNetwork, place, "the CNI plugin",
		"%s has no interface of VXLAN %d (port %d), which %s of %s sends to", x.to.Name, v.ID, v.Port, x.out, x.from.Name)
}

// anyMAC is that of an entry for all frames that no other one is for.
const anyMAC = "00:00:00:00:00:00"

// tunnelEnd finds where the tunnel sends frames to the next hop, by its forwarding table (vxlan_xmit in
// drivers/net/vxlan/vxlan_core.c).
func (x *crossing) tunnelEnd(place string, v *host.VXLAN) (end netip.Addr, s report.Segment, ok bool) {
	const segment = report.SegmentNetwork
	show := "bridge fdb show dev " + x.out
	list, known := x.from.Host.Forwardings(x.out)
	if !known {
		return end, unknown(segment, place, x.from.Name, show, "the forwarding table of %s was not read (%s)", x.from.Name,
			snapshot.BridgeFDBFile), false
	}
	var ends, all []netip.Addr
	e, there := x.from.Host.Neighbour(x.out, x.hop)
	for _, f := range list {
		switch {
		case !f.Dst.IsValid():
		case there && e.MAC != "" && strings.EqualFold(f.MAC, e.MAC):
			ends = append(ends, f.Dst)
		case f.MAC == anyMAC:
			all = append(all, f.Dst)
		}
	}
	if len(ends) == 0 {
		ends = all
	}
	if len(ends) == 0 && v.Remote.IsValid() {
		ends = []netip.Addr{v.Remote}
	}
	what := e.MAC
	if !there || e.MAC == "" {
		what = "a neighbour that is not known (" + x.hop.String() + ")"
	}
	if len(ends) == 0 {
		if v.Proxy && (!there || e.MAC == "") {
			return end, unknown(segment, place, x.from.Name, show, "%s has no neighbour %s", x.out, x.hop), false
		}
		return end, with(wrong(TunnelPeerMissing, segment, place, "the CNI plugin",
			"%s of %s has no entry that leads frames for %s to %s: they are dropped", x.out, x.from.Name, x.hop, x.to.Name),
			"bridge fdb: "+x.out+" has no entry for "+what+", and none for all frames"), false
	}
	for _, a := range ends {
		if local, known := x.to.Host.Local(a); known && local {
			return a, s, true
		}
	}
	if slices.ContainsFunc(ends, func(a netip.Addr) bool { return a.IsMulticast() }) {
		return end, unknown(segment, place, x.from.Name, show, "%s floods frames to the group %s", x.out, ends[0]), false
	}
	if other := x.NodeAt(ends[0]); len(ends) == 1 && other != "" && other != x.to.Name {
		return end, with(wrong(TunnelPeerMissing, segment, place, "the CNI plugin",
			"%s of %s leads frames for %s to the node %s: %s does not get them", x.out, x.from.Name, x.hop, other, x.to.Name),
			fmt.Sprintf("bridge fdb: %s dev %s dst %s", what, x.out, ends[0])), false
	}
	return end, with(unknown(segment, place, x.from.Name, show,
		"%s of %s leads frames for %s to %s, which is none of the addresses of %s", x.out, x.from.Name, x.hop, ends[0],
		x.to.Name), fmt.Sprintf("bridge fdb: %s dev %s dst %s", what, x.out, ends[0])), false
}

// outer walks the tunnel's outer packet out of one node and into the other. It keeps the mark of the inner one
// (iptunnel_xmit in net/ipv4/ip_tunnel_core.c scrubs it only between namespaces).
func (x *crossing) outer(place string, v *host.VXLAN, end netip.Addr) (in string, s report.Segment, ok bool) {
	const segment = report.SegmentNetwork
	port := netip.AddrPortFrom(end, v.Port)
	src := v.Local
	if !src.IsValid() {
		src = netfilter.SourceFor(x.from.Host, netfilter.UDP, port)
	}
	family := netfilter.FamilyOf(end)
	start := netfilter.Start{Hook: netfilter.Output, Packet: netfilter.Packet{
		Family: family, Proto: netfilter.UDP, Src: src, Dst: end, DstPort: v.Port, Mark: x.mark,
	}}
	res := x.Walker(x.from.State).Walk(start, netfilter.Options{})
	sent, bad := x.passes(x.from.State, family, &res, func(o *netfilter.Outcome) bool {
		return o.End == netfilter.Sent && o.Packet.Dst == end && o.Packet.DstPort == v.Port
	})
	if bad != nil {
		return "", x.outerLost(bad, place, x.from, end, v), false
	}
	by := &crossing{x.Connection, x.from, x.to, sent.Packet.Out, hopOf(&sent.Packet), 0, netfilter.UDP, v.Port}
	in = x.to.Host.DevOf(end)
	if by.hop == end {
		if s, ok := by.neighbour(place, in); !ok {
			return "", s, false
		}
	}
	arrival := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
		Family: family, Proto: netfilter.UDP, Src: sent.Packet.Src, Dst: end, DstPort: v.Port, In: in,
	}}
	res = x.Walker(x.to.State).Walk(arrival, netfilter.Options{Enters: by.hop == end})
	if _, bad = x.passes(x.to.State, family, &res, func(o *netfilter.Outcome) bool {
		return o.End == netfilter.Delivered && o.Packet.DstPort == v.Port
	}); bad != nil {
		return "", x.outerLost(bad, place, x.to, end, v), false
	}
	if by.hop != end {
		return "", unknown(segment, place, x.from.Name, "traceroute -n "+end.String(),
			"the tunnel's packets to %s go by the router %s: what is between the two cannot be read", end, by.hop), false
	}
	return in, s, true
}

// outerLost is a segment whose outer packets do not pass one of the nodes.
func (x *crossing) outerLost(t *trouble, place string, at *Node, end netip.Addr, v *host.VXLAN) report.Segment {
	t.message = fmt.Sprintf("the tunnel's packets to %s port %d/UDP on %s: %s", end, v.Port, at.Name, t.message)
	return t.segment(TunnelDropped, report.SegmentNetwork, place, at.Name, "nft list ruleset")
}

// tunnelSizes compares how large packets the tunnel sends with what the interfaces below it take.
func (x *crossing) tunnelSizes(place string, v *host.VXLAN, end netip.Addr, in string) (s report.Segment, ok bool) {
	r, known, _ := x.from.Host.Route(end)
	if !known || r.Dev == "" {
		return s, true
	}
	size, below := x.from.Host.MTU(x.out)+vxlanOverhead(end), x.from.Host.MTU(r.Dev)
	if below != 0 && size > below {
		s = with(unknown(report.SegmentNetwork, place, x.from.Name,
			fmt.Sprintf("ping -c 3 -M do -s %d %s", below-headers(end), end),
			"the packets of VXLAN %d are up to %d bytes with its headers, and %s takes %d: whether larger ones come through "+
				"in fragments is not known", v.ID, size, r.Dev, below),
			fmt.Sprintf("ip link on %s: %s mtu %d, %s mtu %d", x.from.Name, x.out, size-vxlanOverhead(end), r.Dev, below))
		s.Code = LinkMTUDiffers
		return s, false
	}
	if size = min(size, below); below == 0 || x.to.Host.MTU(in) == 0 || size <= x.to.Host.MTU(in) {
		return s, true
	}
	by := *x
	by.hop = end
	return by.sizes(place, r.Dev, in)
}

// podState returns what was read of the endpoint's pod; nil where nothing was.
func (f *follower) podState() *nodestate.State {
	if p, _ := podOf(f.node, f.to.Pod); p != nil {
		return p.State
	}
	return nil
}
