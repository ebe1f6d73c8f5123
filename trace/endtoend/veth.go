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
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// veth is the pair of interfaces between a pod and its node.
type veth struct {
	*Connection

	pod      *nodestate.State
	node     *Node
	dev      string // of the pod, which IP has the packets leave or come in by
	pair     string // the pod's end: dev, or an interface below it
	end      string // the node's end; "" where it is not known
	segment  string
	place    string // of what is judged
	podPlace string
	noRoute  string // the code where packets cannot pass
	// translated tells whether the node translates the packet's destination as it comes in; nil: it does not.
	translated func() bool
	// beside is another pod of the node that packets may go to without it, over the bridge of both; nil for none.
	beside  *nodestate.State
	largest int // how large the connection's packets may be; 0: as large as the interface that they leave by takes
	// hop is the next one of packets that leave the pod; from and dst are their source and destination.
	hop, from, dst netip.Addr
	// others are further interfaces of the node that packets of the pod may come in by.
	others []string
	// came is the node's interface that a packet for the pod came in by, and sender the link-layer address of the pod
	// that sent it, if that is one of the node; "" where not known.
	came, sender string
}

// bridge is the node's interface that has packets of the pod come in: the bridge that the pair's end is a port of, or
// the end itself.
func (v *veth) bridge() string { return v.node.Host.Receiver(v.end) }

// podDev returns the pod's interface that packets to an address of its own come in by, its end of the pair of veth, and
// the node's end: an address may be on several interfaces, and on one on top of that end (a bridge of KubeVirt's, a
// macvlan). end is "" where none is known to lead to the node.
func podDev(pod, node *host.Network, a netip.Addr) (dev, pair, end string) {
	devs := pod.DevsOf(a)
	for _, dev = range devs {
		if end = pod.PeerIn(node, dev); end != "" {
			return dev, dev, end
		}
	}
	for _, dev = range devs {
		if pair, end = pairBelow(pod, node, dev); end != "" {
			return dev, pair, end
		}
	}
	if pair, end = onlyPair(pod, node, a); end != "" {
		return pod.Receiver(pair), pair, end
	}
	return pod.DevOf(a), "", ""
}

// onlyPair is the only pair of veth between a pod and its node where no interface for frames has an address of the pod:
// it is on lo, or by a route. IP has packets to it come in by any.
func onlyPair(pod, node *host.Network, a netip.Addr) (pair, end string) {
	local, known := pod.Local(a)
	elsewhere := slices.ContainsFunc(pod.DevsOf(a), func(d string) bool {
		kind, known := pod.Kind(d)
		return d != "lo" && (!known || kind != "dummy")
	})
	if !known || !local || elsewhere {
		return "", ""
	}
	for _, d := range pod.Devs() {
		switch of := pod.PeerIn(node, d); {
		case of == "":
		case end != "":
			return "", ""
		default:
			pair, end = d, of
		}
	}
	return pair, end
}

// pairBelow returns the pod's end of the pair of veth by which packets leave that a pod sends by an interface, and the
// node's end; "" where that is not known, and where frames leave in a VLAN.
func pairBelow(pod, node *host.Network, dev string) (pair, end string) {
	at := []string{dev}
	layers, _ := pod.Below(dev)
	for i := 0; ; i++ {
		for _, d := range at {
			if end = pod.PeerIn(node, d); end != "" {
				return d, end
			}
			if kind, _ := pod.Kind(d); kind == "vlan" {
				return "", ""
			}
		}
		if i == len(layers) {
			return "", ""
		}
		at = layers[i].Devs
	}
}

// leavesPod judges how a packet comes from a pod to its node: whether the next hop answers there, whether the pod has
// its link-layer address, and whether the node takes packets as large as the pod sends. in is the node's interface that
// it comes in by, or it comes in by one of v.others; "" where that is not known. Where all is right, or was not read,
// ok is true.
func (v *veth) leavesPod(p *netfilter.Packet) (s report.Segment, in string, ok bool) {
	if s, in, ok = v.leaves(p); !ok || in == "" {
		return s, in, ok
	}
	s, ok = v.takes(v.pod.Host, v.pair, v.pod.Host.MTU(v.dev), v.node.Host, v.end)
	return s, in, ok
}

