// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// envelope is what a tunnel puts packets into.
type envelope struct {
	name  string     // of the tunnel, for people
	proto uint8      // of the outer packets
	port  uint16     // to which they go; 0 for a protocol without ports
	src   netip.Addr // from which; the zero Addr where the route decides
	mark  uint32
	ports netfilter.PortRange // from which; the zero PortRange where that is not known
	tos   uint8               // as ip -d link has it: 1 is that of the packet inside
	adds  int                 // bytes to a packet
	ttl   uint8               // of the outer packets; 0 where it is not set
	via   string              // the interface that they have to leave by; "" for that of the route
}

// Of a tunnel's TOS, inherit is the value that stands for that of the packet inside (vxlan_xmit_one in
// drivers/net/vxlan/vxlan_core.c, ip_tunnel_xmit in net/ipv4/ip_tunnel.c), and dscp what is not of ECN.
const (
	inherit = 1
	dscp    = 0xfc
)

// to is where outer packets go, for people.
func (e *envelope) to(end netip.Addr) string {
	if e.proto == netfilter.UDP {
		return fmt.Sprintf("%s port %d/UDP", end, e.port)
	}
	return fmt.Sprintf("%s (IP protocol %d)", end, e.proto)
}

// packet is the outer packet that a node generates for one inside.
func (e *envelope) packet(h *host.Network, end netip.Addr, inside *netfilter.Packet) netfilter.Packet {
	p := netfilter.Packet{
		Family: netfilter.FamilyOf(end), Proto: e.proto, Src: e.src, Dst: end, DstPort: e.port, Mark: e.mark,
		TOS: e.tos & dscp, Ports: e.ports,
	}
	if !p.Src.IsValid() {
		p.Src = netfilter.SourceFor(h, e.proto, netip.AddrPortFrom(end, e.port))
	}
	if e.tos == inherit {
		p.KeepTOS(inside)
	}
	return p
}

// outer walks the tunnel's outer packet out of one node and into the other. On arrival has it as the other node gets
// it.
func (x *crossing) outer(place string, e *envelope, end netip.Addr) (
	arrival netfilter.Packet, s report.Segment, ok bool,
) {
	family := netfilter.FamilyOf(end)
	if s, ok := x.ownSource(place, e.src); !ok {
		return arrival, s, false
	}
	start := netfilter.Start{Hook: netfilter.Output, Packet: e.packet(x.from.Host, end, x.of)}
	res := x.Walker(x.from.State).Walk(start, netfilter.Options{})
	sent, bad := x.passes(x.from.State, family, &res, func(o *netfilter.Outcome) bool {
		return o.End == netfilter.Sent && o.Packet.Dst == end && o.Packet.DstPort == e.port
	})
	if bad != nil {
		return arrival, x.outerLost(bad, place, x.from, e, end), false
	}
	for _, by := range byHop(&sent) {
		if arrival, s, ok = x.outerBy(place, e, end, &by.Packet); !ok {
			if len(sent.Hops) > 0 && s.Verdict == report.SegmentWrong {
				s = inPart(s, 1+len(sent.Hops))
			}
			return arrival, s, false
		}
	}
	return arrival, s, true
}

// outerBy is outer for what has left the first node.
func (x *crossing) outerBy(place string, e *envelope, end netip.Addr, sent *netfilter.Packet) (
	arrival netfilter.Packet, s report.Segment, ok bool,
) {
	const segment = report.SegmentNetwork
	family := sent.Family
	by := x.cross(x.from, x.to, sent, e.port)
	local, _ := x.to.Host.Local(by.hop)
	near := by.hop == end || local // else there is a router
	switch {
	case by.out == x.out:
		return arrival, with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
			"%s sends the tunnel's packets to %s into the tunnel itself: they are dropped", x.from.Name, end),
			fmt.Sprintf("ip route get %s: dev %s", end, by.out)), false
	case e.via != "" && by.out != e.via:
		return arrival, unknown(segment, place, x.from.Name, "ip route get "+end.String()+" oif "+e.via,
			"%s has the tunnel's packets to %s leave by %s, and the route to it is by %s: where they go is not known", x.out,
			end, e.via, by.out), false
	case e.ttl == 1 && !near:
		return arrival, with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
			"the tunnel's packets to %s have a TTL of 1, and the router %s discards them", end, by.hop),
			"ip -d link on "+x.from.Name+": "+x.out+" ttl 1"), false
	}
	if s, dead := lifeless(x.from, by.out, place); dead {
		return arrival, s, false
	}
	in := x.to.Host.DevOf(end)
	if kind, _ := x.from.Host.Kind(by.out); near && direct[kind] {
		in = by.comesBy()
	}
	switch {
	case near && in == "":
		return arrival, by.cameBy(place), false
	case !near && in == "lo":
		return arrival, by.byRouter(place, end), false
	}
	arrival = arriving(sent, in)
	if arrival.In, s, ok = by.received(place, in); !ok {
		return arrival, s, false
	}
	res := x.Walker(x.to.State).Walk(netfilter.Start{Hook: netfilter.Prerouting, Packet: arrival},
		netfilter.Options{Enters: near})
	_, bad := x.passes(x.to.State, family, &res, func(o *netfilter.Outcome) bool {
		return o.End == netfilter.Delivered && o.Packet.DstPort == e.port
	})
	if own := ownSource(x.to.State, &arrival, x.to.Name); own != nil && !bad.byRule() {
		bad = own
	}
	if bad != nil {
		return arrival, x.outerLost(bad, place, x.to, e, end), false
	}
	if near { // what keeps packets from being taken, as rp_filter, may keep requests of ARP from being answered
		if s, ok := by.neighbour(place, in); !ok {
			return arrival, s, false
		}
		if s, ok := by.bridged(place, in); !ok {
			return arrival, s, false
		}
	}
	if !near {
		return arrival, by.byRouter(place, end), false
	}
	return arrival, s, true
}

