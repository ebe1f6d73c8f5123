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

func sportIn(p *netfilter.Packet, r portRange) truth { return r.hasSource(p.SrcPort) }
func dportIn(p *netfilter.Packet, r portRange) truth { return r.has(p.DstPort) }

func anyPortIn(p *netfilter.Packet, r portRange) truth { return dportIn(p, r).Or(sportIn(p, r)) }

func portArg(o *option, in func(*netfilter.Packet, portRange) truth) (cond, bool) {
	r, ok := o.ports()
	return func(c *netfilter.Context) truth { return in(c.Packet, r) }, ok
}

// portList reads "22,80:90".
func portList(in func(*netfilter.Packet, portRange) truth) reader {
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
			answer := no
			for _, r := range list {
				answer = answer.Or(in(c.Packet, r))
			}
			return answer
		}, true
	})
}

// tcpFlagNames are the flags that iptables names. The first packet has only SYN of them (the ECN bits have no name
// here).
var tcpFlagNames = []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"}

// flagSet reads a list of TCP flags, and says whether SYN is in it and whether anything else is.
func flagSet(s string) (syn, others, ok bool) {
	switch s {
	case "ALL":
		return true, true, true
	case "NONE":
		return false, false, true
	}
	for f := range strings.SplitSeq(s, ",") {
		if !slices.Contains(tcpFlagNames, f) {
			return false, false, false
		}
		syn, others = syn || f == "SYN", others || f != "SYN"
	}
	return syn, others, true
}

// tcpFlags: of the flags of the mask exactly those of the second list are set.
func tcpFlags(_ *ruleSpec, o *option) (cond, bool) {
	if len(o.args) != 2 {
		return nil, false
	}
	mask, _, ok1 := flagSet(o.args[0].text)
	want, others, ok2 := flagSet(o.args[1].text)
	answer := op.Is(mask == want && !others)
	return func(*netfilter.Context) truth { return answer }, ok1 && ok2
}

func tcpOption(_ *ruleSpec, o *option) (cond, bool) { return op.Unsure, len(o.args) == 1 }

// chunkTypes: the first packet has one chunk, INIT, without flags (net/netfilter/xt_sctp.c, match_packet).
func chunkTypes(_ *ruleSpec, o *option) (cond, bool) {
	if len(o.args) != 2 {
		return nil, false
	}
	list := strings.Split(o.args[1].text, ",")
	init := slices.Contains(list, "INIT")
	answer := no
	switch o.args[0].text {
	case "any":
		answer = op.Is(init || list[0] == "ALL")
	case "all", "only":
		answer = op.Is(init && len(list) == 1)
	default:
		return nil, false
	}
	return func(*netfilter.Context) truth { return answer }, true
}

// dccpTypes: the first packet is a REQUEST.
func dccpTypes(_ *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	answer := op.Is(slices.Contains(strings.Split(arg, ","), "REQUEST"))
	return func(*netfilter.Context) truth { return answer }, ok
}
