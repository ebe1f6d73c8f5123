// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
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
)

// stopped makes the detector of a setting. stops tells whether it stops a packet that leaves the node for an endpoint,
// and cites the setting.
func stopped(
	code string, stops func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) *obstacle, message string,
) *detector {
	return &detector{stage: stageSettings, path: func(p *pathCase) []issue {
		if p.want.Action != expect.DNAT {
			return nil
		}
		sure, may := p.stoppedEnds(func(end *netfilter.Outcome) *obstacle {
			if end.End != netfilter.Sent || !end.Packet.DNAT {
				return nil
			}
			return stops(p, &p.want.Origin, end)
		})
		if len(sure)+len(may) == 0 {
			return nil
		}
		if len(sure) == 0 && kinds[code].severity != mismatch {
			sure, may = slices.DeleteFunc(may, func(e stoppedEnd) bool { return e.evidence == nil || !e.end.Certain }), nil
		}
		if len(sure)+len(may) == 0 {
			return nil
		}
		like := issue{
			code: code, expected: describe(p.want), actual: cmp.Or(stoppedAnswers[code], "does not arrive"), message: message,
		}
		if len(sure) == 0 {
			return p.doubted(like, may)
		}
		var out []issue
		for len(sure) > 0 {
			said := sure[0].message
			same := func(e stoppedEnd) bool { return e.message == said }
			out = append(out, p.stoppedAt(like, slices.DeleteFunc(slices.Clone(sure), func(e stoppedEnd) bool {
				return !same(e)
			})))
			sure = slices.DeleteFunc(sure, same)
		}
		return out
	}}
}

// stoppedAnswers says what happens by kinds that stop answers, and not requests.
var stoppedAnswers = map[string]string{
	BridgeNetfilterOff: "the answer is not accepted", ReversePathFilter: "the answer is dropped",
}

// stoppedAt is the issue of ends at which packets are stopped in the same manner.
func (p *pathCase) stoppedAt(is issue, at []stoppedEnd) issue {
	var evidence, set []string
	for i := range at {
		e := &at[i]
		is.endpoints = union(is.endpoints, []string{e.to().String()})
		evidence, set = union(evidence, e.evidence), union(set, e.set)
	}
	is.subject, is.evidence = cut(is.endpoints, 4), say(evidence...)
	if at[0].message != "" {
		is.message = at[0].message
	}
	is.remedy = at[0].remedy
	if set == nil {
		return is
	}
	if is.remedy.IsZero() {
		is.remedy = p.advise(kinds[is.code].remedy, &is)
	}
	is.remedy.Commands = append(slices.Clip(is.remedy.Commands), report.Command{
		Line: report.ShellLine(append([]string{"sysctl", "-w"}, set...)...), Node: p.Name,
	})
	return is
}

// isOff tells whether a setting was collected and is 0.
func (n *node) isOff(key string) bool {
	v, ok := n.net.Sysctl(key)
	return ok && v == "0"
}

const forward4 = "net/ipv4/ip_forward"

// notForwarded tells whether the node does not forward the packet or, where its interface is certain, the answer.
func (p *pathCase) notForwarded(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	var doubt *obstacle
	v4 := end.Packet.Dst.Is4()
	for _, x := range p.forwardedFrom(o, end) {
		key, unread := p.offFor(x.in, v4)
		if unread != "" {
			if doubt == nil {
				doubt = &obstacle{}
			}
			doubt.unread = unread
		}
		if key == "" {
			continue
		}
		out := stoppedBy(key + "=0")
		if x.in != o.Iface {
			out.evidence = append(out.evidence, "the endpoint's answer comes in by "+x.in)
		}
		if out.set = []string{key + "=1"}; v4 && p.isOff(forward4) {
			// It turns on all interfaces, but only when it changes (ipv4_doint_and_flush and devinet_sysctl_forward in
			// net/ipv4/devinet.c).
			out.set = []string{forward4 + "=1"}
		}
		if out.may = x.may; !x.may {
			return out
		}
		doubt = out
	}
	return doubt
}

// arrival is an interface by which packets come in that the node must forward.
type arrival struct {
	in  string
	may bool // or that the bridge sends on, which is not known
}