// leaves is leavesPod for packets of any size.
func (v *veth) leaves(p *netfilter.Packet) (s report.Segment, in string, ok bool) {
	v.dev, v.hop, v.from, v.dst = p.Out, p.Hop(), p.Src, p.Dst
	if netfilter.IsUnknown(p.Out) || p.Out == "" {
		return s, "", true
	}
	if v.pair, v.end = pairBelow(v.pod.Host, v.node.Host, p.Out); v.end == "" {
		_, ofPod := v.pod.Host.Kind(p.Out)
		if _, ofNode := v.node.Host.Kind("lo"); !ofPod || !ofNode {
			return s, "", true
		}
		return unknown(v.segment, v.place, v.node.Name, enter("ip -d link show dev "+p.Out),
				"%s sends by its interface %s: whether and how that leads to %s is not known", v.podPlace, p.Out, v.node.Name), "",
			false
	}
	in = v.bridge()
	if s, down := v.down(); down {
		return s, in, false
	}
	if s, ok := v.nodePort(); !ok {
		return s, in, false
	}
	if s, ok := v.sentFrom(v.pod.Host.MAC(v.dev)); !ok {
		return s, in, false
	}
	e, there := v.pod.Host.Neighbour(v.dev, v.hop)
	in, v.others = v.receivers(&e, there)
	line := ""
	if there {
		line = fmt.Sprintf("ip neigh in the pod: %s dev %s %s", v.hop, v.dev, strings.TrimSpace(e.MAC+" "+e.State))
	}
	local, known := v.node.Host.Local(v.hop)
	show := enter("ip neigh show " + v.hop.String() + " dev " + v.dev)
	switch {
	case !known:
		return s, in, true
	case there && e.MAC != "" && !e.Failed: // somebody has answered, or a person or a program has set it
		if takes, known := v.node.Host.TakesFrames(v.end, e.MAC); takes || !known || v.ofBeside(e.MAC) {
			return s, in, true
		}
		s, ok = v.elsewhere(in, e.MAC, show, local, e.State == "PERMANENT")
	case local && v.hop.Is4(), v.has6():
		if s, ok = v.findsNode(); ok {
			s, ok = v.asks(there, show)
		}
	case v.ownedBeside() && !(there && e.Failed):
		return s, in, true
	default:
		s, ok = v.answersForOthers(there && e.Failed, show)
	}
	if !ok {
		s = with(s, line)
	}
	return s, in, ok
}

// asks judges a pod that has no link-layer address of its next hop, one of the node's own addresses. failed: it has
// asked for it, and nothing has answered.
func (v *veth) asks(failed bool, show string) (s report.Segment, ok bool) {
	why := v.silent()
	switch {
	case why != "" && failed:
		return v.cannot("the node does not answer ARP for %s, by which %s sends: %s", v.hop, v.podPlace, why), false
	case why != "": // a program of eBPF may answer in its place
		return unknown(v.segment, v.place, v.node.Name, show,
			"by its settings the node does not answer ARP for %s, by which %s sends: %s", v.hop, v.podPlace, why), false
	case failed:
		return unknown(v.segment, v.place, v.node.Name, show,
			"when %s last asked for the link-layer address of %s, nothing answered", v.podPlace, v.hop), false
	}
	return s, true
}

// down is the segment of a pod whose own end of the pair, or the interface on top of it, is down.
func (v *veth) down() (s report.Segment, down bool) {
	for _, dev := range []string{v.dev, v.pair} {
		if up, known := v.pod.Host.Up(dev); known && !up {
			return with(v.cannot("the pod's own interface %s is down", dev), "ip link in the pod: "+dev+" is not UP"), true
		}
	}
	bridge := v.pod.Host.Master(v.pair)
	if state := v.pod.Host.PortState(bridge, v.pair); state != "" {
		return with(v.cannot("the pod's own bridge %s neither takes nor sends anything by its port %s", bridge, v.pair),
			fmt.Sprintf("ip -d link in the pod: %s master %s state %s", v.pair, bridge, state)), true
	}
	return s, false
}

