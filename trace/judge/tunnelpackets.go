// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TunnelPacketsDropped says that the node does not let the packets of a tunnel pass that carry those to endpoints of
// other nodes, or their answers.
const TunnelPacketsDropped = "TunnelPacketsDropped"

var _ = register(kind{
	code: TunnelPacketsDropped, severity: mismatch, scope: onPath,
	remedy: advice("let the tunnel's packets between the nodes pass on {node}, out and in: UDP to the port of the VXLAN "+
		"or Geneve, or the IP protocol (4 for IPIP, 47 for GRE)",
		command{line: "ip -d link", onNode: true, when: "to see it"}),
	by: stopped(TunnelPacketsDropped, (*pathCase).tunnelStops,
		"the packets to the endpoint leave the node within those of a tunnel, and the node does not let these pass"),
})

// Remedies for what is no matter of rules.
const (
	repairTunnel = "the tunnel's interface is set by the CNI: restart its pod on the node, so that it sets the node's " +
		"present address"
	repairUnderlay = "repair the route or the interface by which the tunnel's packets leave the node: the evidence " +
		"names it"
	repairFilter = "let the reverse path filter pass what comes from the tunnel's other end: change the route back to " +
		"it, or the setting"
)

// tunnelKey is what decides about the outer packet of one that leaves by a tunnel.
type tunnelKey struct {
	tunnel hop
	mark   uint32
	tos    uint8
	anyTOS bool
	v6     bool
}

// tunnelWalk is what the rules and routes of the node do with the outer packet of a tunnel, and with those that come
// back.
type tunnelWalk struct {
	out, back *obstacle
}

// tunnelStops: what a tunnel carries passes OUTPUT and POSTROUTING again within the tunnel's own packets, with a route
// of their own (udp_tunnel_xmit_skb in net/ipv4/udp_tunnel_core.c, iptunnel_xmit in net/ipv4/ip_tunnel_core.c), and
// answers come in within such to the node's own address.
func (p *pathCase) tunnelStops(_ *expect.Origin, end *netfilter.Outcome) *obstacle {
	if !endtoend.Carries(p.net, end.Packet.Out) {
		return nil
	}
	inside := end.Packet
	key := tunnelKey{hop{inside.Out, inside.Hop()}, inside.Mark, inside.TOS, inside.AnyTOS, !inside.Dst.Is4()}
	find := func() tunnelWalk { return p.walkTunnel(&inside) }
	var w tunnelWalk
	if p.trail != nil { // each path has to note the rules that it depends on
		w = find()
	} else {
		w = p.tunnelWalks.once(key, find)
	}
	// What another address of the node's has sent is answered without the tunnel.
	if !w.out.found() && w.back.found() && (!p.local(inside.Src) || p.net.DevOf(inside.Src) == inside.Out) {
		return w.back
	}
	return w.out
}

// walkTunnel walks the outer packet of one that leaves by a tunnel out of the node, and one from the tunnel's other end
// into it.
func (p *pathCase) walkTunnel(inside *netfilter.Packet) (w tunnelWalk) {
	packet, to, ok := endtoend.Outer(p.net, inside)
	if !ok {
		return w
	}
	what, tunnel := "the packets of "+to, inside.Out
	if p.unread[packet.Family] != "" || p.NotAll[packet.Family] != nil {
		w.out = &obstacle{
			may: true, evidence: []string{what}, doubt: "whether the node lets the tunnel's packets pass: the rules of " +
				packet.Family.String() + " were not read in full",
		}
		return w
	}
	if local, known := p.net.Local(packet.Src); known && !local && packet.Src.Is4() {
		// ip_route_output_key_hash_rcu in net/ipv4/route.c finds no route for such a source.
		w.out = stoppedBy("ip -d link: " + tunnel + " local " + packet.Src.String() + ", which is not one of the node's " +
			"addresses: the kernel drops " + what)
		w.out.remedy.Text = repairTunnel
		return w
	}
	s := netfilter.Start{Hook: netfilter.Output, Packet: packet}
	res := p.walker.Walk(s, netfilter.Options{})
	w.out = p.tunnelEnds(&res, what, func(end *netfilter.Outcome) *obstacle {
		x := &end.Packet
		switch {
		case x.Dst != packet.Dst || x.DstPort != packet.DstPort:
			return stoppedBy(what + ": translated by " + x.DNATBy.String())
		case end.End != netfilter.Sent:
			return underlay(what + ": given to a socket of the node itself")
		case x.Out == tunnel:
			return underlay(what + ": the route leads into the tunnel itself")
		case p.net.NoCarrier(x.Out):
			return underlay(what + ": ip link: " + x.Out + " is UP and has NO-CARRIER")
		}
		if why := p.net.Discards(x.Out, x.Hop()); why != "" {
			return underlay(what + ": " + why)
		}
		return nil
	})
	if !w.out.found() && packet.Src.IsValid() {
		w.back = p.walkBack(s, res.Outcomes[0])
	}
	return w
}

