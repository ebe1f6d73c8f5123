// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

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
	to, lost, found := x.tunnelEnd(place, &v)
	if found { // the entry's own values count
		v.Port, v.ID = cmp.Or(to.Port, v.Port), cmp.Or(to.ID, v.ID)
	}
	over6 := v.OverIPv6()
	if found {
		over6 = to.Dst.Is6()
	}
	if in, s = x.otherEnd(place, &v, over6); in == "" {
		return s, ""
	}
	if up, known := x.to.Host.Up(in); known && !up {
		return with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out), "%s of %s is down", in, x.to.Name),
			"ip link on "+x.to.Name+": "+in+" is not UP"), ""
	}
	if s, ok := x.sameForm(place, &v, in, to.Dst); !ok {
		return s, in
	}
	if s, own := x.ownFrames(place, in); own && !v.GPE {
		return s, ""
	}
	if !found {
		return lost, in
	}
	end := to.Dst
	if s, ok := x.neighbour(place, in); !ok {
		return s, in
	}
	e := vxlanEnvelope(x.from.Host, &v, end, to.Via, x.mark)
	arrival, s, ok := x.outer(place, e, end)
	if !ok {
		return s, in
	}
	if s, ok := x.tunnelSizes(place, e, end, arrival.In); !ok {
		return s, in
	}
	return right(segment, place, "VXLAN %d by %s to %s (%s of %s)", v.ID, x.out, end, in, x.to.Name), in
}

// vxlanEnvelope is what a VXLAN of a node puts a packet with a mark into, that it sends to an end; via is the interface
// that this has to leave by.
func vxlanEnvelope(h *host.Network, v *host.VXLAN, end netip.Addr, via string, mark uint32) *envelope {
	return &envelope{
		name: fmt.Sprintf("VXLAN %d", v.ID), proto: netfilter.UDP, port: v.Port, src: v.Local, mark: mark, tos: v.TOS,
		ports: outerPorts(h, v), adds: vxlanOverhead(end), via: via,
	}
}

// ownFrames tells whether the other end of a tunnel takes the frames for its own that have come back, as they come from
// the link-layer address that it has itself: it discards them (vxlan_set_mac in drivers/net/vxlan/vxlan_core.c,
// geneve_rx in drivers/net/geneve.c).
func (x *crossing) ownFrames(place, in string) (s report.Segment, own bool) {
	mac := x.from.Host.MAC(x.dev())
	if mac == "" || !strings.EqualFold(mac, x.to.Host.MAC(in)) {
		return s, false
	}
	return with(wrong(EndToEndWrongNeighbour, report.SegmentNetwork, place, ownerOfDevice(x.out),
		"%s of %s and %s of %s have the same link-layer address: each discards what comes from the other one as its own",
		x.dev(), x.from.Name, in, x.to.Name),
		fmt.Sprintf("ip link on %s: %s has %s", x.from.Name, x.dev(), mac),
		fmt.Sprintf("ip link on %s: %s has %s", x.to.Name, in, mac)), true
}

// otherEnd finds the other node's interface of the same tunnel; "" and a segment where there is none: the kernel
// discards what is for another one (vxlan_rcv in drivers/net/vxlan/vxlan_core.c). One over IPv4 and one over IPv6 may
// have the same network and port, as flannel and Calico make them: each has a socket of its family (vxlan_sock_add).
func (x *crossing) otherEnd(place string, v *host.VXLAN, over6 bool) (dev string, s report.Segment) {
	for _, d := range x.to.Host.VXLANs() {
		if o, _ := x.to.Host.VXLAN(d); o.ID == v.ID && o.Port == v.Port && !o.External && o.OverIPv6() == over6 {
			return d, s
		}
	}
	if _, known := x.to.Host.Kind("lo"); !known {
		return "", unknown(report.SegmentNetwork, place, x.to.Name, "ip -d link",
			"the interfaces of %s were not read (%s)", x.to.Name, snapshot.LinkFile)
	}
	has := ""
	for _, d := range x.to.Host.Devs() {
		kind, _ := x.to.Host.Kind(d)
		o, ok := x.to.Host.VXLAN(d)
		if kind == "vxlan" && (!ok || o.External) {
			return "", unknown(report.SegmentNetwork, place, x.to.Name, "ip -d link show "+d,
				"whether %s of %s is the other end of VXLAN %d (port %d) is not known", d, x.to.Name, v.ID, v.Port)
		}
		if ok {
			has = fmt.Sprintf("ip -d link on %s: %s vxlan id %d dstport %d over %s", x.to.Name, d, o.ID, o.Port,
				familyOf(o.OverIPv6()))
		}
	}
	return "", with(wrong(TunnelPeerMissing, report.SegmentNetwork, place, ownerOfDevice(x.out),
		"%s has no interface of VXLAN %d (port %d) over %s, which %s of %s sends to", x.to.Name, v.ID, v.Port,
		familyOf(over6), x.out, x.from.Name), has)
}