// has6 tells whether the next hop is an IPv6 address of the interface that the pod's questions for it come in by: the
// kernel answers for none of another interface (ndisc_recv_ns in net/ipv6/ndisc.c).
func (v *veth) has6() bool {
	own := v.node.Host
	return v.hop.Is6() && slices.ContainsFunc(own.DevsOf(v.hop), func(d string) bool {
		return own.On(d, v.end) && own.UsableOn(d, v.hop)
	})
}

// elsewhere judges a pod whose frames for its next hop have a link-layer address that its interface of the node does
// not take: nobody's, or that of another interface. local: the next hop is an address of the node.
func (v *veth) elsewhere(in, mac, show string, local, permanent bool) (s report.Segment, ok bool) {
	message := fmt.Sprintf("%s sends frames for %s to %s, which no interface of %s has", v.podPlace, v.hop, mac,
		v.node.Name)
	own := fmt.Sprintf("ip link on %s: %s has %s", v.node.Name, in, v.node.Host.MAC(in))
	bridged := v.node.Host.Master(v.end) != ""
	others := v.node.Host.WithMAC(mac)
	if len(others) > 0 {
		message = fmt.Sprintf("%s sends frames for %s to %s, the address of %s, and they come to %s of %s", v.podPlace, v.hop,
			mac, others[0], in, v.node.Name)
		// The bridge may have a way to the other interface.
		local = local && v.node.Host.PodsOnly(in, v.hop.Is4())
	}
	// A packet that is translated on a bridge is the bridge's own then, whichever address its frame had
	// (br_nf_pre_routing_finish in net/bridge/br_netfilter_hooks.c).
	on, known := v.node.Host.BridgeCalls(in, v.hop.Is4())
	if bridged && (on || !known) && v.translated != nil && v.translated() {
		if on {
			return s, true
		}
		return with(unknown(v.segment, v.place, v.node.Name, "sysctl net.bridge", "%s, and whether br_netfilter has the "+
			"bridge take them is not known", message), own), false
	}
	if !permanent || bridged && !local {
		return with(unknown(v.segment, v.place, v.node.Name, show, "%s", message), own), false
	}
	return with(wrong(EndToEndWrongNeighbour, v.segment, v.place, "the CNI plugin, or the network configuration", "%s",
		message), own), false
}

// cannot is the segment of packets that do not pass.
func (v *veth) cannot(format string, args ...any) report.Segment {
	return wrong(v.noRoute, v.segment, v.place, ownerOfDevice(v.end), format, args...)
}

// silent says why the node does not answer ARP for its own address; "" where it does, and where that is not known.
func (v *veth) silent() (why string) {
	for _, dev := range append(v.macvlans(), v.bridge()) {
		if why = silent(v.node.Host, dev, v.hop, v.from); why == "" {
			return ""
		}
	}
	return why
}

// silent says why a network namespace does not answer where somebody asks on an interface for one of its addresses; ""
// where it does, and where that is not known. A question that the reverse path filter drops is not answered either
// (arp_process in net/ipv4/arp.c asks for the route).
func silent(n *host.Network, dev string, address, asker netip.Addr) string {
	if !address.Is4() || !asker.Is4() {
		return ""
	}
	if answers, why, known := n.AnswersARP(dev, address, asker); known && !answers {
		return why
	}
	drop, known := n.ReversePath(host.Query{Dst: address, Src: asker, In: dev, Bare: true})
	if known && drop.Drops() {
		return "the reverse path filter of " + dev + " (" + drop.Setting + "): " + drop.Route
	}
	return ""
}

