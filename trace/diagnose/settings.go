// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// setting is a kernel setting that stops packets on a way that the rules make right.
type setting struct {
	code string
	// stops tells whether the setting stops a packet that leaves the node for an endpoint; evidence cites the setting. What was not
	// collected stops nothing.
	stops   func(j *judge, o *expect.Origin, end *netfilter.Outcome) (evidence string)
	message string
}

var settings = []setting{
	{ForwardingOff, (*judge).notForwarded, "the node does not forward packets: what is translated on its way through the node is dropped"},
	{RouteLocalnetOff, (*judge).martian, "the kernel lets no packet with a loopback address as its source leave the node: the connection fails before its source is translated"},
	{BridgeNetfilterOff, (*judge).pastTheRules, "client and endpoint are on the same bridge, and the kernel does not ask iptables about bridged packets: the answer comes straight from the endpoint, and the client does not know it"},
	{HairpinOff, (*judge).notSentBack, "the pod reaches itself, and its bridge sends nothing back to the port where it came from"},
	{ReversePathFilter, (*judge).answerFiltered, "the endpoint's answer comes in by the interface that the packet left by, and the kernel drops it there: the way back to the endpoint is another one"},
}

// settings judges the kernel settings that this path needs, of packets that rules translate.
func (j *judge) settings(want *expect.Path, res *netfilter.Result) []issue {
	if want.Action != expect.DNAT {
		return nil
	}
	var out []issue
	for _, s := range settings {
		var stopped, evidence []string
		for i := range res.Outcomes {
			end := &res.Outcomes[i]
			if end.End != netfilter.Sent || !end.Packet.DNAT || !end.Certain {
				continue
			}
			if why := s.stops(j, &want.Origin, end); why != "" {
				stopped = append(stopped, netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort).String())
				if !slices.Contains(evidence, why) {
					evidence = append(evidence, why)
				}
			}
		}
		if len(stopped) > 0 {
			out = append(out, issue{code: s.code, subject: cut(stopped, 4), endpoints: stopped, expected: describe(want), actual: "does not get there", message: s.message, evidence: evidence})
		}
	}
	return out
}

// isOff tells whether a setting was collected and is 0.
func (j *judge) isOff(key string) bool {
	v, ok := j.net.Sysctl(key)
	return ok && v == "0"
}

// notForwarded: ip_route_input_slow (net/ipv4/route.c) asks the interface that the packet came in by, which follows ip_forward;
// ip6_forward (net/ipv6/ip6_output.c) asks conf/all.
func (j *judge) notForwarded(o *expect.Origin, end *netfilter.Outcome) string {
	if o.Kind == expect.FromNode {
		return ""
	}
	keys := []string{"net/ipv6/conf/all/forwarding"}
	if end.Packet.Dst.Is4() {
		keys = []string{"net/ipv4/conf/" + o.Iface + "/forwarding", "net/ipv4/ip_forward"}
	}
	for _, key := range keys {
		if v, ok := j.net.Sysctl(key); ok {
			if v == "0" {
				return key + "=0"
			}
			return ""
		}
	}
	return ""
}

// martian: __mkroute_output (net/ipv4/route.c) refuses a loopback source on any other interface, unless route_localnet is set
// there or for all.
func (j *judge) martian(o *expect.Origin, end *netfilter.Outcome) string {
	p := &end.Packet
	out := "net/ipv4/conf/" + p.Out + "/route_localnet"
	if o.Kind != expect.FromNode || !p.OrigSrc.IsLoopback() || !p.Dst.Is4() || p.Out == "lo" || !j.isOff("net/ipv4/conf/all/route_localnet") || !j.isOff(out) {
		return ""
	}
	return "net/ipv4/conf/all/route_localnet=0, " + out + "=0"
}

// answerFiltered asks [host.Network.ReversePath] of the endpoint's answer. It is certain to come in by the interface that the packet left by
// where the endpoint is a pod of this node, and where it goes to an address of that interface. When the kernel routes it, the client's
// own address is its destination again; its mark is not known.
func (j *judge) answerFiltered(o *expect.Origin, end *netfilter.Outcome) string {
	p := &end.Packet
	if p.Out == netfilter.UnknownIface || p.Out == o.Iface && !p.SNAT { // an answer to a neighbour may be bridged, and is not routed then
		return ""
	}
	here := slices.ContainsFunc(j.pods, func(x pod) bool { return x.address(p.Dst.Is4()) == p.Dst })
	if !here && (!p.SNAT || !slices.Contains(j.net.AddressesOn(p.Out), p.Src)) {
		return ""
	}
	drop, _ := j.net.ReversePath(host.Query{Dst: p.OrigSrc, Src: p.Dst, In: p.Out, AnyMark: true})
	if drop == (host.Reverse{}) {
		return ""
	}
	return drop.Setting + "; " + drop.Route
}

// sameBridge tells whether a packet of a pod leaves by the bridge that it came in by.
func (j *judge) sameBridge(o *expect.Origin, end *netfilter.Outcome) bool {
	return o.Kind == expect.FromPod && end.Packet.Out == o.Iface && j.net.Bridge(o.Iface)
}

// pastTheRules: br_nf_pre_routing (net/bridge/br_netfilter_hooks.c) hands bridged packets to iptables where bridge-nf-call-iptables is
// set. The setting does not exist where br_netfilter is not loaded.
func (j *judge) pastTheRules(o *expect.Origin, end *netfilter.Outcome) string {
	key := "net/bridge/bridge-nf-call-iptables"
	if !end.Packet.Dst.Is4() {
		key = "net/bridge/bridge-nf-call-ip6tables"
	}
	if !j.sameBridge(o, end) || end.Packet.SNAT {
		return ""
	}
	if j.isOff(key) {
		return key + "=0"
	}
	if _, there := j.net.Sysctl(key); !there && j.reasons != nil && j.reasons["sysctl.txt"] == "" {
		return key + " does not exist: br_netfilter is not loaded"
	}
	return ""
}

// notSentBack: should_deliver (net/bridge/br_forward.c) sends a frame back to its port in hairpin mode only. A bridge in promiscuous
// mode hands the packet to the node, which routes it.
func (j *judge) notSentBack(o *expect.Origin, end *netfilter.Outcome) string {
	if !j.sameBridge(o, end) || end.Packet.Dst != o.Address {
		return ""
	}
	if on, known := j.net.Hairpin(o.Iface); known && !on {
		return "no port of " + o.Iface + " is in hairpin mode"
	}
	return ""
}
