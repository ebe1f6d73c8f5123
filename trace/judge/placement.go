// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about routes that contradict where the API says that pods are.
const (
	EndpointAddressTaken = "EndpointAddressTaken"
	ClientAddressTaken   = "ClientAddressTaken"
	RoutedToOwnPods      = "RoutedToOwnPods"
	PodsCutOff           = "PodsCutOff"
)

var (
	_ = register(kind{code: EndpointAddressTaken, severity: mismatch, scope: onPath, by: addressTaken})
	_ = register(kind{code: ClientAddressTaken, severity: mismatch, scope: onPath, by: clientTaken})
	_ = register(kind{code: RoutedToOwnPods, severity: mismatch, scope: onPath, by: toOwnPods})
	_ = register(kind{code: PodsCutOff, severity: note, scope: onPath, by: podsCutOff})
)

// placement is what the API says of where an endpoint is.
type placement struct {
	node string // "" where it does not say
	own  bool   // it is a pod with an address of its own, which no node has
}

// placeOf returns where an endpoint of the path is. A pod of another Node that is not among those that were listed, as
// often the pods of one node alone are, has its own address where no Node has that.
func (p *pathCase) placeOf(a netip.Addr) (out placement) {
	out.own = p.cluster.podNames[a] != ""
	listed := false
	at := p.want.EndpointsAt(a)
	for i := range at {
		e := &at[i]
		listed, out.node = true, e.Node
		if p.cluster.podsByName[e.Pod] == nil && e.Pod != "" && e.Node != p.Name && p.cluster.ofNode(a) == "" &&
			slices.ContainsFunc(p.cluster.Nodes, func(o *corev1.Node) bool { return o.Name == e.Node }) {
			out.own = true
		}
	}
	if listed && out.node == "" { // one that was made by hand may be an endpoint of another Service, too
		out.node = p.cluster.listedOn(a)
	}
	return out
}

// misplaced makes the detector of packets to endpoints that end where these are not. at returns what stops them,
// without the words of the remedy, or nothing.
func misplaced(
	code, actual, message, remedy string,
	at func(p *pathCase, end *netfilter.Outcome) *obstacle,
) *detector {
	return &detector{stage: stageSettings, path: func(p *pathCase) []issue {
		if p.want.Action != expect.DNAT {
			return nil
		}
		sure, may := p.stoppedEnds(func(end *netfilter.Outcome) *obstacle {
			if !end.Packet.DNAT && !end.Packet.Virtual.IsValid() {
				return nil
			}
			by := at(p, end)
			if by.found() {
				by.remedy.Text = remedy
			}
			return by
		})
		if len(sure)+len(may) == 0 {
			return nil
		}
		var out []issue
		like := issue{code: code, expected: describe(p.want), actual: actual, message: message}
		for i := range sure {
			is := p.stoppedAt(like, sure[i:i+1])
			if !slices.ContainsFunc(out, func(o issue) bool { return o.subject == is.subject }) {
				out = append(out, is)
			}
		}
		if len(sure) == 0 && len(may) > 0 {
			like.remedy = may[0].remedy
			return p.doubted(like, may)
		}
		return out
	}}
}

const removeIt = "remove it, and find out what created it (a CNI that has not cleaned up, a script, a person), as " +
	"it comes back otherwise"

// addressTaken: ip_route_input_slow (net/ipv4/route.c) and ip6_input (net/ipv6/ip6_input.c) give packets to an address
// of the table local to the node's own sockets, whichever node the pod is on; and those that a route of the type
// broadcast is for, too.
var addressTaken = misplaced(EndpointAddressTaken, "kept on the node",
	"the endpoint is not on the node, or is a pod with an address of its own, yet the node itself has that address: "+
		"packets to it do not leave the node",
	removeIt,
	func(p *pathCase, end *netfilter.Outcome) *obstacle {
		if end.End != netfilter.Delivered {
			return nil
		}
		dst := end.Packet.Dst
		t, known := p.net.AddrType(dst)
		taken := t == host.RouteLocal || t == host.RouteBroadcast
		// Of an endpoint of another node it does not matter whose address it is.
		if at := p.placeOf(dst); !taken || !known || !at.own && (at.node == "" || at.node == p.Name) {
			return nil
		}
		evidence, fix := p.taken(dst)
		return &obstacle{evidence: evidence, remedy: report.Remedy{Commands: fix}}
	})

