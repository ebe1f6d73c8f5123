// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// Ports and transport headers: net/netfilter/xt_tcpudp.c, xt_multiport.c, xt_sctp.c, xt_dccp.c.

func sport(_ *ruleSpec, o *option) (cond, bool) { return portArg(o, sportIn) }
func dport(_ *ruleSpec, o *option) (cond, bool) { return portArg(o, dportIn) }

func sportIn(c *netfilter.Context, r portRange) truth {
	if of, known := op.SourcePorts(c); known && c.Packet.SrcPort == 0 {
		return r.hasSome(of)
	}
	return r.hasPort(c.Packet.SrcPort)
}

func dportIn(c *netfilter.Context, r portRange) truth {
	if of, known := op.DestinationPorts(c); known && c.Packet.DstPort == 0 {
		return r.hasSome(of)
	}
	if c.Packet.DstPort == 0 && r.hi < op.LowestPort(c) {
		return no
	}
	return r.hasPort(c.Packet.DstPort)
}

func anyPortIn(c *netfilter.Context, r portRange) truth { return dportIn(c, r).Or(sportIn(c, r)) }

func portArg(o *option, in func(*netfilter.Context, portRange) truth) (cond, bool) {
	r, ok := o.ports()
	return func(c *netfilter.Context) truth { return in(c, r) }, ok
}

// portList reads "22,80:90".
func portList(in func(*netfilter.Context, portRange) truth) reader {
	return withArg(func(arg string) (cond, bool) {
		var list []portRange
		for s := range strings.SplitSeq(arg, ",") {
			r, ok := ports(s)
			if !ok {
				return nil, false
			}
			list = append(list, r)
		}
		return func(c *netfilter.Context) truth {
			var answer truth
			for _, r := range list {
				answer = answer.Or(in(c, r))
			}
			return answer
		}, true
	})
}

// tcpFlagNames are the flags that iptables names (the ECN bits have no name here).
var tcpFlagNames = map[string]uint8{
	"FIN": op.FIN, "SYN": op.SYN, "RST": op.RST, "PSH": op.PSH, "ACK": op.ACK, "URG": op.URG, "NONE": 0,
	"ALL": op.FIN | op.SYN | op.RST | op.PSH | op.ACK | op.URG,
}

// flagSet reads a list of TCP flags.
func flagSet(s string) (flags uint8, ok bool) {
	for f := range strings.SplitSeq(s, ",") {
		bit, known := tcpFlagNames[f]
		if !known {
			return 0, false
		}
		flags |= bit
	}
	return flags, true
}

// tcpFlags: of the flags of the mask exactly those of the second list are set.
func tcpFlags(_ *ruleSpec, o *option) (cond, bool) {
	if len(o.args) != 2 {
		return nil, false
	}
	mask, ok1 := flagSet(o.args[0].text)
	want, ok2 := flagSet(o.args[1].text)
	return flagsAre(mask, want), ok1 && ok2
}

// flagsAre tells whether of the flags of a mask exactly some are set.
func flagsAre(mask, want uint8) cond {
	return func(c *netfilter.Context) truth {
		set, unknown := op.TCPFlags(c)
		if (set^want)&^unknown&mask != 0 || want&^mask != 0 {
			return no
		}
		return op.Known(true, unknown&mask == 0)
	}
}

// isSYN is --syn.
var isSYN = flagsAre(op.SYN|op.RST|op.ACK|op.FIN, op.SYN)

func tcpOption(_ *ruleSpec, o *option) (cond, bool) { return op.Unsure, len(o.args) == 1 }

// chunkTypes: the first packet has one chunk, INIT, without flags (net/netfilter/xt_sctp.c, match_packet).
func chunkTypes(_ *ruleSpec, o *option) (cond, bool) {
	if len(o.args) != 2 {
		return nil, false
	}
	list := strings.Split(o.args[1].text, ",")
	init := slices.Contains(list, "INIT")
	var answer truth
	switch o.args[0].text {
	case "any":
		answer = op.Is(init || list[0] == "ALL")
	case "all", "only":
		answer = op.Is(init && len(list) == 1)
	default:
		return nil, false
	}
	return ofFirst(answer), true
}

// ofFirst is what holds for the first packet; of others it is not known.
func ofFirst(t truth) cond {
	return func(c *netfilter.Context) truth {
		if c.Packet.Turn != netfilter.First {
			return maybe
		}
		return t
	}
}

// dccpTypes: the first packet is a REQUEST.
func dccpTypes(_ *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	answer := op.Is(slices.Contains(strings.Split(arg, ","), "REQUEST"))
	return ofFirst(answer), ok
}
