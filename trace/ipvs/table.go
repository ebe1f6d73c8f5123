// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// The priorities of IPVS in its hooks: before the source NAT of INPUT and after the destination NAT of OUTPUT
// (net/netfilter/ipvs/ip_vs_core.c, ip_vs_ops4 and ip_vs_ops6: NF_IP_PRI_NAT_SRC - 1, NF_IP_PRI_NAT_DST + 2).
const (
	priorityInput  = 99
	priorityOutput = -98
)

// protocols are those that IPVS schedules (ip_vs_proto.c); FWM serves any of them.
var protocols = map[string]uint8{"TCP": netfilter.TCP, "UDP": netfilter.UDP, "SCTP": netfilter.SCTP}

// Tables returns the virtual servers as rules for the walk: one for each virtual server, at both hooks of IPVS. tracked
// tells whether IPVS keeps its connections in connection tracking (the setting net/ipv4/vs/conntrack), without which
// their source is not translated.
func Tables(servers []VirtualServer, tracked op.Truth) []*netfilter.Table {
	var out []*netfilter.Table
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		rules := rulesOf(servers, f, tracked)
		if len(rules) == 0 {
			continue
		}
		out = append(out, &netfilter.Table{
			Family: f, Backend: netfilter.BackendIPVS, Name: "ipvs",
			Chains: []*netfilter.Chain{
				{
					Name: netfilter.Input.String(),
					Base: &netfilter.Base{Hook: netfilter.Input, Priority: priorityInput, Policy: netfilter.Accept}, Rules: rules,
				},
				{
					Name: netfilter.Output.String(),
					Base: &netfilter.Base{Hook: netfilter.Output, Priority: priorityOutput, Policy: netfilter.Accept}, Rules: rules,
				},
			},
		})
	}
	return out
}

// rulesOf returns the rules of virtual servers in the order in which the kernel looks them up: firewall marks, then
// address and port, then any port of an address (ip_vs_ctl.c, ip_vs_service_find).
func rulesOf(servers []VirtualServer, f netfilter.Family, tracked op.Truth) []*netfilter.Rule {
	var order [3][]*VirtualServer
	for i := range servers {
		v := &servers[i]
		switch {
		case v.Protocol == "FWM":
			if v.IPv6 == (f == netfilter.IPv6) {
				order[0] = append(order[0], v)
			}
		case netfilter.FamilyOf(v.Address.Addr()) != f:
		case v.Address.Port() != 0:
			order[1] = append(order[1], v)
		default:
			order[2] = append(order[2], v)
		}
	}
	var out []*netfilter.Rule
	for _, v := range slices.Concat(order[0], order[1], order[2]) {
		match := v.condition()
		choices, by := v.choices()
		name := v.String()
		text := name
		if len(v.Reals) > 0 {
			text += " -> " + v.reals()
		}
		add := func(untracked bool, ops ...netfilter.Op) {
			ops = append(ops, &schedule{v, choices, by, untracked})
			out = append(out, &netfilter.Rule{Num: len(out) + 1, Text: text, Ops: ops, Key: v.key(), Target: name})
		}
		switch tracked {
		case op.Yes:
			add(false, match)
		case op.No:
			add(true, match)
		case op.Maybe:
			add(false, match, op.Conditions([]op.Cond{op.Unsure},
				"the setting net/ipv4/vs/conntrack was not collected (sysctl.txt)"))
			add(true, match)
		}
	}
	return out
}

// key is the key of the rule in the walk's index.
func (v *VirtualServer) key() netfilter.Key {
	k := netfilter.Key{Proto: protocols[v.Protocol], DstPort: v.Address.Port()}
	if v.Protocol != "FWM" {
		k.Dst = v.Address.Addr()
	}
	return k
}

// condition matches the packets that the virtual server receives: none that IPVS has already processed (ip_vs_in_hook,
// skb->ipvs_property), and behind the first of a connection those of one that it has scheduled.
func (v *VirtualServer) condition() netfilter.Op {
	fresh := func(c *netfilter.Context) op.Truth {
		p := c.Packet
		return op.Is(!p.Virtual.IsValid() && (p.Turn == netfilter.First || p.Turn == netfilter.Later && p.Conn.Scheduled))
	}
	if v.Protocol == "FWM" {
		return op.Conditions([]op.Cond{fresh, func(c *netfilter.Context) op.Truth {
			return op.Is(c.Packet.Mark == v.Mark && slices.Contains([]uint8{netfilter.TCP, netfilter.UDP, netfilter.SCTP},
				c.Packet.Proto))
		}}, "")
	}
	proto := protocols[v.Protocol]
	return op.Conditions([]op.Cond{fresh, func(c *netfilter.Context) op.Truth {
		p := c.Packet
		return op.Is(p.Proto == proto && p.Dst == v.Address.Addr() &&
			(p.DstPort == v.Address.Port() || v.Address.Port() == 0))
	}}, "")
}