func familyOf(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// sameForm compares the form of the headers at both ends: one that the other end does not expect is discarded
// (vxlan_rcv in drivers/net/vxlan/vxlan_core.c). That with a mark is sent for packets alone that have one
// (vxlan_build_gbp_hdr).
func (x *crossing) sameForm(place string, v *host.VXLAN, in string, end netip.Addr) (s report.Segment, ok bool) {
	o, _ := x.to.Host.VXLAN(in)
	evidence := []string{
		fmt.Sprintf("ip -d link on %s: %s gbp %t gpe %t", x.from.Name, x.out, v.GBP, v.GPE),
		fmt.Sprintf("ip -d link on %s: %s gbp %t gpe %t", x.to.Name, in, o.GBP, o.GPE),
	}
	switch {
	case v.GPE != o.GPE:
		return with(wrong(TunnelPeerMissing, report.SegmentNetwork, place, ownerOfDevice(x.out),
			"of %s on %s and %s on %s one alone has the headers of VXLAN-GPE: neither takes the other one's packets", x.out,
			x.from.Name, in, x.to.Name), evidence...), false
	case v.GBP && !o.GBP:
		return with(unknown(report.SegmentNetwork, place, x.from.Name, "ip -d link show "+x.out,
			"%s of %s sends the marks of packets along (gbp), and %s of %s discards packets that have one: whether these have "+
				"is not known", x.out, x.from.Name, in, x.to.Name), evidence...), false
	}
	return x.sameSums(place, v, &o, in, end)
}

// gbpMask are the bits of a mark that the header has room for (VXLAN_GBP_MASK).
const gbpMask = 1<<22 | 1<<19 | 0xffff

// carried is the mark that a packet has which comes out of the tunnel: with gbp at both ends that which it has gone in
// with (vxlan_build_gbp_hdr and vxlan_parse_gbp_hdr).
func (x *crossing) carried(in string) uint32 {
	v, _ := x.from.Host.VXLAN(x.out)
	o, _ := x.to.Host.VXLAN(in)
	if !v.GBP || !o.GBP {
		return 0
	}
	return x.mark & gbpMask
}

// sameSums compares how checksums are sent and taken: over IPv6 a packet without that of UDP is discarded, unless the
// socket takes such (udp6_csum_init in net/ipv6/ip6_checksum.c, __udp6_lib_rcv in net/ipv6/udp.c); of one whose
// checksum inside is left to the other end, an end that does not do that finds the header's flag unknown (vxlan_rcv).
func (x *crossing) sameSums(
	place string, v, o *host.VXLAN, in string, end netip.Addr,
) (s report.Segment, ok bool) {
	lost := func(what, sends, takes string) (report.Segment, bool) {
		return with(wrong(TunnelPeerMissing, report.SegmentNetwork, place, ownerOfDevice(x.out),
			"%s of %s sends packets %s, and %s of %s discards such", x.out, x.from.Name, what, in, x.to.Name),
			fmt.Sprintf("ip -d link on %s: %s %s", x.from.Name, x.out, sends),
			fmt.Sprintf("ip -d link on %s: %s without %s", x.to.Name, in, takes)), false
	}
	switch {
	case v.NoSum6 && !o.WithoutSum6 && end.Is6():
		return lost("without a checksum of UDP", "udp6zerocsumtx", "udp6zerocsumrx")
	case v.RemoteSum && !o.TakesRemoteSum:
		return lost("whose checksum inside is left to the other end", "remcsumtx", "remcsumrx")
	case v.RemoteSum: // measured on Linux 6.18: those that are cut into segments are lost
		return with(unknown(report.SegmentNetwork, place, x.from.Name, "ip -d link show "+x.out,
			"%s of %s leaves checksums inside to %s of %s: whether that takes large packets is not known", x.out, x.from.Name,
			in, x.to.Name), fmt.Sprintf("ip -d link on %s: %s remcsumtx", x.from.Name, x.out)), false
	}
	return s, true
}

// anyMAC is that of an entry for all frames that no other one is for.
const anyMAC = "00:00:00:00:00:00"

// tunnelEnd finds where the tunnel sends frames to the next hop, by its forwarding table (vxlan_xmit in
// drivers/net/vxlan/vxlan_core.c).
func (x *crossing) tunnelEnd(place string, v *host.VXLAN) (to host.Forwarding, s report.Segment, ok bool) {
	const segment = report.SegmentNetwork
	show := "bridge fdb show dev " + x.out
	list, known := x.from.Host.Forwardings(x.out)
	if !known {
		return to, unknown(segment, place, x.from.Name, show, "the forwarding table of %s was not read (%s)", x.from.Name,
			snapshot.BridgeFDBFile), false
	}
	if !x.from.Host.HasNeighbours() { // which of the entries counts is decided by the neighbour's address
		return to, unknown(segment, place, x.from.Name, "ip neigh show "+x.hop.String()+" dev "+x.dev(),
			"the neighbours of %s were not read (%s)", x.from.Name, snapshot.NeighbourFile), false
	}
	var ends, all []host.Forwarding
	e, there := x.from.Host.Neighbour(x.dev(), x.hop)
	for _, f := range list {
		own := there && e.MAC != "" && strings.EqualFold(f.MAC, e.MAC)
		switch {
		case f.Group && own:
			return to, unknown(segment, place, x.from.Name, show+"; ip nexthop", "frames for %s go to a group of next hops, "+
				"which was not read", x.hop), false
		case !f.Dst.IsValid():
		case own:
			ends = append(ends, f)
		case f.MAC == anyMAC:
			all = append(all, f)
		}
	}
	if len(ends) == 0 {
		ends = all
	}
	if len(ends) == 0 && v.Remote.IsValid() {
		ends = []host.Forwarding{{MAC: anyMAC, Dst: v.Remote, Via: v.Lower}}
	}
	what := e.MAC
	if !there || e.MAC == "" {
		what = "a neighbour that is not known (" + x.hop.String() + ")"
	}
	if len(ends) == 0 {
		if v.Proxy && (!there || e.MAC == "") {
			return to, unknown(segment, place, x.from.Name, show, "%s has no neighbour %s", x.out, x.hop), false
		}
		lines := []string{"bridge fdb: " + x.out + " has no entry for " + what + ", and none for all frames"}
		if x.from.Host.NoARP(x.dev()) && strings.EqualFold(e.MAC, x.from.Host.MAC(x.dev())) {
			lines = append(lines, "ip link: "+x.dev()+" has NOARP: the kernel takes its own address for that of neighbours")
		}
		return to, with(wrong(TunnelPeerMissing, segment, place, ownerOfDevice(x.out),
			"%s of %s has no entry that leads frames for %s to %s: they are dropped", x.out, x.from.Name, x.hop, x.to.Name),
			lines...), false
	}
	for _, f := range ends {
		if local, known := x.to.Host.Local(f.Dst); known && local {
			return f, s, true
		}
	}
	if slices.ContainsFunc(ends, func(f host.Forwarding) bool { return f.Dst.IsMulticast() }) {
		return to, unknown(segment, place, x.from.Name, show, "%s floods frames to the group %s", x.out, ends[0].Dst), false
	}
	if len(ends) > 1 {
		return to, unknown(segment, place, x.from.Name, show, "%s floods frames to %d other ends, and %s is not one of them",
			x.out, len(ends), x.to.Name), false
	}
	s, ok = x.atNode(place, "frames for "+x.hop.String(), show,
		fmt.Sprintf("bridge fdb: %s dev %s dst %s", what, x.out, ends[0].Dst), ends[0].Dst)
	return ends[0], s, ok
}
