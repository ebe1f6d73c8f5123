// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// reader makes a condition of an option. It returns false for arguments that it does not understand.
type reader func(s *ruleSpec, o *option) (cond, bool)

// matchSpec is what is known of a match.
type matchSpec struct {
	proto   uint8             // the packet's protocol, where the match is for one only
	options map[string]reader // an option that is not here is not understood
	whole   func(s *ruleSpec, opts []option) (netfilter.Op, bool)
	skip    func(s *ruleSpec, i int) (end int, ok bool) // for a match that is always true: where it ends
	depends string                                      // on what its answer depends, for one that is never known
}

// compile makes an op of a match's options. nil is a match that is always true.
func (m *matchSpec) compile(s *ruleSpec, opts []option, from, to int) (netfilter.Op, bool) {
	if m.whole != nil {
		return m.whole(s, opts)
	}
	if m.depends != "" {
		return unknownMatch("it depends on " + m.depends), true
	}
	var conds []cond
	if m.proto != 0 && m.proto != s.proto {
		conds = append(conds, func(c *netfilter.Context) truth { return is(c.Packet.Proto == m.proto) })
	}
	for i := range opts {
		o := &opts[i]
		read := m.options[o.name]
		if read == nil {
			return nil, false
		}
		f, ok := read(s, o)
		if !ok {
			return nil, false
		}
		if o.not {
			plain := f
			f = func(c *netfilter.Context) truth { return plain(c).not() }
		}
		conds = append(conds, f)
	}
	switch len(conds) {
	case 0:
		return nil, true
	case 1:
		return &oneCondition{conds[0], s.quote(from, to)}, true
	}
	return &condition{conds, s.quote(from, to)}, true
}

// needs gives a match whose answer is not in the snapshot.
func needs(what string) matchSpec { return matchSpec{depends: what} }

func flag(f cond) reader {
	return func(_ *ruleSpec, o *option) (cond, bool) { return f, len(o.args) == 0 }
}

func withArg(of func(arg string) (cond, bool)) reader {
	return func(_ *ruleSpec, o *option) (cond, bool) {
		arg, ok := o.arg()
		if !ok {
			return nil, false
		}
		return of(arg)
	}
}

func always(*netfilter.Context) truth { return yes }

// skipTo ends a match that is always true, such as a comment, at the next -m, -j or -g.
func skipTo(s *ruleSpec, i int) (int, bool) {
	for ; i < len(s.words); i++ {
		if w := s.words[i]; !w.quoted && (isNext(w.text) || w.text == "!") {
			break
		}
	}
	return i, true
}

func sport(_ *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	r, ok2 := ports(arg)
	return func(c *netfilter.Context) truth { return r.hasSource(c.Packet.SrcPort) }, ok && ok2
}

func dport(s *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	r, ok2 := ports(arg)
	if !o.not && r.lo == r.hi && s.proto != 0 && s.rule.Key.DstPort == 0 {
		s.rule.Key.Proto, s.rule.Key.DstPort = s.proto, r.lo
	}
	return func(c *netfilter.Context) truth { return r.has(c.Packet.DstPort) }, ok && ok2
}

func withPorts(proto uint8, more map[string]reader) matchSpec {
	o := map[string]reader{"--sport": sport, "--dport": dport}
	maps.Copy(o, more)
	return matchSpec{proto: proto, options: o}
}