// String writes the virtual server as ipvsadm -Ln does.
func (v *VirtualServer) String() string {
	s := v.Protocol + " "
	if v.Protocol == "FWM" {
		s += fmt.Sprint(v.Mark)
	} else {
		s += v.Address.String()
	}
	s += " " + v.Scheduler
	if v.Persistent > 0 {
		s += fmt.Sprintf(" persistent %d", v.Persistent)
	}
	if v.Mask != "" {
		s += " mask " + v.Mask
	}
	if len(v.Flags) > 0 {
		s += " (" + strings.Join(v.Flags, ",") + ")"
	}
	return s
}

// shown is the largest number of real servers in the text of a virtual server's rule.
const shown = 4

func (v *VirtualServer) reals() string {
	var parts []string
	for i := range v.Reals {
		if i == shown {
			parts = append(parts, fmt.Sprintf("… and %d more", len(v.Reals)-shown))
			break
		}
		parts = append(parts, v.Reals[i].String())
	}
	return strings.Join(parts, ", ")
}

// String writes the real server as ipvsadm -Ln does: address, forwarding method, weight.
func (r *RealServer) String() string { return fmt.Sprintf("%s %s %d", r.Address, r.Method, r.Weight) }

// schedule assigns a connection to one of a virtual server's real servers.
type schedule struct {
	v         *VirtualServer
	choices   []choice
	by        string // the criterion of the choice, where the shares are not fixed
	untracked bool
}

// Run implements [netfilter.Op]. Where no real server is available, the kernel rejects with ICMP port unreachable
// (ip_vs_leave). A later packet of a connection goes where the first one went.
func (s *schedule) Run(c *netfilter.Context) netfilter.Effect {
	if p := c.Packet; p.Turn == netfilter.Later {
		p.Virtual = netip.AddrPortFrom(p.Dst, p.DstPort)
		p.Dst, p.DstPort = p.Conn.Reply.Src.Addr(), p.Conn.Reply.Src.Port()
		return forward(c, p.Src, p.Dst)
	}
	if len(s.choices) == 0 {
		return netfilter.Effect{Kind: netfilter.Reject}
	}
	e := netfilter.Effect{Kind: netfilter.Split}
	for _, x := range s.choices {
		e.Alts = append(e.Alts, s.alternative(c, x))
	}
	return e
}

func (s *schedule) alternative(c *netfilter.Context, x choice) netfilter.Alt {
	alt := netfilter.Alt{P: x.share, Packet: *c.Packet}
	q := &alt.Packet
	q.Virtual, q.Scheduled = netip.AddrPortFrom(q.Dst, q.DstPort), s.by
	switch {
	case x.real == nil:
		alt.Effect = netfilter.Effect{Kind: netfilter.Reject}
	case x.real.Method == "Masq" || x.real.Method == "Local":
		q.Dst, q.DNAT, q.Untracked = x.real.Address.Addr(), true, q.Untracked || s.untracked
		if port := x.real.Address.Port(); port != 0 {
			q.DstPort = port
		}
		alt.Effect = forward(c, q.Src, q.Dst)
	default:
		if alt.Effect = forward(c, q.Src, x.real.Address.Addr()); alt.Effect.Kind != netfilter.Accept {
			break
		}
		alt.Effect = netfilter.Effect{Kind: netfilter.Stolen, Why: "IPVS sends it to " + x.real.Address.Addr().String() +
			" with its destination unchanged (" + x.real.Method + ")"}
	}
	return alt
}

// forward is the effect on a packet that is sent to a real server: one from a loopback address must not leave the node
// (crosses_local_route_boundary of net/netfilter/ipvs/ip_vs_xmit.c).
func forward(c *netfilter.Context, src, server netip.Addr) netfilter.Effect {
	const why = "IPVS sends nothing from a loopback address to another host"
	stays := op.Yes
	if src.IsLoopback() {
		stays = op.LocalOn(c, server, "")
	}
	switch stays {
	case op.No:
		return netfilter.Effect{Kind: netfilter.Drop, Why: why}
	case op.Maybe:
		return netfilter.Effect{
			Kind: netfilter.Opaque, Why: why + ", and the node's addresses were not collected (ip-addr.json)",
		}
	case op.Yes:
	}
	return netfilter.Effect{Kind: netfilter.Accept}
}

// Destinations implements [netfilter.Translator].
func (s *schedule) Destinations() []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(s.v.Reals))
	for i := range s.v.Reals {
		out = append(out, s.v.Reals[i].Address)
	}
	return out
}
