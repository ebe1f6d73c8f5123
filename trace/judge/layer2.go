// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about the interface that packets leave by, and the next hop there.
const (
	NoCarrier       = "NoCarrier"
	WrongNeighbour  = "WrongNeighbour"
	NeighbourFailed = "NeighbourFailed"
	LeadsNowhere    = "LeadsNowhere"
	NoTunnelEnd     = "NoTunnelEnd"
	MTUTooSmall     = "MTUTooSmall"
)

var (
	_ = register(kind{
		code: NoCarrier, severity: mismatch, scope: onPath,
		remedy: advice(
			"find out why the other end of the link is gone or down: a cable, a switch's port, the pod's end of a "+
				"veth, a bridge without a port that is up",
			command{line: "ip -d link", onNode: true},
		),
		by: stopped(NoCarrier, citing((*pathCase).withoutCarrier),
			"the interface through which packets leave has no carrier: the kernel drops them"),
	})
	_ = register(kind{
		code: WrongNeighbour, severity: mismatch, scope: onPath,
		remedy: advice(
			"remove the entry, so that the kernel asks for the address; where a CNI sets it (flannel), restart the "+
				"CNI's pod on {node}",
			command{line: "ip neigh show nud permanent", onNode: true},
		),
		by: stopped(
			WrongNeighbour,
			func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) *obstacle {
				if s := p.nextHopIsMany(o, end); s.found() {
					return s
				}
				return shownBy(p.misledByNeighbour(o, end))
			},
			"the neighbour table has a link-layer address for the next hop that is not its own: no host takes the frames",
		),
	})
	_ = register(kind{
		code: NoTunnelEnd, severity: mismatch, scope: onPath,
		remedy: advice("restart the CNI's pod on {node}: it sets the tunnel's forwarding table (flannel, Calico)",
			command{line: "bridge fdb show", onNode: true}),
		by: stopped(NoTunnelEnd, citing((*pathCase).withoutTunnelEnd),
			"the tunnel through which packets leave has no entry for the next hop, or leads to another node"),
	})
	_ = register(kind{
		code: NeighbourFailed, severity: warning, scope: onPath,
		remedy: advice(
			"see whether the next hop is there (the pod runs, the node is up, both are on that network); the next "+
				"packet makes the kernel ask again, and trace --live shows what happens to it",
			command{line: "ip neigh show nud failed nud incomplete", onNode: true},
		),
		by: unsureHop(stageSettings, NeighbourFailed, (*pathCase).silentNeighbour,
			"when the kernel last asked for the next hop's link-layer address, nothing answered"),
	})
	_ = register(kind{
		code: LeadsNowhere, severity: mismatch, scope: onPath,
		remedy: advice("change the route to the interface behind which the next hop is; if ARP is off on the interface, "+
			"turn it on again: ip link set dev IFACE arp on", command{line: "ip route", onNode: true},
			command{line: "ip -d link", onNode: true}),
		by: stopped(LeadsNowhere, citing((*pathCase).discarded),
			"the route uses an interface behind which no host receives the packets"),
	})
	_ = register(kind{
		code: MTUTooSmall, severity: note, scope: onPath,
		remedy: advice(
			"give the pods' network the smallest MTU on the path (in the CNI's configuration), or make sure that the ICMP "+
				"messages reach the pods",
			command{line: "ip link", onNode: true},
		),
		by: &detector{stage: stageSettings, path: func(p *pathCase) []issue {
			if len(p.blackHole()) > 0 {
				return nil
			}
			out := mayBeTooLarge.path(p)
			for i := range out {
				out[i].actual = "packets that are too large may be lost"
			}
			return out
		}},
	})
)

var mayBeTooLarge = stopped(MTUTooSmall,
	citing(func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) []string {
		_, smaller := p.smallerMTU(o, end)
		return slices.Concat(smaller, p.narrowPort(o, end))
	}),
	"the interface or the route by which packets leave has a smaller MTU than the pod: packets that are too large are "+
		"lost, unless the ICMP messages that tell the pod its path's MTU come back to it")

