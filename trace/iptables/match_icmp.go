// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// The matches are net/ipv4/netfilter/ip_tables.c (icmp_match) and net/ipv6/netfilter/ip6_tables.c (icmp6_match).
var (
	icmp = &matchSpec{proto: netfilter.ICMP, options: map[string]reader{
		"--icmp-type": icmpType(icmpTypes, netfilter.FragmentationNeededCode),
	}}
	icmpv6 = &matchSpec{proto: netfilter.ICMPv6, options: map[string]reader{"--icmpv6-type": icmpType(icmpv6Types, 0)}}
)

// icmpKind is a type, and a code or any.
type icmpKind struct {
	typ, code uint8
	coded     bool
}

// icmpTypes and icmpv6Types are names that iptables and ip6tables take, of what the walk has packets of and what stands
// in most rules; they print numbers (extensions/libxt_icmp.h of iptables).
var (
	icmpTypes = map[string]icmpKind{
		"echo-reply": {typ: 0}, "pong": {typ: 0}, "destination-unreachable": {typ: 3},
		"network-unreachable": {3, 0, true}, "host-unreachable": {3, 1, true}, "protocol-unreachable": {3, 2, true},
		"port-unreachable": {3, 3, true}, "fragmentation-needed": {3, 4, true}, "source-quench": {typ: 4},
		"redirect": {typ: 5}, "echo-request": {typ: 8}, "ping": {typ: 8}, "time-exceeded": {typ: 11},
		"ttl-exceeded": {typ: 11}, "parameter-problem": {typ: 12}, "timestamp-request": {typ: 13},
		"timestamp-reply": {typ: 14},
	}
	icmpv6Types = map[string]icmpKind{
		"destination-unreachable": {typ: 1}, "packet-too-big": {typ: 2}, "time-exceeded": {typ: 3}, "ttl-exceeded": {typ: 3},
		"parameter-problem": {typ: 4}, "echo-request": {typ: 128}, "ping": {typ: 128}, "echo-reply": {typ: 129},
		"pong": {typ: 129}, "router-solicitation": {typ: 133}, "router-advertisement": {typ: 134},
		"neighbour-solicitation": {typ: 135}, "neighbor-solicitation": {typ: 135}, "neighbour-advertisement": {typ: 136},
		"neighbor-advertisement": {typ: 136}, "redirect": {typ: 137},
	}
)

// icmpType reads TYPE[/CODE]. The walk's packets have one code.
func icmpType(names map[string]icmpKind, code uint8) reader {
	return func(_ *ruleSpec, o *option) (cond, bool) {
		arg, ok := o.arg()
		if !ok {
			return nil, false
		}
		if arg == "any" || arg == "255" || arg == "255/0:255" { // every type; of ICMPv6 255 is no type that is in use
			return op.Always, true
		}
		k, ok := names[arg]
		if !ok {
			typ, rest, coded := strings.Cut(arg, "/")
			n, err := strconv.ParseUint(typ, 10, 8)
			if err != nil {
				return nil, false
			}
			k = icmpKind{typ: uint8(n), coded: coded}
			if coded {
				if n, err = strconv.ParseUint(rest, 10, 8); err != nil {
					return nil, false
				}
				k.code = uint8(n)
			}
		}
		if k.coded && k.code != code {
			return op.NoPacket, true
		}
		return func(c *netfilter.Context) truth { return op.Known(c.Packet.Type == k.typ, c.Packet.Type != 0) }, true
	}
}
