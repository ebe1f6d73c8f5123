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
)

// VLANHeader is what a bridge's port and a veth take beyond their MTU, in bytes (is_skb_forwardable in
// net/core/dev.c).
const VLANHeader = 4

// takes compares how large packets leave by an interface with what the one takes that gets them: the other end of a
// veth, or a port of the bridge. Larger ones are discarded, and nobody is told (is_skb_forwardable in net/core/dev.c,
// called by __dev_forward_skb and br_dev_queue_push_xmit); those that are still to be cut pass.
func (v *veth) takes(from *host.Network, out string, size int, to *host.Network, in string) (
	s report.Segment, ok bool,
) {
	if v.largest > 0 {
		size = min(size, v.largest)
	}
	takes := to.MTU(in)
	if takes == 0 || size <= takes+VLANHeader {
		return s, true
	}
	of := func(n *host.Network, dev string) string {
		if n == v.node.Host {
			return dev + " of " + v.node.Name
		}
		return dev + " of " + v.podPlace
	}
	s = with(unknown(v.segment, v.place, v.node.Name, "ip -s link show dev "+v.end,
		"%s sends packets of up to %d bytes, and %s takes %d: larger ones may be lost without a message", of(from, out), size,
		of(to, in), takes),
		fmt.Sprintf("ip link: %s mtu %d", of(from, out), from.MTU(out)),
		fmt.Sprintf("ip link: %s mtu %d", of(to, in), takes))
	s.Code = LinkMTUDiffers
	return s, false
}

// frames compares the neighbour that a node sends frames for a pod to with the pod's own address.
func (v *veth) frames(p *netfilter.Packet) (s report.Segment, ok bool) {
	hop := p.Hop()
	e, there := v.node.Host.Neighbour(p.Out, hop)
	mac := v.pod.Host.MAC(v.dev)
	show := "ip neigh show " + hop.String()
	bridge := v.node.Host.Master(v.end)
	kept, known := v.node.Host.KeptByBridge(bridge, mac)
	switch {
	case bridge != "" && mac != "" && !known:
		return with(unknown(v.segment, v.place, v.node.Name, "bridge fdb show br "+bridge,
			"the pod has the link-layer address of its bridge %s, which may keep frames for it", bridge),
			fmt.Sprintf("ip link in the pod: %s has %s", v.dev, mac)), false
	case bridge != "" && mac != "" && kept:
		return with(wrong(EndToEndWrongNeighbour, v.segment, v.place, "the CNI plugin, or the network configuration",
			"the bridge %s treats the pod's link-layer address %s as its own: it sends no frames to the pod", bridge, mac),
			fmt.Sprintf("ip link in the pod: %s has %s", v.dev, mac),
			fmt.Sprintf("bridge fdb: %s dev %s master %s permanent", mac, bridge, bridge)), false
	case !v.ownHop(hop):
		if s, ok := v.byAnother(p, &e, there); !ok {
			return s, false
		}
	case there && e.MAC != "" && mac != "" && !v.takenByPod(e.MAC):
		line := fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", hop, p.Out, e.MAC, e.State)
		own := fmt.Sprintf("ip link in the pod: %s has %s", v.dev, mac)
		if dev := v.besideInPod(e.MAC); dev != "" {
			return with(unknown(v.segment, v.place, v.node.Name, show,
				"the node sends frames for the pod to %s, the address of the pod's %s behind the same bridge, and the path is "+
					"judged for %s", e.MAC, dev, v.dev), line, own), false
		}
		if e.Static {
			return with(wrong(EndToEndWrongNeighbour, v.segment, v.place, "the CNI plugin, or the network configuration",
				"the node sends frames for the pod to %s, which is not the pod's address", e.MAC), line, own), false
		}
		return with(unknown(v.segment, v.place, v.node.Name, show,
			"the node last sent frames for the pod to %s, which is not the pod's address", e.MAC), line, own), false
	}
	if s, ok := v.findsPod(p); !ok {
		return s, false
	}
	switch {
	case there && e.Failed:
		return with(unknown(v.segment, v.place, v.node.Name, show,
			"when the node last asked for the pod's link-layer address, nothing answered"),
			fmt.Sprintf("ip neigh: %s dev %s %s", hop, p.Out, e.State)), false
	case !there:
		// The node asks now. A program of eBPF may answer in the pod's place.
		if why := silentToAll(v.pod.Host, v.dev, hop, v.node.Host, p.Out); why != "" {
			return unknown(v.segment, v.place, v.node.Name, show+" dev "+p.Out,
				"the node has no link-layer address of the pod, and by its settings the pod does not answer ARP for %s: %s", hop,
				why), false
		}
	}
	if bridge == v.node.Host.Carrier(p.Out) && bridge != "" {
		return v.sentOn(bridge, cmp.Or(e.MAC, mac), there && !e.Failed && e.MAC != "")
	}
	return s, true
}