// matches are all that are known. The first packet of a connection is a TCP SYN, an SCTP INIT or a datagram; it is unicast,
// and no fragment.
var matches = map[string]matchSpec{
	"comment": {skip: skipTo}, "nfacct": {skip: skipTo}, // net/netfilter/xt_nfacct.c only counts
	"tcp": withPorts(netfilter.TCP, map[string]reader{
		"--tcp-flags": func(_ *ruleSpec, o *option) (cond, bool) {
			if len(o.args) != 2 {
				return nil, false
			}
			m := o.args[0].text == "ALL" || slices.Contains(strings.Split(o.args[0].text, ","), "SYN")
			want := o.args[1].text
			return func(*netfilter.Context) truth { return is(m && want == "SYN" || !m && want == "NONE") }, true
		},
		"--syn": flag(always),
	}),
	"udp": withPorts(netfilter.UDP, nil), "udplite": withPorts(netfilter.UDPLite, nil), "dccp": withPorts(netfilter.DCCP, nil),
	"sctp":  withPorts(netfilter.SCTP, nil),
	"icmp":  {whole: otherProtocol(netfilter.ICMP)},
	"icmp6": {whole: otherProtocol(netfilter.ICMPv6)}, "icmpv6": {whole: otherProtocol(netfilter.ICMPv6)},
	"esp": {whole: otherProtocol(netfilter.ESP)}, "ah": {whole: otherProtocol(netfilter.AH)},
	"mark": {options: map[string]reader{"--mark": func(_ *ruleSpec, o *option) (cond, bool) {
		arg, _ := o.arg()
		v, m, ok := valueMask(arg)
		return func(c *netfilter.Context) truth { return is(c.Packet.Mark&m == v) }, ok
	}}},
	"connmark": {options: map[string]reader{"--mark": func(_ *ruleSpec, o *option) (cond, bool) {
		arg, _ := o.arg()
		v, m, ok := valueMask(arg)
		return func(c *netfilter.Context) truth { return is(c.Packet.CTMark&m == v) }, ok
	}}},
	"state": {options: map[string]reader{"--state": ctstate}},
	"conntrack": {options: map[string]reader{"--ctstate": ctstate, "--ctdir": withArg(func(a string) (cond, bool) {
		return func(*netfilter.Context) truth { return is(a == "ORIGINAL") }, true
	}), "--ctorigdst": addrOf(func(p *netfilter.Packet) netip.Addr { return p.OrigDst }), "--ctorigsrc": addrOf(func(p *netfilter.Packet) netip.Addr { return p.OrigSrc })}},
	"addrtype": {options: map[string]reader{
		"--src-type": addrType(func(p *netfilter.Packet) netip.Addr { return p.Src }),
		"--dst-type": addrType(func(p *netfilter.Packet) netip.Addr { return p.Dst }),
	}},
	"multiport": {options: map[string]reader{
		"--dports": portList(func(c *netfilter.Context, r portRange) truth { return r.has(c.Packet.DstPort) }),
		"--sports": portList(func(c *netfilter.Context, r portRange) truth { return r.hasSource(c.Packet.SrcPort) }),
	}},
	"statistic": {whole: statistic}, "recent": {whole: recent}, "set": {options: map[string]reader{"--match-set": matchSet, "--return-nomatch": flag(always)}},
	"iprange": {options: map[string]reader{
		"--src-range": ipRange(func(p *netfilter.Packet) netip.Addr { return p.Src }),
		"--dst-range": ipRange(func(p *netfilter.Packet) netip.Addr { return p.Dst }),
	}},
	"pkttype": {options: map[string]reader{"--pkt-type": withArg(func(a string) (cond, bool) { return func(*netfilter.Context) truth { return is(a == "unicast") }, true })}},
	"limit":   needs("how many packets came before"), "hashlimit": needs("how many packets came before"),
	"physdev": needs("the bridge port"), "mac": needs("the sender's MAC address"), "owner": needs("the sending process"),
	"cgroup": needs("the sending process"), "socket": needs("the node's sockets"), "length": needs("the packet's length"),
	"ttl": needs("the packet's TTL"), "hl": needs("the packet's hop limit"), "u32": needs("the packet's bytes"),
	"bpf": needs("the packet's bytes"), "string": needs("the packet's bytes"), "time": needs("the time"), "quota": needs("how many bytes came before"),
	"connlimit": needs("how many connections there are"), "connbytes": needs("how many bytes came before"), "connlabel": needs("the connection's label"),
	"rpfilter": needs("the reverse route"), "policy": needs("IPsec policies"), "dscp": needs("the packet's DSCP"), "tos": needs("the packet's TOS"),
	"helper": needs("the connection's helper"), "cluster": needs("a hash"), "cpu": needs("the CPU"), "devgroup": needs("interface groups"), "realm": needs("routing realms"),
}

// otherProtocol is a match for a protocol that no Service has: false for every other, and not followed for that one.
func otherProtocol(p uint8) func(s *ruleSpec, opts []option) (netfilter.Op, bool) {
	return func(*ruleSpec, []option) (netfilter.Op, bool) {
		return &condition{why: "a header that the walk's packet does not have", conds: []cond{func(c *netfilter.Context) truth {
			if c.Packet.Proto != p {
				return no
			}
			return maybe
		}}}, true
	}
}

// ctstate: the first packet is NEW, or UNTRACKED; a translation settled on the way adds DNAT or SNAT (net/netfilter/xt_conntrack.c).
func ctstate(_ *ruleSpec, o *option) (cond, bool) {
	arg, ok := o.arg()
	var isNew, untracked, dnat, snat bool
	for s := range strings.SplitSeq(arg, ",") {
		switch s {
		case "NEW":
			isNew = true
		case "UNTRACKED":
			untracked = true
		case "DNAT":
			dnat = true
		case "SNAT":
			snat = true
		case "RELATED", "ESTABLISHED", "INVALID":
		default:
			return nil, false
		}
	}
	return func(c *netfilter.Context) truth {
		p := c.Packet
		if p.Untracked {
			return is(untracked)
		}
		return is(isNew || dnat && p.DNAT || snat && p.SNAT)
	}, ok
}

func addrOf(of func(*netfilter.Packet) netip.Addr) reader {
	return withArg(func(a string) (cond, bool) {
		p, ok := prefix(a)
		return func(c *netfilter.Context) truth { return is(p.Contains(of(c.Packet))) }, ok
	})
}