// clientTaken: the kernel discards what comes in with a source of its own, unless accept_local is set
// (fib_validate_source in net/ipv4/fib_frontend.c); and it keeps the answers.
var clientTaken = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	o := &p.want.Origin
	if local, known := p.net.Local(o.Address); !known || !local || p.want.Action != expect.DNAT ||
		o.Kind != expect.FromPod || p.cluster.podNames[o.Address] == "" {
		return nil
	}
	evidence, fix := p.taken(o.Address)
	return []issue{{
		code: ClientAddressTaken, subject: p.cluster.podNames[o.Address], expected: describe(p.want),
		actual: "kept on the node", evidence: say(evidence...), remedy: report.Remedy{Text: removeIt, Commands: fix},
		message: "the client is a pod with an address of its own, yet the node itself has that address: it accepts " +
			"no packets from the client, and keeps the answers",
	}}
}}

// taken says how the node has an address, and how to take it away.
func (p *pathCase) taken(a netip.Addr) (evidence []string, fix []report.Command) {
	if dev, prefix := p.net.HasAddress(a); dev != "" {
		return []string{"ip addr: " + prefix.String() + " dev " + dev},
			[]report.Command{p.onNode("", "ip", "addr", "del", prefix.String(), "dev", dev)}
	}
	by := p.net.Lookup(host.Query{Dst: a, AnyMark: true, AnyUID: true}).By
	words, see := by.DeleteRoute(), []report.Command(nil)
	when := ""
	if dev := p.net.BroadcastsOn(a); dev != "" {
		see = []report.Command{p.onNode("to see whether it is the broadcast address (brd) of another one", "ip", "addr",
			"show", "dev", dev)}
		when = "where it is not, and someone has added the route"
	}
	switch {
	case words != nil:
		return []string{by.String()}, append(see, p.onNode(when, words...))
	case see != nil:
		return []string{a.String() + " is a broadcast address of the node"}, see
	}
	return []string{a.String() + " is an address of the node"}, []report.Command{
		p.onNode("to find it", "ip", "route", "get", a.String()),
	}
}

// toOwnPods: behind the interface are pods of this node and nothing else, and nobody there has the address: the kernel
// asks in vain (neigh_resolve_output in net/core/neighbour.c). Where somebody has answered, it is no such case.
var toOwnPods = misplaced(RoutedToOwnPods, "does not leave the node",
	"the endpoint is on another node, and the route to it leads to the pods of this node, of which none has its address",
	"see whether the EndpointSlice has the pod's address and node, and whether the network plugin has made the route to "+
		"the pods of that node here; a route that someone has added for the address alone is to be removed",
	func(p *pathCase, end *netfilter.Outcome) *obstacle {
		pkt := &end.Packet
		at := p.placeOf(pkt.Dst)
		if end.End != netfilter.Sent || at.node == "" || at.node == p.Name || pkt.NextHop.IsValid() ||
			pkt.Out == "" || pkt.Out == netfilter.UnknownIface || !p.net.PodsOnly(pkt.Out, pkt.Dst.Is4()) {
			return nil
		}
		e, ok := p.net.Neighbour(pkt.Out, pkt.Dst)
		if ok && e.MAC != "" && !e.Failed {
			return nil
		}
		l := p.net.Lookup(host.Query{Dst: pkt.Dst, AnyMark: true, AnyUID: true})
		if !l.Known || l.Dev != pkt.Out {
			by := stoppedBy(fmt.Sprintf("%s is on %s, and leaves by %s", pkt.Dst, at.node, pkt.Out))
			by.remedy.Commands = []report.Command{p.onNode("to see the route", "ip", "route", "get", pkt.Dst.String())}
			return by
		}
		by := stoppedBy(l.By.String(), fmt.Sprintf("%s is on %s; all ports of %s are those of pods of this node",
			pkt.Dst, at.node, pkt.Out))
		if ok {
			by.evidence = append(by.evidence, fmt.Sprintf("ip neigh: %s dev %s %s", pkt.Dst, pkt.Out, e.State))
		}
		by.remedy.Commands = readSlices(p.svc).Commands
		if words := l.By.DeleteRoute(); words != nil {
			by.remedy.Commands = append(by.remedy.Commands, p.onNode("where the EndpointSlice is right", words...))
		}
		return by
	})