// silentToAll says why a network namespace does not answer, whichever of its addresses another one asks from on its
// interface out (arp_solicit in net/ipv4/arp.c); "" where it answers one, and where that is not known.
func silentToAll(n *host.Network, dev string, address netip.Addr, asker *host.Network, out string) (why string) {
	other := func(a netip.Addr) bool { return a.Is4() != address.Is4() }
	askers := slices.DeleteFunc(asker.AddressesOn(out), other)
	if len(askers) == 0 {
		askers = append(askers, asker.MasqueradeAddress(out, address))
	}
	for _, own := range askers {
		if why = silent(n, dev, address, own); why == "" {
			return ""
		}
	}
	return why
}

// ofBeside tells whether a link-layer address is that of the pod beside this one, whose address the next hop is: both
// are behind one bridge. What the bridge does with such packets the walk through the node says.
func (v *veth) ofBeside(mac string) bool {
	dev, _ := v.besideDev()
	return v.ownedBeside() && strings.EqualFold(v.beside.Host.MAC(dev), mac)
}

// ownedBeside tells whether the pod beside this one has the next hop's address, behind the same bridge.
func (v *veth) ownedBeside() bool {
	_, end := v.besideDev()
	bridge := v.node.Host.Master(v.end)
	return end != "" && bridge != "" && v.node.Host.Master(end) == bridge
}

// besideDev is the interface of the pod beside this one that has the next hop's address, and the node's end of its
// pair.
func (v *veth) besideDev() (dev, end string) {
	if v.beside == nil {
		return "", ""
	}
	dev, _, end = podDev(v.beside.Host, v.node.Host, v.hop)
	return dev, end
}

// answersForOthers tells whether the node, or a neighbour behind its bridge, may answer for a next hop that is none of
// the node's addresses.
func (v *veth) answersForOthers(failed bool, show string) (s report.Segment, ok bool) {
	bridge := v.node.Host.Master(v.end)
	if v.hop.Is6() && bridge == "" && failed {
		if may, why, known := v.node.Host.ProxiesND(v.end, v.hop); known && !may {
			return with(v.cannot("%s sends by %s, which is not one of the addresses of %s on %s, and %s does not answer for "+
				"others", v.podPlace, v.hop, v.node.Name, v.end, v.end),
				cmp.Or(why, "ip neigh show proxy on "+v.node.Name+": "+v.hop.String()+" is not listed")), false
		}
	}
	if v.hop.Is4() {
		may, by, known := v.node.Host.AnswersForOthers(v.bridge(), v.hop)
		switch {
		case may:
			if s, ok := v.findsNode(); !ok {
				return s, false
			}
			if late := v.node.Host.AnswersLate(v.bridge()); late != "" {
				return with(unknown(v.segment, v.place, v.node.Name, show, "%s answers for %s, which is not its own address, "+
					"only after a time: whether that is too late for %s is not known", v.node.Name, v.hop, v.podPlace), late), false
			}
			return v.proxies(show)
		case known && bridge == "":
			return with(v.cannot("%s sends by %s, which is not one of the addresses of %s, and %s does not answer for others",
				v.podPlace, v.hop, v.node.Name, v.end), "sysctl: neither proxy_arp nor proxy_arp_pvlan, of all or of "+
				v.end+", lets it answer",
				"ip neigh show proxy on "+v.node.Name+": "+v.hop.String()+" is not listed"), false
		case !known && bridge == "":
			show = by
		}
	}
	where := v.node.Name
	if v.hop.Is6() {
		where += " on " + v.bridge()
	}
	if bridge == "" {
		return unknown(v.segment, v.place, v.node.Name, show, "%s sends by %s, which is not one of the addresses of %s: "+
			"whether %s answers for it is not known", v.podPlace, v.hop, where, v.end), false
	}
	return unknown(v.segment, v.place, v.node.Name, show,
		"%s sends by %s, which is not one of the addresses of %s: whether something else behind the bridge %s has it is not "+
			"known", v.podPlace, v.hop, where, bridge), false
}

