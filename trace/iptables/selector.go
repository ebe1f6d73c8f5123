// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// selector holds the most frequent conditions: -s, -d, -p, and the ports of -m tcp and similar matches. It has no
// pointers.
type selector struct {
	src, dst     network
	sport, dport portRange
	proto        uint8
	has, not     uint8 // sets of the bits below
}

const (
	bySrc uint8 = 1 << iota
	byDst
	byProto
	bySport
	byDport
)

// claim marks a condition as used; false where the rule has it already.
func (s *selector) claim(bit uint8, not bool) bool {
	if s.has&bit != 0 {
		return false
	}
	s.has |= bit
	if not {
		s.not |= bit
	}
	return true
}

// Run implements [netfilter.Op].
func (s *selector) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	unsure := ""
	// The first condition that fails decides. The most selective ones come first.
	if s.has&byDst != 0 {
		switch s.answer(byDst, s.dst.has(p.Dst)) {
		case no:
			return breakOff
		case maybe:
			unsure = "the packet's destination is not known"
		case yes:
		}
	}
	if s.has&byProto != 0 && s.answer(byProto, op.Is(p.Proto == s.proto)) == no {
		return breakOff
	}
	if s.has&byDport != 0 {
		switch s.answer(byDport, dportIn(c, s.dport)) {
		case no:
			return breakOff
		case maybe:
			unsure = "the packet's destination port is not known"
		case yes:
		}
	}
	if s.has&bySrc != 0 {
		switch s.answer(bySrc, s.src.has(p.Src)) {
		case no:
			return breakOff
		case maybe:
			unsure = "the packet's source address is not known"
		case yes:
		}
	}
	if s.has&bySport != 0 {
		switch s.answer(bySport, sportIn(c, s.sport)) {
		case no:
			return breakOff
		case maybe:
			unsure = "the packet's source port is not known"
		case yes:
		}
	}
	if unsure != "" {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: unsure}
	}
	return netfilter.Effect{}
}

var breakOff = netfilter.Effect{Kind: netfilter.Break}

func (s *selector) answer(bit uint8, t truth) truth {
	if s.not&bit != 0 {
		return t.Not()
	}
	return t
}

// ifaceOp is -i or -o.
type ifaceOp struct {
	pattern  string
	out, not bool
}

// Run implements [netfilter.Op].
func (o *ifaceOp) Run(c *netfilter.Context) netfilter.Effect {
	name := c.Packet.In
	if o.out {
		name = c.Packet.Out
	}
	switch t := ifaceIs(o.pattern, name); {
	case t == maybe:
		return netfilter.Effect{Kind: netfilter.Unknown, Why: "the name of the interface is not known"}
	case (t == yes) == o.not:
		return breakOff
	}
	return netfilter.Effect{}
}

// ifaceIs compares an interface with a pattern; "+" at its end matches anything. A packet without an interface has an
// empty name (ip_packet_match in net/ipv4/netfilter/ip_tables.c, nulldevname).
func ifaceIs(pattern, name string) truth {
	prefix, wild := strings.CutSuffix(pattern, "+")
	switch {
	case wild && prefix == "":
		return yes
	case name == netfilter.UnknownIface:
		return maybe
	case wild:
		return op.Is(strings.HasPrefix(name, prefix))
	}
	return op.Is(name == pattern)
}

// selectors reads the options that need no -m. A reader returns false for an unknown argument.
var selectors = map[string]func(s *ruleSpec, arg string, not bool) bool{
	"-s": func(s *ruleSpec, arg string, not bool) bool {
		n, a, ok := s.address(arg)
		if !ok || !s.sel.claim(bySrc, not) {
			return false
		}
		if s.sel.src = n; !not && n.single() {
			s.rule.Key.Src = a
		}
		return true
	},
	"-d": func(s *ruleSpec, arg string, not bool) bool {
		n, a, ok := s.address(arg)
		if !ok || !s.sel.claim(byDst, not) {
			return false
		}
		if s.sel.dst = n; !not && n.single() {
			s.rule.Key.Dst = a
		}
		return true
	},
	"-p": func(s *ruleSpec, arg string, not bool) bool {
		p, ok := op.Protocol(arg)
		if !ok || p == 0 { // "all"
			return ok && !not
		}
		if !s.sel.claim(byProto, not) {
			return false
		}
		if s.sel.proto = p; !not {
			s.proto = p
		}
		return true
	},
	"-i": func(s *ruleSpec, arg string, not bool) bool { return s.iface(ifaceOp{pattern: arg, not: not}) },
	"-o": func(s *ruleSpec, arg string, not bool) bool {
		return s.iface(ifaceOp{pattern: arg, not: not, out: true})
	},
}