// podsCutOff makes a path Unknown on which a pod of this node is the client, or the endpoint, and the node's own route
// to it leads off the node, or by another interface than that behind which the kernel has found it; or its bridge has
// no address that pods could have as their gateway. How packets get from the pod to the node, and to it, is then not
// known: a route of the pod's own network namespace is not read.
var podsCutOff = &detector{stage: stageOnward, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT || p.verdict == report.Mismatch {
		return nil
	}
	var pods []netip.Addr
	if o := &p.want.Origin; o.Kind == expect.FromPod &&
		(p.local(o.Address) || !o.Sample && !p.cluster.podsListed(p.Name)) {
		pods = append(pods, o.Address)
	}
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		if end.End != netfilter.Sent || !end.Packet.DNAT || !p.local(end.Packet.Dst) {
			continue
		}
		if is := p.detour(end); is != nil {
			p.verdict = report.Unknown
			return []issue{*is}
		}
		if !slices.Contains(pods, end.Packet.Dst) {
			pods = append(pods, end.Packet.Dst)
		}
	}
	for _, a := range pods {
		evidence, fix := p.cutOff(a)
		if evidence == nil {
			evidence, fix = p.behindNoPort(a)
		}
		if evidence == nil {
			evidence, fix = p.withoutProxyARP(a)
		}
		if evidence == nil {
			continue
		}
		p.verdict = report.Unknown
		fix = append(fix, p.onNode("to see the route to the pod", "ip", "route", "get", a.String()))
		return []issue{{
			code: PodsCutOff, subject: cmp.Or(p.cluster.podNames[a], a.String()),
			message:   "is on this node, and the node's routes and addresses do not show how it and the node reach each other",
			predicate: true, evidence: say(evidence...),
			remedy: report.Remedy{
				Text: "restart the CNI's pod on " + p.Name + ", or restore what the pods' interface has lost; real connections " +
					"(trace --live) show what happens to them",
				Commands: append(fix, p.askLive().Commands...),
			},
		}}
	}
	return nil
}}

// local tells whether an address is that of a running pod of the node. Where the pods were not listed, those that are
// endpoints are known: their slices name node and pod. One whose address is the node's has the host network.
func (n *node) local(a netip.Addr) bool {
	is, _ := n.ownPods.Get(a)
	return is
}

// podAddresses are the addresses of which local is true.
func (n *node) podAddresses() *host.AddrMap {
	pods, listed := n.pods(), n.cluster.podsListed(n.Name)
	out := host.NewAddrMap(len(pods))
	for _, p := range pods {
		for _, a := range []netip.Addr{p.v4, p.v6} {
			if a.IsValid() {
				out.Set(a, true)
			}
		}
	}
	for a, name := range n.cluster.onNode[n.Name] {
		if own, known := n.net.Local(a); !listed && name != "" && known && !own {
			out.Set(a, true)
		}
	}
	return out
}

// cutOff returns what contradicts that a pod of the node and the node reach each other, and how to repair it.
func (p *pathCase) cutOff(a netip.Addr) (evidence []string, fix []report.Command) {
	v4 := a.Is4()
	l := p.net.Lookup(host.Query{Dst: a, AnyMark: true, AnyUID: true})
	if !l.Known || l.Type != host.RouteUnicast || l.Dev == "" {
		return nil, nil
	}
	if !p.net.PodsOnly(l.Dev, v4) {
		if dev := p.net.Behind(a); dev != "" {
			there := fmt.Sprintf("ip addr: %s is in the subnet of %s, a bridge for pods", a, dev)
			if e, ok := p.net.Neighbour(dev, a); ok && e.MAC != "" {
				there = fmt.Sprintf("ip neigh: %s dev %s lladdr %s %s", a, dev, e.MAC, e.State)
			}
			return []string{fmt.Sprintf("%s: the route to %s, a pod of this node, is by %s", l.By, a, l.Dev), there}, nil
		}
	}
	bare := func(dev string) bool {
		return p.net.BridgeOfPods(dev) && (dev == l.Dev || p.net.PodsOnly(dev, v4)) && p.net.Addresses() != nil &&
			!p.net.HasAddressOf(dev, v4)
	}
	away := l.Gateway.IsValid() && l.Dev == p.net.Uplink(v4)
	if dev := p.net.Within(a); away && dev != "" {
		if up, known := p.net.Up(dev); known && !up {
			return []string{
				fmt.Sprintf("%s: the route to %s, a pod of this node, leads off the node", l.By, a),
				"ip link: " + dev + ", which has an address of its subnet, is down",
			}, []report.Command{p.onNode("", "ip", "link", "set", "dev", dev, "up")}
		}
	}
	switch {
	case away && !slices.ContainsFunc(p.net.Devs(), bare):
		return p.unroutedPod(a, &l), nil
	case !away && !bare(l.Dev):
		return p.sharedLink(a, &l), nil
	}
	if away {
		evidence = append(evidence, fmt.Sprintf("%s: the route to %s, a pod of this node, leads off the node", l.By, a))
	}
	for _, dev := range p.net.Devs() {
		if !bare(dev) {
			continue
		}
		evidence = append(evidence, "ip addr: "+dev+" is a bridge for pods, and has no "+familyWord(v4)+" address")
		for _, net := range p.podCIDRs {
			if !net.Contains(a) || p.cluster.nodeOfPods(a) == nil {
				continue
			}
			gateway := netip.PrefixFrom(net.Masked().Addr().Next(), net.Bits())
			add := []string{"ip", "addr", "add", gateway.String()}
			off := "net/ipv6/conf/" + dev + "/disable_ipv6"
			if v4 { // IPv6 has no broadcasts
				add = append(add, "brd", "+")
			} else if value, _ := p.net.Sysctl(off); value == "1" {
				evidence = append(evidence, off+"=1")
				fix = append(fix, p.onNode("", "sysctl", "-w", off+"=0"))
			}
			fix = append(fix, p.onNode("where the CNI gives the bridge the first address (the plugin bridge, flannel)",
				append(add, "dev", dev)...))
		}
	}
	return evidence, fix
}

