// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about settings of the kernel that stop packets which the rules make right.
const (
	ForwardingOff      = "ForwardingOff"
	RouteLocalnetOff   = "RouteLocalnetOff"
	BridgeNetfilterOff = "BridgeNetfilterOff"
	HairpinOff         = "HairpinOff"
	ReversePathFilter  = "ReversePathFilter"
	PortsIsolated      = "PortsIsolated"
	BridgePortUnknown  = "BridgePortUnknown"
)

var (
	_ = register(kind{
		code:     ForwardingOff,
		severity: mismatch,
		scope:    onPath,
		remedy:   advice("turn forwarding on, and find what turned it off (/etc/sysctl.d)"),
		issues:   []string{"openshift/origin#9931", "weaveworks/weave#3280"},
		by: stopped(
			ForwardingOff,
			(*pathCase).notForwarded,
			"the node does not forward packets, or not the endpoint's answers: translated packets that pass through the node "+
				"are dropped",
			(*pathCase).forward,
		),
	})
	_ = register(kind{
		code:     RouteLocalnetOff,
		severity: mismatch,
		scope:    onPath,
		remedy: advice("turn route_localnet on: kube-proxy does when it starts, unless "+
			"iptables.localhostNodePorts is off", command{line: "sysctl -w net.ipv4.conf.all.route_localnet=1", onNode: true}),
		issues: []string{"kubernetes/kubernetes#57942"},
		by: stopped(
			RouteLocalnetOff,
			(*pathCase).martian,
			"the kernel does not let packets with a loopback source leave the node: the connection fails before its source is "+
				"translated",
		),
	})
	_ = register(kind{
		code:     BridgeNetfilterOff,
		severity: mismatch,
		scope:    onPath,
		remedy: advice("load br_netfilter, and turn its settings on",
			command{line: "modprobe br_netfilter", onNode: true},
			command{
				line:   "sysctl -w net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1",
				onNode: true,
			},
			command{
				line: "echo br_netfilter > /etc/modules-load.d/br_netfilter.conf && printf '%s\\n' " +
					"net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1 > /etc/sysctl.d/90-bridge-nf.conf",
				onNode: true, when: "to keep both over a reboot",
			}),
		issues: []string{"kubernetes/kubernetes#87426", "cloudnativelabs/kube-router#151"},
		by: stopped(BridgeNetfilterOff, (*pathCase).pastTheRules,
			"client and endpoint are on the same bridge, and the kernel does not pass bridged packets to iptables: the answer "+
				"comes directly from the endpoint, and the client does not accept it"),
	})
	_ = register(kind{
		code: HairpinOff, severity: mismatch, scope: onPath,
		remedy: advice("set the CNI's hairpinMode (or the kubelet's, for old ones)"),
		issues: []string{"kubernetes/kubernetes#13375", "kubernetes/kubernetes#45790"},
		by: turned(portSetting{"hairpin", "on", "hairpin_mode", 1}, stopped(HairpinOff, (*pathCase).notSentBack,
			"the pod reaches itself, and its bridge sends no frame back to the port from which it came")),
	})
	_ = register(kind{
		code: PortsIsolated, severity: mismatch, scope: onPath,
		remedy: advice("find what isolates the ports (the CNI plugin's portIsolation), and turn it off"),
		by: turned(portSetting{"isolated", "off", "isolated", 0}, stopped(PortsIsolated, (*pathCase).isolated,
			"client and endpoint are on the same bridge, and it forwards nothing between isolated ports")),
	})
	_ = register(kind{code: BridgePortUnknown, severity: note, scope: onPath, by: portUnsure})
	_ = register(kind{
		code:     ReversePathFilter,
		severity: mismatch,
		scope:    onPath,
		remedy: advice(
			"let requests and answers use the same interface (a route or rule on {node}: ip rule, ip route); or, where " +
				"it is meant to differ, set the filter to loose mode (2; the larger of the interface's and of all counts)",
		),
		issues: []string{"cilium/cilium#13130", "cilium/cilium#19761", "cloudnativelabs/kube-router#812"},
		by: stopped(ReversePathFilter, (*pathCase).answerFiltered,
			"the endpoint's answer comes in by the interface that the packet left by, and the kernel drops it there: the "+
				"route back to the endpoint uses another interface",
			func(_ *pathCase, _ *expect.Origin, end *netfilter.Outcome) string {
				return "net/ipv4/conf/" + end.Packet.Out + "/rp_filter=2"
			}),
	})
)