// ownHop tells whether the pod answers for a next hop as for an address of its own: of IPv4 on any of its interfaces
// (arp_process in net/ipv4/arp.c), of IPv6 on that which has it (ndisc_recv_ns in net/ipv6/ndisc.c).
func (v *veth) ownHop(hop netip.Addr) bool {
	own := v.pod.Host
	if hop.Is4() {
		local, known := own.Local(hop)
		return local || !known
	}
	return slices.ContainsFunc(own.DevsOf(hop), func(d string) bool { return own.On(d, v.pair) })
}

// byAnother judges packets for the pod whose next hop is none of its addresses: the pod takes them if frames for that
// have its own link-layer address; else somebody behind the node's interface has to pass them on.
func (v *veth) byAnother(p *netfilter.Packet, e *host.Neighbour, there bool) (s report.Segment, ok bool) {
	hop, found := p.Hop(), there && e.MAC != "" && !e.Failed
	if found && v.takenByPod(e.MAC) {
		return s, true
	}
	line := fmt.Sprintf("ip neigh has no entry of %s dev %s", hop, p.Out)
	if there {
		line = fmt.Sprintf("ip neigh: %s dev %s %s", hop, p.Out, strings.TrimSpace(e.MAC+" "+e.State))
	}
	if v.alone() {
		may, _, known := v.pod.Host.AnswersForOthers(v.dev, hop)
		if !hop.Is4() {
			may, _, known = v.pod.Host.ProxiesND(v.dev, hop)
		}
		switch {
		case found && e.Static:
			return with(wrong(EndToEndWrongNeighbour, v.segment, v.place, "the CNI plugin, or the network configuration",
				"the node sends packets for the pod by %s, and frames for that to %s, which is not the pod's address", hop, e.MAC),
				line, fmt.Sprintf("ip link in the pod: %s has %s", v.dev, v.pod.Host.MAC(v.dev))), false
		case !found && known && !may:
			return with(v.cannot("the node sends packets for the pod by %s, which is not one of the pod's addresses on %s, and "+
				"the pod does not answer for others", hop, v.dev), line), false
		}
	}
	return with(unknown(v.segment, v.place, v.node.Name, "ip neigh show "+hop.String()+" dev "+p.Out,
		"the node sends packets for the pod by %s, which is not one of the pod's addresses on %s: whether something else "+
			"behind %s passes them on is not known", hop, v.dev, p.Out), line), false
}

// alone tells whether the pod's own interface is all that frames come to which the node sends for it.
func (v *veth) alone() bool {
	bridge := v.node.Host.Master(v.end)
	return v.dev == v.pair && !slices.ContainsFunc(v.node.Host.Devs(), func(d string) bool {
		return d != v.end && bridge != "" && v.node.Host.Master(d) == bridge
	})
}

// besideInPod is another interface of the pod that has a link-layer address and is behind the same bridge: the pod
// takes packets for its address by any (ip_route_input_slow in net/ipv4/route.c), unless settings of that one stand
// against it. "" for none.
func (v *veth) besideInPod(mac string) string {
	bridge := v.node.Host.Master(v.end)
	for _, dev := range v.pod.Host.WithMAC(mac) {
		if _, end := pairBelow(v.pod.Host, v.node.Host, dev); bridge != "" && end != "" && v.node.Host.Master(end) == bridge {
			return dev
		}
	}
	return ""
}

// takenByPod tells whether the pod takes frames for a link-layer address.
func (v *veth) takenByPod(mac string) bool {
	takes, known := v.pod.Host.TakesFrames(v.pair, mac)
	return takes || !known
}

// sentOn judges whether the bridge sends the node's frames for the pod by the pod's port (br_dev_xmit in
// net/bridge/br_device.c). known: the node has the pod's link-layer address, and does not ask for it.
func (v *veth) sentOn(bridge, mac string, known bool) (s report.Segment, ok bool) {
	show := "bridge fdb show br " + bridge
	if mac == "" {
		return s, true
	}
	if port, set := v.node.Host.Elsewhere(bridge, v.end, mac); port != "" {
		line := fmt.Sprintf("bridge fdb: %s dev %s master %s", mac, port, bridge)
		if set {
			return with(v.cannot("the bridge %s sends frames for the pod by its port %s, and the pod is behind %s", bridge, port,
				v.end), line), false
		}
		return with(unknown(v.segment, v.place, v.node.Name, show,
			"the bridge %s last had the pod's link-layer address behind its port %s, and the pod is behind %s", bridge, port,
			v.end), line), false
	}
	switch lost, never := v.node.Host.Unlearned(bridge, v.end, mac); {
	case never:
		return with(v.cannot("the bridge %s sends no frames for the pod by its port %s: it does not know that the pod is "+
			"there, and neither learns nor floods", bridge, v.end), "bridge -d link: "+v.end+" learning off flood off",
			"bridge fdb: no entry for "+mac+" dev "+v.end), false
	case lost && known: // the bridge learns from the answer to a question, which it floods in any case (br_flood)
		return with(unknown(v.segment, v.place, v.node.Name, show, "the bridge %s does not know that the pod is behind its "+
			"port %s, and sends no frames to an unknown one by it", bridge, v.end),
			"bridge -d link: "+v.end+" flood off", "bridge fdb: no entry for "+mac+" dev "+v.end), false
	}
	return s, true
}