// forwardedFrom are the interfaces by which the node must forward the request and the answer. What IPVS has scheduled
// came for an address of the node, and is sent as the node's own (ip_vs_nat_xmit in net/netfilter/ipvs/ip_vs_xmit.c). A
// bridge of IPv6 forwards what it has translated without asking; one of IPv4 has it routed first, which asks
// (ip_route_input_slow from br_nf_pre_routing_finish in net/bridge/br_netfilter_hooks.c: what is not forwarded has a
// route that leads to no bridge). An answer to a neighbour never comes to the node.
func (p *pathCase) forwardedFrom(o *expect.Origin, end *netfilter.Outcome) (out []arrival) {
	if o.Kind == expect.FromNode {
		return nil
	}
	v4, by := end.Packet.Dst.Is4(), p.bridged(o, end)
	if !end.Packet.Virtual.IsValid() && (v4 || !by.request || !by.known) {
		out = append(out, arrival{o.Iface, !v4 && by.request})
	}
	in, certain := p.answersBy(end)
	switch {
	case !certain, netfilter.IsUnknown(in), in == "", p.sameBridge(o, end) && p.neighbours(o, end):
		return out
	case v4 || !by.answer || !by.known:
		if x := (arrival{in, !v4 && by.answer}); !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// offFor returns the setting by which packets that come in by an interface are not forwarded, or the one that was not
// collected and tells. ip_route_input_slow (net/ipv4/route.c) asks that interface, which follows ip_forward;
// ip6_forward (net/ipv6/ip6_output.c) asks conf/all and, since Linux 6.17, force_forwarding of the interface. Where no
// setting of an interface was collected, ip_forward stands for it.
func (p *pathCase) offFor(in string, v4 bool) (off, unread string) {
	if v4 {
		return p.offFor4(in)
	}
	if v, ok := p.net.Sysctl("net/ipv6/conf/" + in + "/force_forwarding"); ok && v != "0" {
		return "", ""
	}
	const key = "net/ipv6/conf/all/forwarding"
	switch v, ok := p.net.Sysctl(key); {
	case ok && v == "0":
		return key, ""
	case !ok && !netfilter.IsUnknown(in) && p.net.HasInterfaceSettings():
		return "", key
	}
	return "", ""
}

func (p *pathCase) offFor4(in string) (off, unread string) {
	switch v, ok := p.net.Conf(in, "forwarding"); {
	case ok && v != "0":
		return "", ""
	case ok:
		return "net/ipv4/conf/" + in + "/forwarding", ""
	case !netfilter.IsUnknown(in) && p.net.HasInterfaceSettings():
		return "", "net/ipv4/conf/" + in + "/forwarding"
	case p.Reading(snapshot.SysctlFile).State == nodestate.Partial:
		return "", "" // the interface may have a setting of its own in the part that is missing
	case p.isOff(forward4):
		return forward4, ""
	}
	return "", ""
}

// martian: __mkroute_output (net/ipv4/route.c) refuses a loopback source on any other interface, unless route_localnet
// is set there or for all.
func (p *pathCase) martian(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	pkt := &end.Packet
	if o.Kind != expect.FromNode || !pkt.OrigSrc.IsLoopback() || !pkt.Dst.Is4() || pkt.Out == "lo" ||
		netfilter.IsUnknown(pkt.Out) {
		return nil
	}
	all, own := "net/ipv4/conf/all/route_localnet", "net/ipv4/conf/"+pkt.Out+"/route_localnet"
	unread := ""
	for _, key := range []string{all, own} {
		switch v, ok := p.net.Sysctl(key); {
		case ok && v != "0":
			return nil
		case !ok && !p.net.HasInterfaceSettings():
			return nil
		case !ok:
			unread = key
		}
	}
	if unread != "" {
		return &obstacle{unread: unread}
	}
	return stoppedBy(all + "=0, " + own + "=0")
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
			if e.Failed && len(ports) == 0 { // it answers, and nothing is sent to it
				ports = p.net.Untaught(h.dev)
			}
			if len(ports) == 0 || !p.net.HasNeighbours() {
				continue
			}
			return p.portDoubted(h.dev, "the bridge does not know behind which port "+h.ip.String()+
				" is, and by these ports of "+h.dev+" it sends only what it knows to be there: ", ports)
		}
		by := p.bridged(o, end)
		if !by.request && !by.answer {
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
		// The endpoint asks for the client as a neighbour, and no table of the node tells whether it has to.
		if p.neighbours(o, end) && end.Packet.Dst != o.Address && len(ports) == 0 {
			deaf := p.net.Unflooded(o.Iface, "", o.Address.Is4())
			veth := func(d string) bool {
				kind, _ := p.net.Kind(d)
				return kind == "veth" && p.net.Master(d) == o.Iface
			}
			if slices.ContainsFunc(p.net.Devs(), veth) { // others are not the pods'
				deaf = slices.DeleteFunc(deaf, func(d string) bool { return !veth(d) })
			}
			if from == "" || slices.Contains(deaf, from) {
				ports = deaf
				what = "the endpoint asks for the client, and these ports of " + o.Iface + " do not send such questions " +
					"(bcast_flood off or mcast_flood off, or proxy_arp on): "
			}
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