func familyWord(v4 bool) string {
	if v4 {
		return "IPv4"
	}
	return "IPv6"
}

// behindNoPort: the kernel knows the MAC of a pod on a bridge, the bridge has it behind no port, and there is a port
// that is down, or the end of a pod's veth pair that is in no bridge: this may be the pod's. An idle pod's MAC is also
// forgotten (ageing_time, 300 s), and alone says nothing.
func (p *pathCase) behindNoPort(a netip.Addr) (evidence []string, fix []report.Command) {
	l := p.net.Lookup(host.Query{Dst: a, AnyMark: true, AnyUID: true})
	if !l.Known || !p.net.Bridge(l.Dev) || l.Gateway.IsValid() {
		return nil, nil
	}
	e, ok := p.net.Neighbour(l.Dev, a)
	if !p.net.HasForwarding(l.Dev) {
		return nil, nil
	}
	if !ok || e.MAC == "" {
		return p.atDownPort(a, l.Dev)
	}
	if evidence, fix = p.atDeadPort(a, l.Dev, e.MAC); evidence != nil {
		return evidence, fix
	}
	if p.net.BehindPort(l.Dev, e.MAC) {
		return nil, nil
	}
	down, stray := p.net.LostPorts(l.Dev)
	none := fmt.Sprintf("ip neigh: %s has %s, and bridge fdb has that behind no port of %s", a, e.MAC, l.Dev)
	for _, dev := range down {
		if up, _ := p.net.Up(dev); up {
			text, again := p.idlePort(l.Dev, dev, "where it is the pod's")
			evidence, fix = append(evidence, none, text), append(fix, again)
			none = ""
			continue
		}
		evidence = append(evidence, none, "ip link: "+dev+" is a port of "+l.Dev+", and is down")
		fix = append(fix, p.onNode("where it is the pod's", "ip", "link", "set", "dev", dev, "up"))
		none = ""
	}
	for _, dev := range stray {
		evidence = append(evidence, none, "ip link: "+dev+" leads to a pod, and is in no bridge")
		fix = append(fix, p.onNode("where it is the pod's", "ip", "link", "set", "dev", dev, "master", l.Dev))
		none = ""
	}
	return evidence[:min(len(evidence), maxEvidence)], fix[:min(len(fix), maxEvidence)]
}

// atDownPort: the kernel does not know a pod's MAC, so that nothing tells its port, and a port of the bridge that leads
// to a pod is down, or passes nothing: this may be the pod's.
func (p *pathCase) atDownPort(a netip.Addr, dev string) (evidence []string, fix []report.Command) {
	if !p.net.HasNeighbours() {
		return nil, nil
	}
	down, _ := p.net.LostPorts(dev)
	for _, port := range down {
		if len(evidence) == maxEvidence {
			break
		}
		text := fmt.Sprintf("ip link: %s is a port of %s, and is down", port, dev)
		again := p.onNode("where it is the pod's", "ip", "link", "set", "dev", port, "up")
		if up, _ := p.net.Up(port); up {
			text, again = p.idlePort(dev, port, "where it is the pod's")
		}
		evidence = append(evidence, fmt.Sprintf("%s; ip neigh does not tell which port %s is at", text, a))
		fix = append(fix, again)
	}
	return evidence, fix
}