// stopped makes the detector of a setting. stops tells whether it stops a packet that leaves the node for an endpoint,
// and cites the setting; what was not collected stops nothing. fix is the setting that would let it pass, as sysctl
// takes it.
func stopped(
	code string,
	stops func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) (evidence []string),
	message string,
	fix ...func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) string,
) *detector {
	return &detector{stage: stageSettings, path: func(p *pathCase) []issue {
		if p.want.Action != expect.DNAT {
			return nil
		}
		var endpoints, evidence, set []string
		for i := range p.res.Outcomes {
			end := &p.res.Outcomes[i]
			if end.End != netfilter.Sent || !end.Packet.DNAT || !end.Certain {
				continue
			}
			why := stops(p, &p.want.Origin, end)
			if len(why) == 0 {
				continue
			}
			endpoints = append(endpoints, netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort).String())
			for _, line := range why {
				if !slices.Contains(evidence, line) {
					evidence = append(evidence, line)
				}
			}
			for _, f := range fix {
				if s := f(p, &p.want.Origin, end); !slices.Contains(set, s) {
					set = append(set, s)
				}
			}
		}
		if len(endpoints) == 0 {
			return nil
		}
		is := issue{
			code:      code,
			subject:   cut(endpoints, 4),
			endpoints: endpoints,
			expected:  describe(p.want),
			actual:    "does not arrive",
			message:   message,
			evidence:  say(evidence...),
		}
		if set != nil {
			is.remedy = p.advise(kinds[code].remedy, &is)
			is.remedy.Commands = append(is.remedy.Commands, report.Command{
				Line: report.ShellLine(append([]string{"sysctl", "-w"}, set...)...), Node: p.Name,
			})
		}
		return []issue{is}
	}}
}

// isOff tells whether a setting was collected and is 0.
func (n *node) isOff(key string) bool {
	v, ok := n.net.Sysctl(key)
	return ok && v == "0"
}

// notForwarded tells whether the node forwards neither the packet nor, where its interface is certain, the answer. What
// a bridge sends back to where it came from it need not forward (br_nf_pre_routing_finish in
// net/bridge/br_netfilter_hooks.c).
func (p *pathCase) notForwarded(o *expect.Origin, end *netfilter.Outcome) []string {
	key, in := p.forwardingOff(o, end)
	switch {
	case key == "":
		return nil
	case in != o.Iface:
		return []string{key + "=0", "the endpoint's answer comes in by " + in}
	}
	return []string{key + "=0"}
}

// forward is the setting that lets the node forward. net/ipv4/ip_forward turns on all interfaces, but only when it
// changes (ipv4_doint_and_flush and devinet_sysctl_forward in net/ipv4/devinet.c).
func (p *pathCase) forward(o *expect.Origin, end *netfilter.Outcome) string {
	if key, _ := p.forwardingOff(o, end); !end.Packet.Dst.Is4() || !p.isOff(forward4) {
		return key + "=1"
	}
	return forward4 + "=1"
}

const forward4 = "net/ipv4/ip_forward"

// forwardingOff returns the setting by which the packet is not forwarded, or the answer, and the interface by which
// that one comes in; "" for none.
func (p *pathCase) forwardingOff(o *expect.Origin, end *netfilter.Outcome) (key, in string) {
	if o.Kind == expect.FromNode || p.sameBridge(o, end) {
		return "", ""
	}
	v4 := end.Packet.Dst.Is4()
	if key = p.offFor(o.Iface, v4); key != "" {
		return key, o.Iface
	}
	if in, certain := p.answersBy(end); certain && in != o.Iface && in != netfilter.UnknownIface {
		return p.offFor(in, v4), in
	}
	return "", ""
}

// offFor returns the setting by which packets that come in by an interface are not forwarded. ip_route_input_slow
// (net/ipv4/route.c) asks that interface, which follows ip_forward; ip6_forward (net/ipv6/ip6_output.c) asks conf/all
// and, since Linux 6.17, force_forwarding of the interface.
func (p *pathCase) offFor(in string, v4 bool) string {
	keys := []string{"net/ipv6/conf/all/forwarding"}
	if v4 {
		keys = []string{"net/ipv4/conf/" + in + "/forwarding", forward4}
	} else if v, ok := p.net.Sysctl("net/ipv6/conf/" + in + "/force_forwarding"); ok && v != "0" {
		return ""
	}
	for _, key := range keys {
		if v, ok := p.net.Sysctl(key); ok {
			if v == "0" {
				return key
			}
			return ""
		}
		if p.Reading(snapshot.SysctlFile).State == nodestate.Partial {
			return "" // the interface may have a setting of its own in the part that is missing
		}
	}
	return ""
}

