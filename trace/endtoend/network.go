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
	src, dst netip.Addr
	mark     uint32 // the packet's, which the outer packet of most tunnels keeps
	proto    uint8
	port     uint16
}

// cross is a packet that has left one node for another one; port is that by which a question for its way is asked.
func (c *Connection) cross(from, to *Node, p *netfilter.Packet, port uint16) *crossing {
	return &crossing{c, from, to, p.Out, hopOf(p), p.Src, p.Dst, p.Mark, p.Proto, port}
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
	if s, lost := f.firstHop(nodePlace(f.Client.Name)); lost {
		return s
	}
	p := &f.end.Packet
	x := f.cross(f.Client, f.node, p, p.DstPort)
	s, in := x.judge(place)
	if s.Verdict == report.SegmentRight {
		if hole, lost := f.clientHole(segment); lost {
			s = hole
		}
	}
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
	if s, dead := lifeless(x.from, x.out, place); dead {
		return s, ""
	}
	kind, known := x.from.Host.Kind(x.out)
	switch {
	case !known:
		return unknown(segment, place, x.from.Name, "ip -d link show "+x.out,
			"which kind of interface %s is was not read (%s)", x.out, snapshot.LinkFile), ""
	case kind == "vxlan":
		return x.vxlan(place)
	case kind == "wireguard":
		return x.wireguard(place)
	case forms[kind] != nil:
		return x.encapsulated(place)
	case direct[kind]:
		return x.direct(place)
	}
	return unknown(segment, place, x.from.Name, "ip -d link show "+x.out,
		"packets leave by %s, of the kind %s, whose other end is not compared", x.out, kind), ""
}

// lifeless is the segment of a link of which one end neither sends nor takes anything: it is down (__dev_queue_xmit and
// __netif_receive_skb_core in net/core/dev.c), or has no carrier.
func lifeless(n *Node, dev, place string) (s report.Segment, dead bool) {
	if up, known := n.Host.Up(dev); known && !up {
		s = with(wrong(InterfaceDown, report.SegmentNetwork, place, "whoever set it down", "%s of %s is down", dev, n.Name),
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

// direct are the kinds of interfaces that frames leave by as they are; "" is hardware.
var direct = map[string]bool{"": true, "veth": true, "bond": true, "vlan": true, "bridge": true, "team": true}

// direct judges a link without a tunnel: the next hop is the other node itself, or a router of which nothing is known.
func (x *crossing) direct(place string) (s report.Segment, in string) {
	const segment = report.SegmentNetwork
	in = x.to.Host.DevOf(x.hop)
	if dev := x.answered(in); dev != "" {
		in = dev
	}
	if in == "" {
		if x.to.Host.Addresses() == nil {
			return unknown(segment, place, x.to.Name, "ip addr", "the addresses of %s were not read (%s)", x.to.Name,
				snapshot.AddrFile), ""
		}
		return unknown(segment, place, x.from.Name, x.traceroute(),
			"the next hop %s by %s is not one of the addresses of %s: what is between the two cannot be read", x.hop, x.out,
			x.to.Name), ""
	}
	if s, dead := lifeless(x.to, in, place); dead {
		return s, ""
	}
	if s, ok := x.neighbour(place, in); !ok {
		return s, in
	}
	if s, ok := x.sizes(place, x.out, in); !ok {
		return s, in
	}
	return right(segment, place, "without a tunnel, by %s to %s (%s of %s)", x.out, x.hop, in, x.to.Name), in
}

// answered is the other node's interface that has the link-layer address which frames for the next hop go to: the
// kernel answers ARP for an address of another interface of its own, and for others (arp_process in net/ipv4/arp.c),
// and takes packets by whichever interface their frames come to. "" where it is not one alone, or that of the address.
func (x *crossing) answered(own string) string {
	e, there := x.from.Host.Neighbour(x.out, x.hop)
	if !there || e.MAC == "" || e.Failed || strings.EqualFold(e.MAC, x.to.Host.MAC(own)) {
		return ""
	}
	has := func(h *host.Network) (devs []string) {
		for _, d := range h.Devs() {
			if strings.EqualFold(h.MAC(d), e.MAC) {
				devs = append(devs, d)
			}
		}
		return devs
	}
	devs := has(x.to.Host)
	if len(devs) != 1 || len(has(x.from.Host)) > 0 || x.to.Host.Master(devs[0]) != "" {
		return ""
	}
	if kind, known := x.to.Host.Kind(devs[0]); !known || !direct[kind] {
		return ""
	}
	return devs[0]
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
	if !x.from.Host.HasNeighbours() {
		return unknown(segment, place, x.from.Name, show, "the neighbours of %s were not read (%s)", x.from.Name,
			snapshot.NeighbourFile), false
	}
	e, there := x.from.Host.Neighbour(x.out, x.hop)
	mac := x.to.Host.MAC(in)
	line := fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", x.hop, x.out, e.MAC, e.State)
	switch {
	case !there: // the node asks now; a program of eBPF may answer in the other one's place
		if why := silentToAll(x.to.Host, in, x.hop, x.from.Host, x.out); why != "" {
			return unknown(segment, place, x.to.Name, "sysctl net.ipv4.conf."+in, "%s has no link-layer address of %s, and by "+
				"its settings %s does not answer ARP for it: %s", x.from.Name, x.hop, x.to.Name, why), false
		}
		return s, true
	case e.Failed:
		said := []string{
			fmt.Sprintf("when %s last asked for the link-layer address of %s, nothing answered", x.from.Name, x.hop),
		}
		for _, own := range x.from.Host.AddressesOn(x.out) {
			if why := silent(x.to.Host, in, x.hop, own); why != "" {
				said = append(said, fmt.Sprintf("%s does not answer %s: %s", x.to.Name, own, why))
			}
		}
		return with(unknown(segment, place, x.from.Name, show, "%s", strings.Join(said, "; ")),
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

// podState returns what was read of the endpoint's pod; nil where nothing was.
func (f *follower) podState() *nodestate.State {
	if p, _ := podOf(f.node, f.to.Pod); p != nil {
		return p.State
	}
	return nil
}