// proxies judges a next hop for which the node may answer ARP by some setting: whether its route lets it.
func (v *veth) proxies(show string) (s report.Segment, ok bool) {
	why, _ := v.node.Host.NoProxy(v.bridge(), v.hop, v.from)
	if why == "" {
		return s, true
	}
	return with(unknown(v.segment, v.place, v.node.Name, show,
		"%s sends by %s, which is not one of the addresses of %s, and its routes keep the node from answering in its "+
			"place: whether something else behind %s has it is not known", v.podPlace, v.hop, v.node.Name, v.bridge()),
		"on "+v.node.Name+": "+why), false
}

// entersPod judges how a packet that the node has sent on comes to a pod: by the pod's interface, to its link-layer
// address. why says why the pod was not read. end is the node's interface to the pod where all is right.
func (v *veth) entersPod(p *netfilter.Packet, ip netip.Addr, why string) (s report.Segment, ok bool) {
	out := p.Out
	get := "ip route get " + ip.String()
	if v.pod == nil {
		return unknown(v.segment, v.place, v.node.Name, get,
			"sent by %s; whether that leads to the pod is not known, as %s", out, why), false
	}
	if netfilter.IsUnknown(out) || out == "" {
		return unknown(v.segment, v.place, v.node.Name, get, "by which interface the packet is sent on is not known"), false
	}
	if v.dev, v.pair, v.end = podDev(v.pod.Host, v.node.Host, ip); v.dev == "" {
		return unknown(v.segment, v.place, v.node.Name, get, "sent by %s; the pod's network namespace does not have the "+
			"address %s", out, ip), false
	}
	if v.end == "" {
		return unknown(v.segment, v.place, v.node.Name, "ip -d link",
			"sent by %s; which interface of the node is the other end of the pod's %s is not known", out, v.dev), false
	}
	bridge := v.node.Host.Master(v.end)
	if by := v.node.Host.Carrier(out); v.end != by && bridge != by {
		if owner := ownerOfDevice(out); owner == "Cilium" {
			return unknown(v.segment, v.place, v.node.Name, "tc filter show dev "+out+" egress",
				"sent by %s, whose programs (%s) may hand packets to the pod's interface %s", out, owner, v.end), false
		}
		line := get + ": dev " + out
		if dev := v.podDevBehind(out); dev != "" {
			return with(unknown(v.segment, v.place, v.node.Name, get, "sent by %s, behind which the pod has its interface %s, "+
				"and not %s, which has the address %s: whether it takes the packet there is not judged", out, dev, v.dev, ip),
				line), false
		}
		if v.node.Host.MayLeadTo(out, v.end) {
			return with(unknown(v.segment, v.place, v.node.Name, "ip -d link", "sent by %s, which may lead to the pod's "+
				"interface %s through other interfaces of the node: this is not followed", out, v.end), line), false
		}
		return with(v.cannot("the node sends packets for the pod by %s, and the pod is behind %s", out, v.end), line), false
	}
	if up, known := v.node.Host.Up(v.end); known && !up || v.node.Host.NoCarrier(v.end) {
		return with(v.cannot("the pod's interface %s is down", v.end), "ip link: "+v.end), false
	}
	if s, down := v.down(); down {
		return s, false
	}
	if s, ok := v.nodePort(); !ok {
		return s, false
	}
	if s, ok := v.takenFromSender(p); !ok {
		return s, false
	}
	if s, ok := v.frames(p); !ok {
		return s, false
	}
	size := v.node.Host.MTU(out)
	if s, ok := v.takes(v.node.Host, out, size, v.node.Host, v.end); !ok {
		return s, false
	}
	return v.takes(v.node.Host, v.end, min(size, v.node.Host.MTU(v.end)), v.pod.Host, v.pair)
}

// podDevBehind returns an interface of the pod to which one of the node leads; "" for none.
func (v *veth) podDevBehind(out string) string {
	for _, dev := range v.pod.Host.Devs() {
		if end := v.pod.Host.PeerIn(v.node.Host, dev); end != "" && v.node.Host.On(out, end) {
			return dev
		}
	}
	return ""
}