// martian: __mkroute_output (net/ipv4/route.c) refuses a loopback source on any other interface, unless route_localnet
// is set there or for all.
func (p *pathCase) martian(o *expect.Origin, end *netfilter.Outcome) []string {
	pkt := &end.Packet
	out := "net/ipv4/conf/" + pkt.Out + "/route_localnet"
	if o.Kind != expect.FromNode || !pkt.OrigSrc.IsLoopback() || !pkt.Dst.Is4() || pkt.Out == "lo" ||
		!p.isOff("net/ipv4/conf/all/route_localnet") ||
		!p.isOff(out) {
		return nil
	}
	return []string{"net/ipv4/conf/all/route_localnet=0, " + out + "=0"}
}

// answerFiltered asks [host.Network.ReversePath] of the endpoint's answer. It is certain to come in by the interface
// that the packet left by where the endpoint is a pod of this node, and where it goes to an address of that interface.
// When the kernel routes it, the client's own address is its destination again; its mark is not known.
func (p *pathCase) answerFiltered(o *expect.Origin, end *netfilter.Outcome) []string {
	pkt := &end.Packet
	if pkt.Out == netfilter.UnknownIface ||
		pkt.Out == o.Iface && !pkt.SNAT { // an answer to a neighbour may be bridged, and is not routed then
		return nil
	}
	if _, certain := p.answersBy(end); !certain {
		return nil
	}
	drop, _ := p.net.ReversePath(host.Query{Dst: pkt.OrigSrc, Src: pkt.Dst, In: pkt.Out, AnyMark: true})
	if drop == (host.Reverse{}) {
		return nil
	}
	return []string{drop.Setting + "; " + drop.Route}
}

// sameBridge tells whether a packet of a pod leaves by the bridge that it came in by.
func (p *pathCase) sameBridge(o *expect.Origin, end *netfilter.Outcome) bool {
	return o.Kind == expect.FromPod && end.Packet.Out == o.Iface && p.net.Bridge(o.Iface)
}

// pastTheRules: [host.Network.BridgeCalls]. The setting does not exist where br_netfilter is not loaded.
func (p *pathCase) pastTheRules(o *expect.Origin, end *netfilter.Outcome) []string {
	key := "net/bridge/bridge-nf-call-iptables"
	if !end.Packet.Dst.Is4() {
		key = "net/bridge/bridge-nf-call-ip6tables"
	}
	if !p.sameBridge(o, end) || end.Packet.SNAT {
		return nil
	}
	if on, known := p.net.BridgeCalls(o.Iface, end.Packet.Dst.Is4()); known {
		if on {
			return nil
		}
		return []string{key + "=0"}
	}
	// The settings of connection tracking come behind those of bridges in the file: with them it is not cut off before.
	if _, there := p.net.Sysctl(key); !there && p.ListsUnread() && p.net.HasSysctls("net/netfilter/") &&
		p.Reading(snapshot.SysctlFile).State == nodestate.Whole {
		return []string{key + " does not exist: br_netfilter is not loaded"}
	}
	return nil
}

// notSentBack: should_deliver (net/bridge/br_forward.c) sends a frame back to its port in hairpin mode only. A bridge
// in promiscuous mode hands the packet to the node, which routes it.
func (p *pathCase) notSentBack(o *expect.Origin, end *netfilter.Outcome) []string {
	if !p.sameBridge(o, end) || end.Packet.Dst != o.Address {
		return nil
	}
	port := p.net.Port(o.Iface, o.Address)
	switch on, known := p.net.Hairpin(o.Iface, port); {
	case !known || on:
		return nil
	case port != "":
		return []string{"bridge -d link show dev " + port + ": hairpin off (the pod's port of " + o.Iface + ")"}
	}
	return []string{"no port of " + o.Iface + " is in hairpin mode"}
}

// portSetting is a setting of a bridge's port, as bridge(8) has it, and in sysfs.
type portSetting struct {
	name, value string
	file        string
	number      int
}