// underlay is an obstacle by the route or the interface below a tunnel.
func underlay(evidence string) *obstacle {
	out := stoppedBy(evidence)
	out.remedy.Text = repairUnderlay
	return out
}

// walkBack walks a packet from the other end of a tunnel into the node. One of UDP is the first of a connection for
// connection tracking, as the source port is made of what it carries; others are answers to what was sent.
func (p *pathCase) walkBack(s netfilter.Start, sent netfilter.Outcome) *obstacle {
	packet := &s.Packet
	in := p.net.Receiver(sent.Packet.Out)
	var res netfilter.Result
	if packet.DstPort == 0 {
		res = p.walker.Answer(s, &sent, in, netfilter.Options{Enters: true})
	} else {
		back := netfilter.Packet{
			Family: packet.Family, Proto: packet.Proto, Src: packet.Dst, Dst: packet.Src, DstPort: packet.DstPort, In: in,
			Ports: packet.Ports,
		}
		res = p.walker.Walk(netfilter.Start{Hook: netfilter.Prerouting, Packet: back},
			netfilter.Options{Enters: sent.Packet.Hop() == packet.Dst})
	}
	what := fmt.Sprintf("the packets from %s that carry answers", packet.Dst)
	return p.tunnelEnds(&res, what, func(end *netfilter.Outcome) *obstacle {
		if end.End == netfilter.Delivered && end.Packet.DstPort == packet.DstPort {
			return nil
		}
		return underlay(what + ": " + end.End.String())
	})
}

// tunnelEnds is what stops a tunnel's packets, by the outcomes of their walk; arrives says of one that no rule has
// dropped what stops it all the same.
func (p *pathCase) tunnelEnds(
	res *netfilter.Result, what string, arrives func(end *netfilter.Outcome) *obstacle,
) *obstacle {
	end := always(res)
	if end == nil {
		return &obstacle{
			may: true, evidence: []string{what}, doubt: "whether the node lets the tunnel's packets pass: " + dependsOn(res),
		}
	}
	switch end.End {
	case netfilter.Dropped, netfilter.Rejected:
		return stoppedBy(what + " at " + end.Where.String() + ": " + cite(end.Where).Text)
	case netfilter.NoRoute:
		text := what + ": " + end.End.String() + ", " + end.Why
		if by := end.By.String(); by != "" {
			text += " (" + by + ")"
		}
		return underlay(text)
	case netfilter.Filtered:
		return &obstacle{evidence: []string{what + ": " + end.Why}, remedy: report.Remedy{Text: repairFilter}}
	case netfilter.Lost, netfilter.Taken:
		return &obstacle{
			may: true, evidence: []string{what + ": " + end.End.String() + " " + end.Where.String()},
			doubt: "whether the node lets the tunnel's packets pass is not known",
		}
	}
	var all *obstacle
	free := false
	for i := range res.Outcomes {
		switch s := byEveryHop(&res.Outcomes[i], arrives); {
		case !s.found():
			free = true
		case !all.found():
			all = s
		}
	}
	return all.unless(free)
}
