// SPDX-License-Identifier: Apache-2.0

package endtoend

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	above    string     // the bridge that IP has it leave by, if out is a port of one; "" for out itself
	hop      netip.Addr // the next hop there: the gateway, or the destination itself
	src, dst netip.Addr
	mark     uint32 // the packet's, which the outer packet of most tunnels keeps
	proto    uint8
	port     uint16
	of       *netfilter.Packet // the packet itself
	largest  int               // how large the connection's packets may be; 0 where nothing limits them
}

// cross is a packet that has left one node for another one; port is that by which a question for its way is asked.
func (c *Connection) cross(from, to *Node, p *netfilter.Packet, port uint16) *crossing {
	return &crossing{
		Connection: c, from: from, to: to, out: p.Out, hop: p.Hop(), src: p.Src, dst: p.Dst, mark: p.Mark, proto: p.Proto,
		port: port, of: p,
	}
}

// dev is the interface whose neighbours count, and whose link-layer address frames come from.
func (x *crossing) dev() string { return cmp.Or(x.above, x.out) }

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
	x.largest = f.largest(false)
	s, in := x.judge(place)
	if s.Verdict == report.SegmentRight {
		if hole, lost := f.clientHole(segment); lost {
			s = hole
		}
	}
	if s.Verdict != report.SegmentWrong {
		f.arrive(in)
		if f.arrival != nil {
			f.arrival.start.Packet.Mark = x.carried(in)
		}
	}
	return s
}

// judge says whether the packet comes to the other node, and by which of its interfaces IP has it come in; "" where
// that is not known.
func (x *crossing) judge(place string) (s report.Segment, in string) {
	if s, in = x.link(place); in == "" || s.Verdict == report.SegmentWrong {
		return s, in
	}
	by, lost, ok := x.received(place, in)
	if !ok {
		return lost, ""
	}
	return s, by
}

// link is judge without what the other node's interface belongs to: in is that which frames come to.
func (x *crossing) link(place string) (s report.Segment, in string) {
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
	case kind == "bridge" && x.tunnelPort() != "":
		y := *x
		y.above, y.out = x.out, x.tunnelPort()
		return y.link(place)
	case direct[kind]:
		return x.direct(place)
	}
	return unknown(segment, place, x.from.Name, "ip -d link show "+x.out,
		"packets leave by %s, of the kind %s, whose other end is not compared", x.out, kind), ""
}

// tunnelPort is the port of the bridge to which it sends frames for the next hop, if that is a VXLAN; "" otherwise.
func (x *crossing) tunnelPort() string {
	e, _ := x.from.Host.Neighbour(x.out, x.hop)
	port := cmp.Or(x.from.Host.FixedTo(x.out, e.MAC), x.from.Host.SetAt(x.out, e.MAC), x.from.Host.LearnedAt(x.out, e.MAC))
	if kind, _ := x.from.Host.Kind(port); kind != "vxlan" {
		return ""
	}
	return port
}

// direct are the kinds of interfaces that frames leave by as they are; "" is hardware.
var direct = map[string]bool{
	"": true, "veth": true, "bond": true, "vlan": true, "bridge": true, "team": true, "macvlan": true, "macvtap": true,
}

