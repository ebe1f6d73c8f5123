// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// arptablesHooks are where the chains of arptables' table are called (net/ipv4/netfilter/arptable_filter.c), by table
// and chain. FORWARD is of what a bridge passes on (br_nf_forward_arp in net/bridge/br_netfilter_hooks.c).
var arptablesHooks = map[string]netfilter.Hook{
	"filter INPUT": netfilter.Input, "filter OUTPUT": netfilter.Output, "filter FORWARD": netfilter.BridgeForward,
}

// arptables makes the table of a chain of arptables-legacy, of lines that are rules as arptables-save or arptables -nL
// prints them, without the chain.
func arptables(chain string, lines [][]string) *netfilter.Table {
	rules := make([]*netfilter.Rule, 0, len(lines))
	for _, words := range lines {
		r := &netfilter.Rule{Text: short(strings.Join(words, " "))}
		conds, target := arptablesRule(words)
		if arptablesHooks[chain] == netfilter.BridgeForward {
			conds = append(conds, bridgesCallARP)
		}
		if o := op.Conditions(conds, "what the rule matches in ARP packets is not known"); o != nil {
			r.Ops = append(r.Ops, o)
		}
		r.Ops = append(r.Ops, target)
		rules = append(rules, r)
	}
	t := programTable("arptables", chain, netfilter.Base{Hook: arptablesHooks[chain], Policy: netfilter.Accept}, rules...)
	t.Family = netfilter.ARP
	return t
}

// arptablesRule reads the words of a rule: its conditions, and what it does. A condition that is not known may hold or
// not; one of addresses that are not known, too.
func arptablesRule(words []string) (conds []op.Cond, target netfilter.Op) {
	target = op.OpaqueTarget("what the rule of arptables-legacy does is not followed")
	not := false
	for i := 0; i < len(words); i++ {
		arg := ""
		if i+1 < len(words) {
			arg = words[i+1]
		}
		var c op.Cond
		switch words[i] {
		case "!":
			not = true
			continue
		case "-j":
			switch arg {
			case "DROP":
				target = &op.Verdict{Kind: netfilter.Drop}
			case "ACCEPT":
				target = &op.Verdict{Kind: netfilter.Accept}
			}
			i++
			continue
		case ",": // what is behind are counters
			return conds, target
		case "-i":
			c = arptablesDevice(arg, func(p *netfilter.Packet) string { return p.In })
		case "-o":
			c = arptablesDevice(arg, func(p *netfilter.Packet) string { return p.Out })
		case "-s":
			c = arptablesAddress(arg, func(p *netfilter.Packet) netip.Addr { return p.Src })
		case "-d":
			c = arptablesAddress(arg, func(p *netfilter.Packet) netip.Addr { return p.Dst })
		case "--opcode":
			c = arptablesOperation(arg)
		default:
			conds = append(conds, op.Unsure)
			continue
		}
		if not {
			c = c.Not()
		}
		conds, not = append(conds, c), false
		i++
	}
	return conds, target
}

func arptablesDevice(pattern string, of func(*netfilter.Packet) string) op.Cond {
	prefix, open := strings.CutSuffix(pattern, "+")
	return func(c *netfilter.Context) op.Truth {
		dev := of(c.Packet)
		switch {
		case pattern == "*":
			return op.Yes
		case netfilter.IsUnknown(dev):
			return op.Maybe
		case open:
			return op.Is(strings.HasPrefix(dev, prefix))
		}
		return op.Is(dev == pattern)
	}
}

func arptablesAddress(text string, of func(*netfilter.Packet) netip.Addr) op.Cond {
	if !strings.Contains(text, "/") {
		text += "/32"
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return op.Unsure
	}
	return func(c *netfilter.Context) op.Truth {
		a := of(c.Packet)
		return op.Known(network.Contains(a), a.IsValid())
	}
}

func arptablesOperation(text string) op.Cond {
	n, err := strconv.ParseUint(text, 0, 8)
	if err != nil {
		return op.Unsure
	}
	return func(c *netfilter.Context) op.Truth { return op.Is(uint64(c.Packet.Type) == n) }
}

// bridgesCallARP: a bridge runs the chain FORWARD where br_netfilter has it so, for all bridges or for this one.
func bridgesCallARP(c *netfilter.Context) op.Truth {
	v, ok := c.Host.Sysctl("net/bridge/bridge-nf-call-arptables")
	switch {
	case ok && v != "0":
		return op.Yes
	case ok && !c.Host.AnyBridgeCallsARP(),
		!ok && c.Host.HasSysctls("net/ipv4/") && !c.Host.HasSysctls("net/bridge/"): // br_netfilter is not loaded
		return op.No
	}
	return op.Maybe
}