// hop is the next hop of a packet: an address on an interface.
type hop struct {
	dev string
	ip  netip.Addr
}

// hops are the next hop of a packet that leaves for an endpoint, and that of its answer, which goes back to a pod of
// the node by the interface that its request came by. Where the route is not certain there is none, and of an address
// that merely stands for pods there is no answer.
func (p *pathCase) hops(o *expect.Origin, end *netfilter.Outcome) []hop {
	var out []hop
	if pkt := &end.Packet; pkt.Out != "" && pkt.Out != netfilter.UnknownIface {
		out = append(out, hop{pkt.Out, pkt.Hop()})
	}
	if o.Kind == expect.FromPod && o.Pod != "" && o.Iface != netfilter.UnknownIface {
		out = append(out, hop{o.Iface, p.backTo(o, end)})
	}
	return out
}

// hopsOut are the next hops of a packet, and that of its answer to a client outside, by its route, where it comes back
// by this node. Its router, or the client itself, has asked for the node before: that it is not known need not be said.
func (p *pathCase) hopsOut(o *expect.Origin, end *netfilter.Outcome) []hop {
	out := p.hops(o, end)
	if o.Kind != expect.FromExternal || !o.Address.IsValid() || o.Sample ||
		end.End == netfilter.Sent && !end.Packet.SNAT && !p.local(end.Packet.Dst) {
		return out
	}
	l := p.backRoute(o, end)
	if !l.Known || l.Type != host.RouteUnicast || len(l.Hops) > 0 || l.Dev == "" {
		return out
	}
	h := hop{l.Dev, l.Gateway}
	if !h.ip.IsValid() {
		h.ip = o.Address
	}
	if !slices.Contains(out, h) {
		out = append(out, h)
	}
	return out
}

// backTo is the next hop of the answer to a pod of the node: the pod, or the gateway of the node's route to it.
func (p *pathCase) backTo(o *expect.Origin, end *netfilter.Outcome) netip.Addr {
	if !p.gated(o.Address) || p.neighbours(o, end) {
		return o.Address
	}
	if l := p.backRoute(o, end); l.Known && l.Dev == o.Iface && l.Gateway.IsValid() {
		return l.Gateway
	}
	return o.Address
}

// backRoute looks up the route of the answer to a pod of the node, or to a client outside.
func (p *pathCase) backRoute(o *expect.Origin, end *netfilter.Outcome) host.Lookup {
	pkt := &end.Packet
	q := host.Query{
		Dst: o.Address, Src: pkt.Dst, In: pkt.Out, Mark: pkt.CTMark, AnyMark: pkt.CTMark != 0, Proto: pkt.Proto,
		SrcPort: pkt.DstPort,
	}
	switch {
	case end.End == netfilter.Delivered:
		q.Local, q.In = true, ""
	case q.In == netfilter.UnknownIface:
		q.In = ""
	}
	return p.net.Lookup(q)
}

// gated tells whether any route to an address leads by a gateway, but for default routes.
func (w *worker) gated(a netip.Addr) bool {
	return w.gateways.once(a, func() bool { return w.net.ByGateway(a) })
}

// withoutCarrier: [host.Network.NoCarrier].
func (p *pathCase) withoutCarrier(o *expect.Origin, end *netfilter.Outcome) []string {
	for _, h := range p.hopsOut(o, end) {
		if p.net.NoCarrier(h.dev) {
			return []string{p.routeBy(h) + "ip link: " + h.dev + " is UP and has NO-CARRIER"}
		}
	}
	return nil
}

// discarded: [host.Network.Discards].
func (p *pathCase) discarded(o *expect.Origin, end *netfilter.Outcome) []string {
	for _, h := range p.hops(o, end) {
		if local, _ := p.net.Local(h.ip); local {
			continue // a client whose address is the node's own: ClientAddressTaken
		}
		if why := p.net.Discards(h.dev, h.ip); why != "" {
			return []string{p.routeBy(h) + why}
		}
	}
	return nil
}