// atDeadPort: the bridge sends frames for a pod's MAC to a port that does not forward; takes them for its own; or sends
// them to a port that somebody has set, so that it is not known whether the pod is there.
func (p *pathCase) atDeadPort(a netip.Addr, dev, mac string) (evidence []string, fix []report.Command) {
	if port := p.net.FixedTo(dev, mac); port != "" {
		text := fmt.Sprintf("bridge fdb: %s (%s) dev %s master %s sticky: it stays there, wherever the pod is", mac, a, port,
			dev)
		learn := p.onNode("to have the bridge learn it", "bridge", "fdb", "del", mac, "dev", port, "master")
		return []string{text}, []report.Command{learn}
	}
	if port := p.net.SetAt(dev, mac); port != "" && p.mayBeElsewhere(hop{dev, a}, port, mac) {
		text := fmt.Sprintf("bridge fdb: %s (%s) dev %s master %s static", mac, a, port, dev)
		if other := p.net.OtherAt(dev, port, mac); other != "" {
			text += ", where the bridge has learned " + other
		}
		learn := p.onNode("to have the bridge learn it", "bridge", "fdb", "del", mac, "dev", port, "master")
		return []string{text}, []report.Command{learn}
	}
	if p.net.TakenByBridge(dev, mac) {
		text := "bridge fdb: %s (%s) dev %s master %s permanent: the bridge treats frames to it as its own"
		return []string{fmt.Sprintf(text, mac, a, dev, dev)},
			[]report.Command{p.onNode("", "bridge", "fdb", "del", mac, "dev", dev, "self")}
	}
	port := p.net.LearnedAt(dev, mac)
	state := p.net.PortState(dev, port)
	if port == "" || state == "" {
		return nil, nil
	}
	return []string{fmt.Sprintf("bridge fdb: %s (%s) dev %s", mac, a, port), portText(port, dev, state)},
		[]report.Command{p.forwardAgain("", port)}
}

// mayBeElsewhere tells whether a pod may not be at the port of a bridge that somebody has set for its MAC: the entry
// moves when a frame of the pod comes in, and a pod that gets none may send none. It is there where the pod's own
// listing has the port, and where the pod has just answered (REACHABLE), as long as no other is behind the port.
func (p *pathCase) mayBeElsewhere(h hop, port, mac string) bool {
	if at := p.portOfPod(h); at.mac != "" {
		return false // setElsewhere judges it
	}
	e, ok := p.net.Neighbour(h.dev, h.ip)
	return !ok || e.State != "REACHABLE" || p.net.OtherAt(h.dev, port, mac) != ""
}

// idlePort says why a port of a bridge that is up passes nothing, and how to have it do so.
func (p *pathCase) idlePort(bridge, port, when string) (text string, again report.Command) {
	if p.net.NoCarrier(port) { // a port without one is not made to forward (br_set_port_state in net/bridge/br_netlink.c)
		return "ip link: " + port + " is a port of " + bridge + ", and has no carrier: its other end, in the pod, is down",
			p.onNode("to find the other end; it goes up again with ip link set dev DEV up in the pod", "ip", "-d", "link",
				"show", "dev", port)
	}
	if state := p.net.PortState(bridge, port); state != "" {
		return portText(port, bridge, state), p.forwardAgain(when, port)
	}
	return "ip -d link: " + port + " is a port of " + bridge + " that is locked, and bridge fdb has no address behind it",
		p.onNode(when, "bridge", "link", "set", "dev", port, "locked", "off")
}

func portText(port, bridge, state string) string {
	return "ip -d link: " + port + " is a port of " + bridge + ", and its state is " + state
}

// forwardAgain lets a port of a bridge forward: BR_STATE_FORWARDING of uapi/linux/if_bridge.h is 3.
func (p *pathCase) forwardAgain(when, port string) report.Command {
	return p.onNode(when, "bridge", "link", "set", "dev", port, "state", "3")
}

// calicoPrefix begins the names of the interfaces that Calico makes for pods (InterfacePrefix of Felix).
const calicoPrefix = "cali"