// byRouter is the segment of a tunnel's packets that go by a router.
func (x *crossing) byRouter(place string, end netip.Addr) report.Segment {
	return unknown(report.SegmentNetwork, place, x.from.Name, "traceroute -n "+end.String(),
		"the tunnel's packets to %s go by the router %s: what is between the two cannot be read", end, x.hop)
}

// ownSource tells whether the kernel sends packets with the source that a tunnel's interface sets: for IPv4 it finds no
// route for one that is not the node's own, and drops them (ip_route_output_key_hash_rcu in net/ipv4/route.c). For IPv6
// it does not ask (ip6_dst_lookup_tail in net/ipv6/ip6_output.c).
func (x *crossing) ownSource(place string, src netip.Addr) (s report.Segment, ok bool) {
	if !src.IsValid() || !src.Is4() {
		return s, true
	}
	line := "ip -d link on " + x.from.Name + ": " + x.out + " local " + src.String()
	local, known := x.from.Host.Local(src)
	switch {
	case !known:
		return with(unknown(report.SegmentNetwork, place, x.from.Name, "ip addr", "whether %s, from which %s sends the "+
			"tunnel's packets, is an address of %s was not read (%s)", src, x.out, x.from.Name, snapshot.AddrFile), line), false
	case !local:
		return with(wrong(TunnelPeerMissing, report.SegmentNetwork, place, ownerOfDevice(x.out),
			"%s of %s sends the tunnel's packets from %s, which is not one of its addresses: the kernel drops them", x.out,
			x.from.Name, src), line), false
	}
	return s, true
}

// outerLost is a segment whose outer packets do not pass one of the nodes.
func (x *crossing) outerLost(t *trouble, place string, at *Node, e *envelope, end netip.Addr) report.Segment {
	t.message = fmt.Sprintf("the tunnel's packets to %s on %s: %s", e.to(end), at.Name, t.message)
	return t.segment(TunnelDropped, report.SegmentNetwork, place, at.Name, "nft list ruleset")
}

// tunnelSizes compares how large packets the tunnel sends with what the interfaces below it take: at the other end
// that is in.
func (x *crossing) tunnelSizes(place string, e *envelope, end netip.Addr, in string) (s report.Segment, ok bool) {
	r, known, _ := x.from.Host.Route(end)
	if !known || r.Dev == "" {
		return s, true
	}
	mtu, below := x.from.Host.MTU(x.out), x.from.Host.MTU(r.Dev)
	size := x.sends(mtu) + e.adds
	if below != 0 && size > below {
		s = with(unknown(report.SegmentNetwork, place, x.from.Name,
			fmt.Sprintf("ping -c 3 -M do -s %d %s", below-headers(end), end),
			"the packets of %s are up to %d bytes with its headers, and %s takes %d: whether larger ones come through "+
				"in fragments is not known", e.name, size, r.Dev, below),
			fmt.Sprintf("ip link on %s: %s mtu %d, %s mtu %d", x.from.Name, x.out, mtu, r.Dev, below))
		s.Code = LinkMTUDiffers
		return s, false
	}
	if size = min(size, below); below == 0 || x.to.Host.MTU(in) == 0 || size <= x.to.Host.MTU(in) {
		return s, true
	}
	by := *x
	by.hop, by.largest = end, size
	return by.sizes(place, r.Dev, in)
}

// atNode tells whether an end of a tunnel is the other node's own address. Where it is not, the segment says whose it
// is; line is what sends packets there, and command shows it.
func (x *crossing) atNode(place, what, command, line string, end netip.Addr) (s report.Segment, ok bool) {
	const segment = report.SegmentNetwork
	if local, known := x.to.Host.Local(end); known && local {
		return s, true
	}
	if other := x.NodeAt(end); other != "" && other != x.to.Name {
		return with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
			"%s of %s leads %s to the node %s: %s does not get them", x.out, x.from.Name, what, other, x.to.Name), line), false
	}
	return with(unknown(segment, place, x.from.Name, command,
		"%s of %s leads %s to %s, which is not one of the addresses of %s", x.out, x.from.Name, what, end, x.to.Name),
		line), false
}