// turned adds the command that sets what would let packets pass at once: for the client's port, or, where that is not
// known, for all ports of its bridge.
func turned(to portSetting, d *detector) *detector {
	find := d.path
	d.path = func(p *pathCase) []issue {
		out := find(p)
		for i := range out {
			bridge := p.want.Origin.Iface
			set := command{
				line:   fmt.Sprintf("echo %d | tee /sys/class/net/%s/brif/*/%s", to.number, report.ShellWord(bridge), to.file),
				onNode: true, when: "at once, for all ports of " + bridge,
			}
			if port := p.net.Port(bridge, p.want.Origin.Address); port != "" {
				set = command{
					line:   report.ShellLine("bridge", "link", "set", "dev", port, to.name, to.value),
					onNode: true, when: "at once, for this pod",
				}
			}
			show := command{line: "bridge -d link show", onNode: true, when: "to see the ports"}
			out[i].remedy = p.advise(remedy{kinds[out[i].code].remedy.text, []command{set, show}}, &out[i])
		}
		return out
	}
	return d
}

// isolated: should_deliver (net/bridge/br_private.h, br_skb_isolated) lets nothing through from one isolated port to
// another.
func (p *pathCase) isolated(o *expect.Origin, end *netfilter.Outcome) []string {
	if !p.sameBridge(o, end) {
		return nil
	}
	from, to := p.net.Port(o.Iface, o.Address), p.net.Port(o.Iface, end.Packet.Dst)
	switch on, known := p.net.Isolated(o.Iface, from, to); {
	case !known || !on:
		return nil
	case from != "" && to != "":
		return []string{"ports " + from + " and " + to + " of " + o.Iface + " are isolated"}
	}
	return []string{"all ports of " + o.Iface + " for pods are isolated"}
}

// portUnsure makes a path Unknown on which the settings of a bridge's ports differ: which one is the pod's is not
// known.
var portUnsure = &detector{stage: stageOnward, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT || p.verdict == report.Mismatch || p.verdict == report.Unknown {
		return nil
	}
	o := &p.want.Origin
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		if end.End != netfilter.Sent || !end.Packet.DNAT {
			continue
		}
		for _, h := range p.hops(o, end) {
			e, _ := p.net.Neighbour(h.dev, h.ip)
			if e.Failed {
				e.MAC = ""
			}
			ports := p.net.Unflooded(h.dev, e.MAC, h.ip.Is4())
			if len(ports) == 0 || !p.net.HasNeighbours() {
				continue
			}
			return p.portDoubted(h.dev, "the bridge does not know behind which port "+h.ip.String()+
				" is, and by these ports of "+h.dev+" it sends only what it knows to be there: ", ports)
		}
		if !p.sameBridge(o, end) {
			continue
		}
		what := ""
		var ports []string
		from, to := p.net.Port(o.Iface, o.Address), p.net.Port(o.Iface, end.Packet.Dst)
		if end.Packet.Dst == o.Address {
			if _, known := p.net.Hairpin(o.Iface, from); !known {
				ports = p.net.WithoutHairpin(o.Iface)
				what = "the pod reaches itself, and these ports of " + o.Iface + " are not in hairpin mode: "
			}
		}
		if _, known := p.net.Isolated(o.Iface, from, to); !known && len(ports) == 0 {
			ports = p.net.SomeIsolated(o.Iface)
			what = "client and endpoint are on the same bridge, and these ports of " + o.Iface + " are isolated: "
		}
		if len(ports) > 0 {
			return p.portDoubted(o.Iface, what, ports)
		}
	}
	return nil
}}

// portDoubted makes the path Unknown for what is true of some ports of a bridge.
func (p *pathCase) portDoubted(bridge, what string, ports []string) []issue {
	p.verdict = report.Unknown
	is := issue{
		code: BridgePortUnknown, subject: bridge,
		message:  what + cut(ports, 4) + "; which ones are the pods' is not known",
		evidence: say("ip -d -j link show master " + bridge), remedy: p.askLive(),
	}
	where := p.advise(advice("",
		command{line: "bridge -d link show", onNode: true, when: "to see the settings of each port"},
		command{
			line: "ip neigh show dev {subject} && bridge fdb show br {subject}", onNode: true,
			when: "to see which port is the pod's",
		},
	), &is)
	is.remedy.Commands = append(is.remedy.Commands, where.Commands...)
	return []issue{is}
}
