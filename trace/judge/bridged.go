// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// sameBridge tells whether a packet of a pod leaves by the bridge that it came in by. Who sends it there is another
// question: bridged.
func (p *pathCase) sameBridge(o *expect.Origin, end *netfilter.Outcome) bool {
	return o.Kind == expect.FromPod && end.Packet.Out == o.Iface && p.net.Bridge(o.Iface)
}

// asFrames says which packets of a connection between pods on one bridge the bridge sends from port to port, and does
// not hand to the node.
type asFrames struct {
	request, answer bool
	known           bool // false: they are so where br_netfilter calls the rules, which is not known
}

// bridged tells which packets the bridge sends as frames, of a connection within one bridge. All come for the gateway,
// so that they are the node's: it routes them, and the bridge's own interface sends them (br_dev_xmit in
// net/bridge/br_device.c), from no port. But br_netfilter runs PREROUTING when a frame comes in: where that changes the
// destination to one behind the same bridge, the bridge forwards the frame itself (br_nf_pre_routing_finish in
// net/bridge/br_netfilter_hooks.c). So it does with requests that are translated, unless IPVS does that, in INPUT, and
// with answers to an address that was. An answer whose client is a neighbour never comes to the node.
func (p *pathCase) bridged(o *expect.Origin, end *netfilter.Outcome) asFrames {
	if !p.sameBridge(o, end) {
		return asFrames{known: true}
	}
	calls, known := p.bridgeCalls(o.Iface, end.Packet.Dst.Is4())
	if !known {
		calls = true
	}
	out := asFrames{
		request: calls && !end.Packet.Virtual.IsValid(),
		answer:  calls && end.Packet.SNAT || p.neighbours(o, end),
		known:   known,
	}
	out.known = known || p.neighbours(o, end) && !out.request
	return out
}

// bridgeCalls is [host.Network.BridgeCalls], and knows that a kernel without br_netfilter calls nothing.
func (p *pathCase) bridgeCalls(dev string, v4 bool) (on, known bool) {
	if on, known = p.net.BridgeCalls(dev, v4); known {
		return on, true
	}
	return false, p.withoutBridgeNetfilter(v4)
}

// callsKey is the setting by which bridged packets meet the rules.
func callsKey(v4 bool) string {
	if v4 {
		return "net/bridge/bridge-nf-call-iptables"
	}
	return "net/bridge/bridge-nf-call-ip6tables"
}

// withoutBridgeNetfilter tells whether br_netfilter is not loaded: its settings do not exist then. Those of connection
// tracking come behind them in the file: with these it is not cut off before.
func (p *pathCase) withoutBridgeNetfilter(v4 bool) bool {
	_, there := p.net.Sysctl(callsKey(v4))
	return !there && p.ListsUnread() && p.net.HasSysctls("net/netfilter/") &&
		p.Reading(snapshot.SysctlFile).State == nodestate.Whole
}

// pastTheRules: packets between two pods on a bridge that does not call the rules. Where they are not in one subnet,
// the endpoint sends its answers to the gateway, unless a route of its own leads it to the client.
func (p *pathCase) pastTheRules(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	v4 := end.Packet.Dst.Is4()
	if !p.sameBridge(o, end) || end.Packet.SNAT {
		return nil
	}
	if on, known := p.net.BridgeCalls(o.Iface, v4); known {
		if on {
			return nil
		}
		return p.unlessRouted(stoppedBy(callsKey(v4)+"=0"), o, end)
	}
	if p.withoutBridgeNetfilter(v4) {
		return p.unlessRouted(stoppedBy(callsKey(v4)+" does not exist: br_netfilter is not loaded"), o, end)
	}
	return nil
}

// unlessRouted doubts an obstacle where the addresses of the bridge were collected, and the endpoint does not have the
// client for a neighbour by them.
func (p *pathCase) unlessRouted(x *obstacle, o *expect.Origin, end *netfilter.Outcome) *obstacle {
	if p.net.KnowsAddresses(end.Packet.Dst.Is4()) && !p.neighbours(o, end) {
		x.may, x.doubt = true, "whether the endpoint sends its answers to "+o.Iface+", which translates them back, or "+
			"directly to the client, which does not accept them: no subnet of "+o.Iface+" has both"
	}
	return x
}

// notSentBack: should_deliver (net/bridge/br_forward.c) sends a frame back to the port that it came in by in hairpin
// mode only. What the node has routed is no frame of a port.
func (p *pathCase) notSentBack(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	by := p.bridged(o, end)
	if end.Packet.Dst != o.Address || !by.request && !by.answer {
		return nil
	}
	port := p.net.Port(o.Iface, o.Address)
	on, known := p.net.Hairpin(o.Iface, port)
	if !known || on {
		return nil
	}
	out := stoppedBy("no port of " + o.Iface + " is in hairpin mode")
	if port != "" {
		out = stoppedBy("bridge -d link show dev " + port + ": hairpin off (the pod's port of " + o.Iface + ")")
	}
	out.may = !by.known
	if p.net.Promiscuous(o.Iface) {
		out.may = out.may || !p.kernelHas(6, 9)
		out.evidence = append(out.evidence, "ip link: "+o.Iface+" is promiscuous: since Linux 6.9, and in stable versions "+
			"since April 2024, the node no longer tracks what a bridge hands to it for that (br_nf_local_in)")
	}
	return out
}

// kernelHas tells whether the node's kernel is of a version or a later one, as its Node says.
func (n *node) kernelHas(major, minor int) bool {
	if n.object == nil {
		return false
	}
	var x, y int
	_, err := fmt.Sscanf(n.object.Status.NodeInfo.KernelVersion, "%d.%d", &x, &y)
	return err == nil && (x > major || x == major && y >= minor)
}

// isolated: should_deliver (net/bridge/br_private.h, br_skb_isolated) lets nothing through from one isolated port to
// another. What the bridge's own interface sends comes from no port (br_dev_xmit).
func (p *pathCase) isolated(o *expect.Origin, end *netfilter.Outcome) *obstacle {
	by := p.bridged(o, end)
	if !by.request && !by.answer {
		return nil
	}
	from, to := p.net.Port(o.Iface, o.Address), p.net.Port(o.Iface, end.Packet.Dst)
	if on, known := p.net.Isolated(o.Iface, from, to); !known || !on {
		return nil
	}
	out := stoppedBy("all ports of " + o.Iface + " for pods are isolated")
	if from != "" && to != "" {
		out = stoppedBy("ports " + from + " and " + to + " of " + o.Iface + " are isolated")
	}
	out.may = !by.known && !p.neighbours(o, end)
	return out
}
