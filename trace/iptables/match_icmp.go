// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// icmpv6 is net/ipv6/netfilter/ip6_tables.c (icmp6_match).
var icmpv6 = &matchSpec{proto: netfilter.ICMPv6, options: map[string]reader{"--icmpv6-type": icmpv6Type}}

// icmpv6Types are names that ip6tables takes, of the types without codes; it prints numbers
// (extensions/libxt_icmp.h of iptables).
var icmpv6Types = map[string]uint8{
	"packet-too-big": 2, "echo-request": 128, "ping": 128, "echo-reply": 129, "pong": 129, "router-solicitation": 133,
	"router-advertisement": 134, "neighbour-solicitation": 135, "neighbor-solicitation": 135,
	"neighbour-advertisement": 136, "neighbor-advertisement": 136, "redirect": 137,
}

// icmpv6Type reads TYPE[/CODE]. The walk's packets of ICMPv6 have the code 0.
func icmpv6Type(_ *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	name, code, coded := strings.Cut(arg, "/")
	typ, named := icmpv6Types[name]
	if n, err := strconv.ParseUint(name, 10, 8); err == nil {
		typ, named = uint8(n), true
	}
	switch c, err := strconv.ParseUint(code, 10, 8); {
	case !ok:
		return nil, false
	case arg == "any", arg == "255": // ICMP6_ANY
		return op.Always, true
	case !named || coded && err != nil:
		return nil, false
	case c != 0:
		return op.NoPacket, true
	}
	return func(c *netfilter.Context) truth { return op.Known(c.Packet.Type == typ, c.Packet.Type != 0) }, true
}
