// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// received returns the interface that IP of the other node has packets come in by whose frames come to another one, and
// whether both are up: a port of a bridge that is down is disabled (br_stp_disable_bridge in net/bridge/br_stp_if.c),
// and takes nothing (br_handle_frame in net/bridge/br_input.c).
func (x *crossing) received(place, in string) (by string, s report.Segment, ok bool) {
	// Only what is sent by a tunnel needs its carrier.
	if s, dead := lifeless(x.to, in, place); dead && (s.Code != NoCarrier || !x.byTunnel()) {
		return "", s, false
	}
	if by = x.to.Host.Receiver(in); by != in {
		if s, dead := lifeless(x.to, by, place); dead {
			return "", s, false
		}
	}
	port, certain := in, true
	if by == in {
		port, certain = portTo(x.to.Host, by, x.from.Host, x.out)
	}
	state := x.to.Host.PortState(by, port)
	line := fmt.Sprintf("ip -d link on %s: %s master %s state %s", x.to.Name, port, by, state)
	if x.to.Host.LockedOut(by, port) {
		state = "locked"
		line = fmt.Sprintf("ip -d link on %s: %s master %s locked on; bridge fdb: no entry for its neighbours", x.to.Name,
			port, by)
	}
	if port == "" || state == "" {
		return by, s, true
	}
	s = with(wrong(InterfaceDown, report.SegmentNetwork, place, "the network configuration",
		"the bridge %s of %s takes nothing that comes to its port %s", by, x.to.Name, port), line)
	if !certain {
		s.Verdict, s.Code, s.Command, s.Node = report.SegmentUnknown, "", "bridge -d link show dev "+port, x.to.Name
	}
	return "", s, false
}

// portTo is the port of a node's bridge that the other node's interface is behind: the other end of that, or of a port
// of it; or, which is not certain, the only one beside veth. "" where that is not known.
func portTo(of *host.Network, bridge string, other *host.Network, dev string) (port string, certain bool) {
	for _, d := range of.Devs() {
		kind, known := of.Kind(d)
		peer := of.PeerIn(other, d)
		switch {
		case of.Master(d) != bridge || bridge == "" || !of.Bridge(bridge):
		case peer != "" && (peer == dev || other.Receiver(peer) == dev):
			return d, true
		case kind == "veth":
		case !known || !direct[kind]: // a virtual machine's, that may be the other node
			return "", false
		case port != "":
			return "", false
		default:
			port = d
		}
	}
	return port, false
}

// byTunnel tells whether the packet leaves by a tunnel.
func (x *crossing) byTunnel() bool {
	kind, _ := x.from.Host.Kind(x.out)
	return kind == "vxlan" || kind == "wireguard" || forms[kind] != nil
}

// lifeless is the segment of a link of which one end neither sends nor takes anything: it is down (__dev_queue_xmit and
// __netif_receive_skb_core in net/core/dev.c), or has no carrier.
func lifeless(n *Node, dev, place string) (s report.Segment, dead bool) {
	if up, known := n.Host.Up(dev); known && !up {
		s = with(wrong(InterfaceDown, report.SegmentNetwork, place, "the network configuration",
			"%s of %s is down", dev, n.Name),
			"ip link on "+n.Name+": "+dev+" is not UP")
	} else if n.Host.NoCarrier(dev) {
		s = with(wrong(NoCarrier, report.SegmentNetwork, place, "the network", "%s of %s has no carrier", dev, n.Name),
			"ip link: "+dev+" is UP and has NO-CARRIER")
	} else {
		return s, false
	}
	s.Node = n.Name
	return s, true
}

// comesBy is the other node's interface that frames for the next hop come to: that with the link-layer address which
// they go to, or that of the next hop's address. If that one is not on this link, as lo is not, it is the only one that
// is: the kernel answers ARP for it there (arp_process in net/ipv4/arp.c). "" where that is not known.
func (x *crossing) comesBy() string {
	own := slices.DeleteFunc(x.to.Host.DevsOf(x.hop), func(d string) bool { return d == "lo" })
	first := ""
	if len(own) > 0 {
		first = own[0]
	}
	if dev := x.answered(first); dev != "" {
		return dev
	}
	if i := slices.IndexFunc(own, x.linked); i >= 0 {
		return own[i]
	}
	if local, known := x.to.Host.Local(x.hop); !known || !local {
		return first
	}
	var on []string
	for _, dev := range x.to.Host.Devs() {
		by := x.to.Host.Receiver(dev)
		if kind, known := x.to.Host.Kind(dev); known && direct[kind] && x.linked(dev) && !slices.Contains(on, by) {
			on = append(on, by)
		}
	}
	switch {
	case len(on) == 1:
		return on[0]
	case len(on) > 1:
		return ""
	}
	return first
}