// direct judges a link without a tunnel: the next hop is the other node itself, or a router of which nothing is known.
func (x *crossing) direct(place string) (s report.Segment, in string) {
	const segment = report.SegmentNetwork
	if in = x.comesBy(); in == "" {
		local, known := x.to.Host.Local(x.hop)
		switch {
		case x.to.Host.Addresses() == nil || !known:
			return unknown(segment, place, x.to.Name, "ip addr", "the addresses of %s were not read (%s)", x.to.Name,
				snapshot.AddrFile), ""
		case local:
			return x.cameBy(place), ""
		}
		return unknown(segment, place, x.from.Name, x.traceroute(),
			"the next hop %s by %s is not one of the addresses of %s: what is between the two cannot be read", x.hop, x.out,
			x.to.Name), ""
	}
	if kind, known := x.to.Host.Kind(in); known && !direct[kind] {
		return unknown(segment, place, x.from.Name, "bridge fdb show br "+x.out,
			"the next hop %s by %s is the address of %s of %s, of the kind %s: how frames come there is not known", x.hop, x.out,
			in, x.to.Name, kind), ""
	}
	if s, ok := x.neighbour(place, in); !ok {
		return s, in
	}
	if s, ok := x.bridged(place, in); !ok {
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
	show := "ip neigh show " + x.hop.String() + " dev " + x.dev()
	if !x.from.Host.HasNeighbours() {
		return unknown(segment, place, x.from.Name, show, "the neighbours of %s were not read (%s)", x.from.Name,
			snapshot.NeighbourFile), false
	}
	e, there := x.from.Host.Neighbour(x.dev(), x.hop)
	mac, by := x.to.Host.MAC(in), x.to.Host.Receiver(in)
	takes, _ := x.to.Host.TakesFrames(in, e.MAC)
	if s, ok := x.finds(place, by); !ok {
		return s, false
	}
	line := fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", x.hop, x.dev(), e.MAC, e.State)
	switch {
	case !there && !x.answers6(by):
		return unknown(segment, place, x.to.Name, "ip -6 addr show dev "+by, "%s has no link-layer address of %s, and %s "+
			"does not answer for it on %s, as that has no such address in use", x.from.Name, x.hop, x.to.Name, by), false
	case !there: // the node asks now; a program of eBPF may answer in the other one's place
		if why := silentToAll(x.to.Host, by, x.hop, x.from.Host, x.dev()); why != "" {
			return unknown(segment, place, x.to.Name, "sysctl net.ipv4.conf."+by, "%s has no link-layer address of %s, and by "+
				"its settings %s does not answer ARP for it: %s", x.from.Name, x.hop, x.to.Name, why), false
		}
		return s, true
	case e.Failed:
		said := []string{
			fmt.Sprintf("when %s last asked for the link-layer address of %s, nothing answered", x.from.Name, x.hop),
		}
		for _, own := range x.from.Host.AddressesOn(x.dev()) {
			if why := silent(x.to.Host, by, x.hop, own); why != "" {
				said = append(said, fmt.Sprintf("%s does not answer %s: %s", x.to.Name, own, why))
			}
		}
		return with(unknown(segment, place, x.from.Name, show, "%s", strings.Join(said, "; ")),
			fmt.Sprintf("ip neigh: %s dev %s %s", x.hop, x.dev(), e.State)), false
	case e.MAC == "" || takes:
		return s, true
	case mac == "":
		return unknown(segment, place, x.to.Name, "ip link show "+in, "the link-layer address of %s was not read (%s)", in,
			snapshot.LinkFile), false
	}
	others := x.to.Host.WithMAC(e.MAC)
	own := fmt.Sprintf("ip link on %s: %s has %s", x.to.Name, in, mac)
	lost := func(format string, args ...any) report.Segment {
		return with(wrong(EndToEndWrongNeighbour, segment, place, "the CNI plugin, or the network configuration", format,
			args...), line, own)
	}
	switch {
	case !e.Static:
	case len(others) == 0:
		return lost("%s sends frames for %s to %s, which no interface of %s has", x.from.Name, x.hop, e.MAC, x.to.Name), false
	case x.endsAt(in):
		return lost("%s sends frames for %s to %s, the address of %s, and they come to %s of %s", x.from.Name, x.hop, e.MAC,
			others[0], in, x.to.Name), false
	}
	return with(unknown(segment, place, x.from.Name, show,
		"%s sends frames for %s to %s, and not to the address of %s: something between the two has to pass them on",
		x.from.Name, x.hop, e.MAC, x.to.Name), line, own), false
}

// answers6 tells whether the other node may answer where its neighbours ask for the next hop on an interface: of IPv6,
// the kernel does for no address of another interface (ndisc_recv_ns in net/ipv6/ndisc.c).
func (x *crossing) answers6(by string) bool {
	to := x.to.Host
	may, _, known := to.ProxiesND(by, x.hop)
	return x.hop.Is4() || may || !known || slices.ContainsFunc(to.DevsOf(x.hop), func(d string) bool {
		return to.On(d, by) && to.UsableOn(d, x.hop)
	})
}

// endsAt tells whether the other node's interface of the next hop is certain to be the only one that gets the frames:
// it is the other end of a pair of veth, or of a tunnel, and passes them on to none.
func (x *crossing) endsAt(in string) bool {
	return x.to.Host.Master(in) == "" && (x.byTunnel() || x.from.Host.PeerIn(x.to.Host, x.out) == in)
}

// sizes compares how large packets may be at both ends of a link.
func (x *crossing) sizes(place, out, in string) (s report.Segment, ok bool) {
	mtu, taken := x.from.Host.MTU(out), x.to.Host.MTU(in)
	sent := x.sends(mtu)
	if sent == 0 || taken == 0 || sent <= taken {
		return s, true
	}
	s = with(unknown(report.SegmentNetwork, place, x.from.Name,
		fmt.Sprintf("ping -c 3 -M do -s %d %s", sent-headers(x.hop), x.hop),
		"%s sends packets of up to %d bytes, and %s takes %d: larger ones may be lost without a message", x.from.Name, sent,
		x.to.Name, taken),
		fmt.Sprintf("ip link on %s: %s mtu %d", x.from.Name, out, mtu),
		fmt.Sprintf("ip link on %s: %s mtu %d", x.to.Name, in, taken))
	s.Code = LinkMTUDiffers
	return s, false
}

// sends is how large the connection's packets are that leave by an interface, which takes so many bytes. That rules
// have made segments smaller says nothing of links behind that.
func (x *crossing) sends(mtu int) int {
	if x.largest <= 1 {
		return mtu
	}
	return min(mtu, x.largest)
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
