// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// truth is a condition's answer.
type truth uint8

const (
	no truth = iota
	yes
	maybe // the snapshot, or the walk's packet, does not tell
)

func is(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (t truth) not() truth {
	switch t {
	case no:
		return yes
	case yes:
		return no
	case maybe:
	}
	return maybe
}

// cond asks one thing of the packet.
type cond func(c *netfilter.Context) truth

// oneCondition is an op made of one condition, as most are.
type oneCondition struct {
	f   cond
	why string // for an answer of maybe
}

// Run implements [netfilter.Op].
func (x *oneCondition) Run(c *netfilter.Context) netfilter.Effect {
	switch x.f(c) {
	case no:
		return netfilter.Effect{Kind: netfilter.Break}
	case maybe:
		return netfilter.Effect{Kind: netfilter.Unknown, Why: "the snapshot does not tell: " + x.why}
	case yes:
	}
	return netfilter.Effect{}
}

// condition is an op made of conditions that have to hold all.
type condition struct {
	conds []cond
	why   string // for an answer of maybe
}

// Run implements [netfilter.Op].
func (x *condition) Run(c *netfilter.Context) netfilter.Effect {
	unsure := false
	for _, f := range x.conds {
		switch f(c) {
		case no:
			return netfilter.Effect{Kind: netfilter.Break}
		case maybe:
			unsure = true
		case yes:
		}
	}
	if unsure {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: "the snapshot does not tell: " + x.why}
	}
	return netfilter.Effect{}
}

// unknownMatch is a match that is not known, or that depends on what no snapshot holds.
type unknownMatch string

// Run implements [netfilter.Op].
func (u unknownMatch) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Unknown, Why: string(u)}
}

// never is a match that no first packet satisfies.
var never netfilter.Op = &condition{conds: []cond{func(*netfilter.Context) truth { return no }}}

// selector holds the conditions that need no -m, of which nearly every rule has some.
type selector struct {
	src, dst       netip.Prefix
	in, out        string
	proto          uint8
	hasProto       bool
	notSrc, notDst bool
	notIn, notOut  bool
	notProto       bool
}

// Run implements [netfilter.Op].
func (s *selector) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	if s.dst.IsValid() && s.dst.Contains(p.Dst) == s.notDst || s.src.IsValid() && s.src.Contains(p.Src) == s.notSrc ||
		s.hasProto && (s.proto == p.Proto) == s.notProto {
		return netfilter.Effect{Kind: netfilter.Break}
	}
	unsure := false
	for _, x := range [...]struct {
		pattern, name string
		not           bool
	}{{s.in, p.In, s.notIn}, {s.out, p.Out, s.notOut}} {
		if x.pattern == "" {
			continue
		}
		switch t := ifaceIs(x.pattern, x.name); {
		case t == maybe:
			unsure = true
		case (t == yes) == x.not:
			return netfilter.Effect{Kind: netfilter.Break}
		}
	}
	if unsure {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: "the name of the interface is not known"}
	}
	return netfilter.Effect{}
}

// ifaceIs compares an interface with a pattern; "+" at its end stands for anything (net/netfilter/x_tables, ifname_compare).
func ifaceIs(pattern, name string) truth {
	prefix, wild := strings.CutSuffix(pattern, "+")
	switch {
	case wild && prefix == "":
		return yes
	case name == netfilter.UnknownIface:
		return maybe
	case wild:
		return is(strings.HasPrefix(name, prefix))
	}
	return is(name == pattern)
}

// selectors reads the options that need no -m. A reader returns false for an argument that it does not understand.
var selectors = map[string]func(s *ruleSpec, arg string, not bool) bool{
	"-s": func(s *ruleSpec, arg string, not bool) bool {
		p, ok := prefix(arg)
		s.sel.src, s.sel.notSrc = p, not
		if !not {
			s.rule.Key.Src = single(p)
		}
		return ok
	},
	"-d": func(s *ruleSpec, arg string, not bool) bool {
		p, ok := prefix(arg)
		s.sel.dst, s.sel.notDst = p, not
		if !not {
			s.rule.Key.Dst = single(p)
		}
		return ok
	},
	"-i": func(s *ruleSpec, arg string, not bool) bool { s.sel.in, s.sel.notIn = arg, not; return true },
	"-o": func(s *ruleSpec, arg string, not bool) bool { s.sel.out, s.sel.notOut = arg, not; return true },
	"-p": func(s *ruleSpec, arg string, not bool) bool {
		p, ok := protocol(arg)
		if !ok || p == 0 { // "all"
			return ok && !not
		}
		s.sel.proto, s.sel.hasProto, s.sel.notProto = p, true, not
		if !not {
			s.proto = p
		}
		return true
	},
}

// prefix reads an address or prefix; a mask that is no prefix is not understood.
func prefix(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		return netip.PrefixFrom(a, a.BitLen()), err == nil
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil
}

// protocols are the names that iptables prints (libxtables/xtables.c, xtables_chain_protos).
var protocols = map[string]uint8{
	"all": 0, "tcp": netfilter.TCP, "udp": netfilter.UDP, "udplite": netfilter.UDPLite, "icmp": netfilter.ICMP,
	"ipv6-icmp": netfilter.ICMPv6, "icmpv6": netfilter.ICMPv6, "esp": netfilter.ESP, "ah": netfilter.AH,
	"sctp": netfilter.SCTP, "dccp": netfilter.DCCP, "igmp": 2, "ipencap": 4, "gre": 47, "ospf": 89, "vrrp": 112, "mh": 135, "ipv6-mh": 135, "l2tp": 115, "pim": 103,
}

func protocol(s string) (uint8, bool) {
	if p, ok := protocols[s]; ok {
		return p, true
	}
	n, err := strconv.ParseUint(s, 10, 8)
	return uint8(n), err == nil
}

// portRange is min:max.
type portRange struct{ lo, hi uint16 }

func ports(s string) (portRange, bool) {
	lo, hi, isRange := strings.Cut(s, ":")
	if !isRange {
		hi = lo
	}
	if lo == "" {
		lo = "0"
	}
	if hi == "" {
		hi = "65535"
	}
	a, err1 := strconv.ParseUint(lo, 10, 16)
	b, err2 := strconv.ParseUint(hi, 10, 16)
	return portRange{uint16(a), uint16(b)}, err1 == nil && err2 == nil
}

func (r portRange) has(p uint16) truth { return is(r.lo <= p && p <= r.hi) }

// hasSource is has for a source port, of which only is known that it is one when the packet says 0.
func (r portRange) hasSource(p uint16) truth {
	switch {
	case p != 0:
		return r.has(p)
	case r.lo <= 1 && r.hi == 65535:
		return yes
	}
	return maybe
}

// valueMask reads value[/mask] of a mark.
func valueMask(s string) (value, mask uint32, ok bool) {
	v, m, has := strings.Cut(s, "/")
	a, err := strconv.ParseUint(v, 0, 32)
	if err != nil {
		return 0, 0, false
	}
	b := uint64(1<<32 - 1)
	if has {
		if b, err = strconv.ParseUint(m, 0, 32); err != nil {
			return 0, 0, false
		}
	}
	return uint32(a), uint32(b), true
}

// opaqueTarget is a target that is not known.
type opaqueTarget string

// Run implements [netfilter.Op].
func (o opaqueTarget) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Opaque, Why: string(o)}
}
