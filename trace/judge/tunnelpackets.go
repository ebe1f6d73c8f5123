// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// TunnelPacketsDropped says that the node does not let the packets of a tunnel pass that carry those to endpoints of
// other nodes, or their answers.
const TunnelPacketsDropped = "TunnelPacketsDropped"

var _ = register(kind{
	code: TunnelPacketsDropped, severity: mismatch, scope: onPath,
	remedy: advice("let the tunnel's packets between the nodes pass on {node}, out and in: UDP to the port of the VXLAN or "+
		"Geneve, or the IP protocol (4 for IPIP, 47 for GRE)", command{line: "ip -d link", onNode: true, when: "to see it"}),
	by: stopped(TunnelPacketsDropped, (*pathCase).tunnelStops,
		"the packets to the endpoint leave the node within those of a tunnel, and the node does not let these pass"),
})

// tunnelWalk is what the rules and routes of the node do with the outer packet of a tunnel, and with those that come
// back.
type tunnelWalk struct {
	out, back obstacle
}

// tunnelStops: what a tunnel carries passes OUTPUT and POSTROUTING again within the tunnel's own packets, with a route
// of their own (udp_tunnel_xmit_skb in net/ipv4/udp_tunnel_core.c, iptunnel_xmit in net/ipv4/ip_tunnel_core.c), and
// answers come in within such to the node's own address.
func (p *pathCase) tunnelStops(_ *expect.Origin, end *netfilter.Outcome) obstacle {
	packet, to, ok := endtoend.Outer(p.net, &end.Packet)
	if !ok {
		return obstacle{}
	}
	source, by := end.Packet.Src, end.Packet.Out
	w := p.tunnelWalks.once(packet, func() tunnelWalk { return p.walkTunnel(packet, to, by) })
	// What another address of the node's has sent is answered without the tunnel.
	if !w.out.found() && w.back.found() && (!p.local(source) || p.net.DevOf(source) == by) {
		return w.back
	}
	return w.out
}

// walkTunnel walks an outer packet out of the node, and one from the tunnel's other end into it.
func (p *pathCase) walkTunnel(packet netfilter.Packet, to, tunnel string) (w tunnelWalk) {
	if p.unread[packet.Family] != "" || p.NotAll[packet.Family] != nil {
		w.out = obstacle{may: true, evidence: []string{"the packets of " + to}, doubt: "whether the node lets the tunnel's " +
			"packets pass: the rules of " + packet.Family.String() + " were not read in full"}
		return w
	}
	if local, known := p.net.Local(packet.Src); known && !local && packet.Src.Is4() {
		// ip_route_output_key_hash_rcu in net/ipv4/route.c finds no route for such a source.
		w.out = stoppedBy("ip -d link: " + tunnel + " local " + packet.Src.String() + ", which is not one of the node's " +
			"addresses: the kernel drops the packets of " + to)
		return w
	}
	res := p.walk(netfilter.Start{Hook: netfilter.Output, Packet: packet}, netfilter.Options{})
	w.out = p.tunnelEnds(&res, "the packets of "+to, func(end *netfilter.Outcome) string {
		switch x := &end.Packet; {
		case x.Dst != packet.Dst || x.DstPort != packet.DstPort:
			return "translated, by " + x.DNATBy.String()
		case end.End == netfilter.Sent && x.Out == tunnel:
			return "they go into the tunnel itself"
		case end.End == netfilter.Sent && p.net.NoCarrier(x.Out):
			return "ip link: " + x.Out + " is UP and has NO-CARRIER"
		case end.End == netfilter.Sent:
			return p.net.Discards(x.Out, x.Hop())
		}
		return end.End.String()
	})
	if w.out.found() || !packet.Src.IsValid() {
		return w
	}
	first := &res.Outcomes[0].Packet
	in, near := first.Out, first.Hop() == packet.Dst
	in = p.net.Receiver(in)
	back := netfilter.Packet{
		Family: packet.Family, Proto: packet.Proto, Src: packet.Dst, Dst: packet.Src, DstPort: packet.DstPort, In: in,
		Ports: packet.Ports,
	}
	res = p.walk(netfilter.Start{Hook: netfilter.Prerouting, Packet: back}, netfilter.Options{Enters: near})
	w.back = p.tunnelEnds(&res, fmt.Sprintf("the packets from %s that carry answers", packet.Dst),
		func(end *netfilter.Outcome) string {
			if end.End == netfilter.Delivered && end.Packet.DstPort == back.DstPort {
				return ""
			}
			return end.End.String()
		})
	return w
}

// tunnelEnds is what stops a tunnel's packets, by the outcomes of their walk; why says of one that no rule has dropped
// why it does not arrive all the same.
func (p *pathCase) tunnelEnds(
	res *netfilter.Result, what string, why func(end *netfilter.Outcome) string,
) obstacle {
	end := always(res)
	if end == nil {
		return obstacle{
			may: true, evidence: []string{what}, doubt: "whether the node lets the tunnel's packets pass: " + dependsOn(res),
		}
	}
	switch end.End {
	case netfilter.Dropped, netfilter.Rejected:
		return stoppedBy(what + " at " + end.Where.String() + ": " + cite(end.Where).Text)
	case netfilter.NoRoute, netfilter.Filtered:
		text := what + ": " + end.End.String() + ", " + end.Why
		if by := end.By.String(); by != "" && end.End == netfilter.NoRoute {
			text += " (" + by + ")"
		}
		return stoppedBy(text)
	case netfilter.Lost, netfilter.Taken:
		return obstacle{
			may: true, evidence: []string{what + ": " + end.End.String() + " " + end.Where.String()},
			doubt: "whether the node lets the tunnel's packets pass is not known",
		}
	}
	if text := why(end); text != "" {
		return stoppedBy(what + ": " + text)
	}
	return obstacle{}
}