// zeroMAC is an address that no interface has.
const zeroMAC = "00:00:00:00:00:00"

// misledByNeighbour finds a static entry that contradicts what is known: the interface's own address, which the other
// end does not have; none at all; another one than flannel has noted of the node behind the tunnel; or one that the
// next hop itself says it does not have ([node.claimed]).
func (p *pathCase) misledByNeighbour(o *expect.Origin, end *netfilter.Outcome) []string {
	var out []string
	for _, h := range p.hops(o, end) {
		e, ok := p.net.Neighbour(h.dev, h.ip)
		own := p.net.MAC(h.dev)
		if h.ip == o.Address && p.neighbours(o, end) {
			continue // the endpoint has an entry of its own for the client
		}
		if !ok || own == "" || own == zeroMAC {
			continue
		}
		if !p.setByHand(h.dev, &e) {
			out = append(out, p.misfound(h, &e)...)
			continue
		}
		entry := fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", h.ip, h.dev, e.MAC, e.State)
		due, of := p.vtepMAC(h)
		switch {
		case strings.EqualFold(e.MAC, own):
			out = append(out, entry+", which is the address of "+h.dev+" itself")
		case e.MAC == zeroMAC:
			out = append(out, entry+", which no interface has")
		case due != "" && !strings.EqualFold(e.MAC, due):
			out = append(out, entry+"; the Node "+of+" has "+due+" ("+snapshot.FlannelBackendData+")")
		default:
			if c, text := p.claimed(h, e.MAC); c == denied && p.net.Resolves(h.dev) {
				out = append(out, entry, text)
			}
		}
	}
	return out
}

// misfound finds an entry that the kernel has found by asking, and that is wrong, as that of a pod that had the address
// before: it has the interface's own address, or among pods, where nobody answers for another, one that the pod itself
// says it does not have. The kernel asks again some time after it is used, and then finds the right one.
func (p *pathCase) misfound(h hop, e *host.Neighbour) []string {
	if e.MAC == "" || e.Failed || !p.net.Resolves(h.dev) {
		return nil
	}
	entry := fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", h.ip, h.dev, e.MAC, e.State)
	if strings.EqualFold(e.MAC, p.net.MAC(h.dev)) {
		return []string{entry + ", which is the address of " + h.dev + " itself"}
	}
	if c, text := p.claimed(h, e.MAC); c == denied && p.net.PodsOnly(h.dev, h.ip.Is4()) {
		return []string{entry, text}
	}
	return nil
}

// setByHand tells whether a person or a program has set a neighbour's link-layer address. An entry that needs no ARP
// is such a one on an interface that does; on another the kernel makes it (arp_constructor in net/ipv4/arp.c,
// ndisc_constructor in net/ipv6/ndisc.c).
func (n *node) setByHand(dev string, e *host.Neighbour) bool {
	return e.MAC != "" && (e.State == "PERMANENT" || e.Static && n.net.Resolves(dev))
}

// vtepMAC returns the link-layer address that flannel's tunnel has on the node behind a next hop, and that node's name;
// "" where flannel has noted none.
func (p *pathCase) vtepMAC(h hop) (mac, node string) {
	o := p.cluster.nodeOfPods(h.ip)
	if o == nil || o.Name == p.Name || o.Annotations[snapshot.FlannelBackendType] != "vxlan" ||
		!strings.HasPrefix(h.dev, "flannel.") || !h.ip.Is4() {
		return "", ""
	}
	var data struct{ VtepMAC string }
	if json.Unmarshal([]byte(o.Annotations[snapshot.FlannelBackendData]), &data) != nil {
		return "", ""
	}
	return data.VtepMAC, o.Name
}