// cameBy is the segment of frames that come to the other node by an interface of which nothing is known.
func (x *crossing) cameBy(place string) report.Segment {
	return unknown(report.SegmentNetwork, place, x.from.Name, "ip neigh show "+x.hop.String()+" dev "+x.out,
		"the next hop %s by %s is an address of %s, and not that of an interface on this link: by which of its interfaces "+
			"packets come in is not known", x.hop, x.out, x.to.Name)
}

// answered is the other node's interface that has the link-layer address which frames for the next hop go to: the
// kernel answers ARP for an address of another interface of its own, and for others (arp_process in net/ipv4/arp.c),
// and takes packets by whichever interface their frames come to. "" where it is not one alone, where it is not known to
// be on this link, and where that of the address takes such frames.
func (x *crossing) answered(own string) string {
	e, there := x.from.Host.Neighbour(x.out, x.hop)
	if !there || e.MAC == "" || e.Failed {
		return ""
	}
	if takes, _ := x.to.Host.TakesFrames(own, e.MAC); takes {
		return ""
	}
	devs := x.to.Host.WithMAC(e.MAC)
	if len(devs) != 1 || len(x.from.Host.WithMAC(e.MAC)) > 0 || x.to.Host.Master(devs[0]) != "" || !x.linked(devs[0]) {
		return ""
	}
	if kind, known := x.to.Host.Kind(devs[0]); !known || !direct[kind] {
		return ""
	}
	return devs[0]
}

// linked tells whether an interface of the other node is known to be on the link that the packet leaves by: the two are
// the ends of a pair of veth, or have addresses in one subnet.
func (x *crossing) linked(dev string) bool {
	if dev == "lo" {
		return false
	}
	ports := []string{x.out}
	layers, _ := x.from.Host.Below(x.out)
	for _, l := range layers {
		ports = append(ports, l.Devs...)
	}
	if slices.ContainsFunc(ports, func(d string) bool { return x.from.Host.PeerIn(x.to.Host, d) == dev }) {
		return true
	}
	shares := func(of *host.Network, dev string, others []netip.Addr) bool {
		return slices.ContainsFunc(others, func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() && of.Reaches(dev, a) })
	}
	return shares(x.to.Host, dev, x.from.Host.AddressesOn(x.out)) &&
		shares(x.from.Host, x.out, x.to.Host.AddressesOn(dev))
}

// bridged judges whether a bridge that the packet leaves by sends frames for the next hop by the port that the other
// node is behind (br_dev_xmit in net/bridge/br_device.c).
func (x *crossing) bridged(place, in string) (s report.Segment, ok bool) {
	const segment = report.SegmentNetwork
	own, bridge := x.from.Host, x.out
	e, there := own.Neighbour(bridge, x.hop)
	mac := cmp.Or(e.MAC, x.to.Host.MAC(in))
	if !own.Bridge(bridge) || mac == "" {
		return s, true
	}
	lost := func(line, format string, args ...any) (report.Segment, bool) {
		return with(wrong(EndToEndWrongNeighbour, segment, place, "the network configuration", format, args...),
			line), false
	}
	if kept, _ := own.KeptByBridge(bridge, mac); kept {
		return lost(fmt.Sprintf("bridge fdb: %s dev %s master %s permanent", mac, bridge, bridge),
			"the bridge %s of %s treats the link-layer address %s of %s as its own: it sends no frames to it",
			bridge, x.from.Name, mac, x.hop)
	}
	port, certain := portTo(own, bridge, x.to.Host, in)
	if port == "" {
		return s, true
	}
	show := "bridge fdb show br " + bridge
	if other, set := own.Elsewhere(bridge, port, mac); other != "" {
		line := fmt.Sprintf("bridge fdb: %s dev %s master %s", mac, other, bridge)
		if set && certain {
			return lost(line, "the bridge %s of %s sends frames for %s by its port %s, and %s is behind %s", bridge, x.from.Name,
				x.hop, other, x.to.Name, port)
		}
		return with(unknown(segment, place, x.from.Name, show, "the bridge %s of %s last had the link-layer address of %s "+
			"behind its port %s, and %s may be behind %s", bridge, x.from.Name, x.hop, other, x.to.Name, port), line), false
	}
	if lost, never := own.Unlearned(bridge, port, mac); never || lost && there && e.MAC != "" {
		return with(unknown(segment, place, x.from.Name, show, "the bridge %s of %s does not know that %s is behind its "+
			"port %s, and sends no frames to an unknown one by it", bridge, x.from.Name, x.to.Name, port),
			"bridge -d link: "+port+" flood off", "bridge fdb: no entry for "+mac+" dev "+port), false
	}
	return s, true
}