var addrTypes = map[string]host.RouteType{
	"LOCAL": host.RouteLocal, "UNICAST": host.RouteUnicast, "BROADCAST": host.RouteBroadcast, "MULTICAST": host.RouteMulticast,
	"BLACKHOLE": host.RouteBlackhole, "UNREACHABLE": host.RouteUnreachable, "PROHIBIT": host.RouteProhibit,
}

func addrType(of func(*netfilter.Packet) netip.Addr) reader {
	return withArg(func(arg string) (cond, bool) {
		var types []host.RouteType
		for s := range strings.SplitSeq(arg, ",") {
			t, ok := addrTypes[s]
			if !ok {
				return nil, false
			}
			types = append(types, t)
		}
		if len(types) == 1 && types[0] == host.RouteLocal {
			return func(c *netfilter.Context) truth {
				local, known := c.Host.Local(of(c.Packet))
				if !known {
					return maybe
				}
				return is(local)
			}, true
		}
		return func(c *netfilter.Context) truth {
			t, known := c.Host.AddrType(of(c.Packet))
			if !known {
				return maybe
			}
			return is(slices.Contains(types, t))
		}, true
	})
}

func portList(has func(c *netfilter.Context, r portRange) truth) reader {
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
				switch has(c, r) {
				case yes:
					return yes
				case maybe:
					answer = maybe
				case no:
				}
			}
			return answer
		}, true
	})
}

func ipRange(of func(*netfilter.Packet) netip.Addr) reader {
	return withArg(func(arg string) (cond, bool) {
		lo, hi, isRange := strings.Cut(arg, "-")
		if !isRange {
			hi = lo
		}
		a, err1 := netip.ParseAddr(lo)
		b, err2 := netip.ParseAddr(hi)
		return func(c *netfilter.Context) truth { x := of(c.Packet); return is(a.Compare(x) <= 0 && x.Compare(b) <= 0) }, err1 == nil && err2 == nil
	})
}

type chanceOp float64

// Run implements [netfilter.Op].
func (p chanceOp) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Chance, P: float64(p)}
}

// statistic: random with its probability; nth with the share that it comes to over many connections.
func statistic(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	p, not := -1.0, false
	for i := range opts {
		arg, ok := opts[i].arg()
		switch opts[i].name {
		case "--mode":
			continue
		case "--probability":
			v, err := strconv.ParseFloat(arg, 64)
			if !ok || err != nil || v < 0 || v > 1 {
				return nil, false
			}
			p = v
		case "--every":
			n, err := strconv.ParseUint(arg, 10, 32)
			if !ok || err != nil || n == 0 {
				return nil, false
			}
			p = 1 / float64(n)
		case "--packet":
			continue
		default:
			return nil, false
		}
		not = not || opts[i].not
	}
	if p < 0 {
		return nil, false
	}
	if not {
		p = 1 - p
	}
	return chanceOp(p), true
}

// recentOp is net/netfilter/xt_recent.c for the lists that the walk answers for.
type recentOp struct {
	name     string
	set, not bool
	counted  bool
}

// Run implements [netfilter.Op].
func (r *recentOp) Run(c *netfilter.Context) netfilter.Effect {
	if r.set {
		if !strings.Contains(" "+c.Packet.Recent, " "+r.name+" ") {
			c.Packet.Recent += r.name + " "
		}
		if r.not {
			return netfilter.Effect{Kind: netfilter.Break}
		}
		return netfilter.Effect{}
	}
	listed, known := c.Recent(r.name)
	if !known || listed && r.counted {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: "who is in the list " + r.name + " is not known"}
	}
	if listed == r.not {
		return netfilter.Effect{Kind: netfilter.Break}
	}
	return netfilter.Effect{}
}

func recent(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	r := &recentOp{name: "DEFAULT"}
	mode := false
	for i := range opts {
		o := &opts[i]
		switch o.name {
		case "--set":
			r.set, r.not, mode = true, o.not, true
		case "--rcheck", "--update", "--remove":
			r.not, mode = o.not, true
		case "--name":
			r.name, _ = o.arg()
		case "--hitcount", "--rttl":
			r.counted = true
		case "--rdest":
			return nil, false
		case "--seconds", "--reap", "--mask", "--rsource":
		default:
			return nil, false
		}
	}
	return r, mode
}

func matchSet(_ *ruleSpec, o *option) (cond, bool) {
	if len(o.args) != 2 {
		return nil, false
	}
	name, flags := o.args[0].text, strings.Split(o.args[1].text, ",")
	return func(c *netfilter.Context) truth {
		if c.Sets == nil {
			return maybe
		}
		in, known, _ := c.Sets.Match(c, name, flags)
		if !known {
			return maybe
		}
		return is(in)
	}, true
}