// nodeOfPods returns the Node whose pod network an address is of; nil where none or several have it.
func (c *Cluster) nodeOfPods(a netip.Addr) *corev1.Node {
	var found *corev1.Node
	for _, x := range c.podNets.of(a) {
		if found != nil && found != x.node {
			return nil
		}
		found = x.node
	}
	return found
}

// withoutTunnelEnd: a tunnel drops frames to an address that its forwarding table has no entry for, and none for all
// (vxlan_xmit in drivers/net/vxlan/vxlan_core.c).
func (p *pathCase) withoutTunnelEnd(o *expect.Origin, end *netfilter.Outcome) []string {
	var out []string
	for _, h := range p.hops(o, end) {
		e, ok := p.net.Neighbour(h.dev, h.ip)
		if !ok || e.MAC == "" {
			continue
		}
		ends, known := p.net.TunnelEnds(h.dev, e.MAC)
		switch {
		case known && len(ends) == 0:
			out = append(out, fmt.Sprintf("bridge fdb: %s has no entry for %s (%s)", h.dev, e.MAC, h.ip))
		case len(ends) == 1:
			if to, due := p.cluster.nodeAt(ends[0]), p.cluster.nodeOfPods(h.ip); to != "" && due != nil && to != due.Name {
				out = append(out, fmt.Sprintf("bridge fdb: %s dev %s dst %s, which is the node %s; %s is of %s",
					e.MAC, h.dev, ends[0], to, h.ip, due.Name))
			}
		}
	}
	return out
}

// smallerMTUBack is smallerMTU of the answer to a pod, by the route back to it alone: the interface that it leaves by
// has the pod's own MTU.
func (p *pathCase) smallerMTUBack(o *expect.Origin, end *netfilter.Outcome) (limit int, evidence []string) {
	in, out := p.net.MTU(end.Packet.Out), p.net.MTU(o.Iface)
	if o.Kind != expect.FromPod || !p.net.LimitsRoutes() || p.neighbours(o, end) || in == 0 || out == 0 {
		return 0, nil
	}
	l := p.backRoute(o, end)
	if limit = l.By.MTU(); l.Known && l.Dev == o.Iface && limit > 0 && limit < min(in, out) {
		return limit, []string{fmt.Sprintf("ip link: %s has mtu %d; %s mtu %d", end.Packet.Out, in, l.By, limit)}
	}
	return 0, nil
}

// smallerMTU compares the interface that a pod's packets come in by, which has the pod's MTU where the CNI has set it,
// with that which they leave by.
func (p *pathCase) smallerMTU(o *expect.Origin, end *netfilter.Outcome) (limit int, evidence []string) {
	in, out := p.net.MTU(o.Iface), p.net.MTU(end.Packet.Out)
	if o.Kind != expect.FromPod || o.Iface == "lo" || in == 0 || out == 0 {
		return 0, nil
	}
	if p.net.LimitsRoutes() {
		pkt := &end.Packet
		l := p.net.Lookup(host.Query{
			Dst: pkt.Dst, Src: o.Address, In: o.Iface, Mark: pkt.RoutedMark(), Proto: pkt.Proto, DstPort: pkt.DstPort,
		})
		if limit = l.By.MTU(); l.Known && limit > 0 && limit < min(in, out) {
			return limit, []string{fmt.Sprintf("ip link: %s has mtu %d; %s mtu %d", o.Iface, in, l.By, limit)}
		}
	}
	if own, ok := p.net.MTU6(end.Packet.Out); ok && !end.Packet.Dst.Is4() && own < min(in, out) {
		return own, []string{
			fmt.Sprintf("ip link: %s has mtu %d; net/ipv6/conf/%s/mtu=%d", o.Iface, in, end.Packet.Out, own),
		}
	}
	if out >= in {
		return 0, nil
	}
	return out, []string{fmt.Sprintf("ip link: %s has mtu %d, %s has mtu %d", o.Iface, in, end.Packet.Out, out)}
}
