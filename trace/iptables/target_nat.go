// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// natRange is what a NAT target may translate to: one address and port, or a range of either. Zero addresses or ports keep the
// packet's.
type natRange struct {
	from, to         netip.Addr
	low, high        uint16
	base             uint16 // the port that the first of the range stands for
	hasBase, shuffle bool
}

// maxAlternatives bounds the ways that a range of destinations opens.
const maxAlternatives = 256

// natArg reads [ADDRESS[-ADDRESS]][:PORT[-PORT[/BASE]]] (extensions/libxt_NAT.c). Port 0 is nothing that iptables takes: a dump
// that has it was written, or read, by an iptables of another version, which took one revision of the kernel's structure for
// another (kubernetes/kubernetes#112477, #114537). What the kernel really holds such a dump does not tell.
func natArg(arg string) (r natRange, ok bool) {
	addrs, ports := arg, ""
	if i := strings.LastIndexByte(arg, ':'); i >= 0 && (strings.HasSuffix(arg[:i], "]") || strings.Count(arg, ":") == 1) {
		addrs, ports = arg[:i], arg[i+1:]
		if !r.ports(ports) {
			return r, false
		}
	}
	if addrs == "" {
		return r, ports != ""
	}
	if inner, ok := strings.CutPrefix(addrs, "["); ok {
		addrs = strings.TrimSuffix(inner, "]")
		addrs = strings.Replace(addrs, "]-[", "-", 1)
	}
	from, to, isRange := strings.Cut(addrs, "-")
	if !isRange {
		to = from
	}
	var err1, err2 error
	r.from, err1 = netip.ParseAddr(from)
	r.to, err2 = netip.ParseAddr(to)
	return r, err1 == nil && err2 == nil && r.from.BitLen() == r.to.BitLen() && r.from.Compare(r.to) <= 0
}

// ports reads PORT[-PORT[/BASE]].
func (r *natRange) ports(s string) (ok bool) {
	s, base, hasBase := strings.Cut(s, "/")
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	var ok1, ok2 bool
	r.low, ok1 = portNumber(low)
	r.high, ok2 = portNumber(high)
	if r.hasBase = hasBase; hasBase {
		if r.base, ok = portNumber(base); !ok {
			return false
		}
	}
	return ok1 && ok2 && 0 < r.low && r.low <= r.high
}

// single tells whether the range leaves no choice.
func (r *natRange) single() bool { return r.from == r.to && r.low == r.high }

// natTarget reads the options of a target whose range is the argument of the option to. NAT is for table nat alone: the kernel
// takes such a rule nowhere else.
func natTarget(to string, op func(s *ruleSpec, r *natRange) netfilter.Op) targetSpec {
	return func(s *ruleSpec, opts []option) (netfilter.Op, bool) {
		var r natRange
		found := to == "--to-ports"
		for i := range opts {
			o := &opts[i]
			ok := true
			switch o.name {
			case to:
				arg, _ := o.arg()
				if to == "--to-ports" {
					ok = r.low == 0 && r.ports(arg)
				} else if r, ok = natArg(arg); found {
					ok = false // kernels before 2.6.11 took several
				}
				found = true
			case "--random", "--random-fully":
				r.shuffle = true
			case "--persistent":
			default:
				ok = false
			}
			if !ok {
				return nil, false
			}
		}
		return op(s, &r), found && s.table == "nat"
	}
}

// natOp is DNAT to a single destination.
type natOp struct {
	to   netip.Addr
	port uint16
}

// Run implements [netfilter.Op].
func (n *natOp) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	if n.to.IsValid() {
		p.Dst = n.to
	}
	if n.port != 0 {
		p.DstPort = n.port
	}
	p.DNAT = true
	return netfilter.Effect{Kind: netfilter.Accept}
}

func translateDst(s *ruleSpec, r *natRange) netfilter.Op {
	if !r.single() {
		return &natSplit{*r}
	}
	if r.from.IsValid() && r.low != 0 {
		s.rule.NAT = netip.AddrPortFrom(r.from, r.low)
	}
	return s.nats.make(natOp{r.from, r.low})
}

// natSplit is DNAT to one of several destinations.
type natSplit struct{ natRange }

// Run implements [netfilter.Op]. The kernel chooses the address by a hash of the client's, over many clients all alike
// (find_best_ips_proto in net/netfilter/nf_nat_core.c).
func (n *natSplit) Run(c *netfilter.Context) netfilter.Effect {
	from, to := n.from, n.to
	if !from.IsValid() {
		from, to = c.Packet.Dst, c.Packet.Dst
	}
	var addrs []netip.Addr
	for a := from; len(addrs) <= maxAlternatives && a.Compare(to) <= 0 && a.IsValid(); a = a.Next() {
		addrs = append(addrs, a)
	}
	low, high := n.choose(c.Packet.DstPort)
	ways := len(addrs) * (int(high) - int(low) + 1)
	if ways > maxAlternatives || ways == 0 {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "it translates to any of very many destinations"}
	}
	alts := make([]netfilter.Alt, 0, ways)
	for _, a := range addrs {
		for port := low; ; port++ {
			p := *c.Packet
			p.Dst, p.DstPort, p.DNAT = a, port, true
			alts = append(alts, netfilter.Alt{P: 1 / float64(ways), Packet: p, Effect: netfilter.Effect{Kind: netfilter.Accept}})
			if port == high {
				break
			}
		}
	}
	return netfilter.Effect{Kind: netfilter.Split, Alts: alts}
}

// choose narrows the ports down. Unless it has to shuffle, the kernel keeps a destination port that is in the range, and
// takes the range's first for another, as long as no connection has the same addresses and ports (get_unique_tuple and
// nf_nat_l4proto_unique_tuple; before Linux 5.0 it counted on from the last).
func (r *natRange) choose(port uint16) (low, high uint16) {
	switch {
	case r.low == 0:
		return port, port
	case r.hasBase:
		off := port - r.base
		if size := r.high - r.low + 1; size != 0 { // 0 is all 65536
			off %= size
		}
		return r.low + off, r.low + off
	case r.shuffle:
		return r.low, r.high
	case r.low <= port && port <= r.high:
		return port, port
	}
	return r.low, r.low
}

// translateSrc is SNAT. Which port the client gets is not known; nor which address of several.
func translateSrc(_ *ruleSpec, r *natRange) netfilter.Op {
	from, several := r.from, r.from != r.to
	return acceptAfter(func(c *netfilter.Context) {
		p := c.Packet
		p.SNAT, p.SrcPort = true, 0
		switch {
		case several:
			p.Src = netip.Addr{}
		case from.IsValid():
			p.Src = from
		}
	})
}

// masquerade is MASQUERADE (net/netfilter/nf_nat_masquerade.c).
func masquerade(*ruleSpec, *natRange) netfilter.Op {
	return acceptAfter(func(c *netfilter.Context) {
		p := c.Packet
		p.SNAT, p.SrcPort = true, 0
		near := p.Dst
		r, ok, _ := c.Host.Route(p.Dst)
		if ok && r.Gateway.IsValid() {
			near = r.Gateway
		}
		p.Src = netip.Addr{}
		if ok && p.Out != "" && p.Out != netfilter.UnknownIface {
			p.Src = c.Host.MasqueradeAddress(p.Out, near)
		}
	})
}

// redirectOp is REDIRECT (net/netfilter/nf_nat_redirect.c).
type redirectOp struct{ natRange }

func redirect(_ *ruleSpec, r *natRange) netfilter.Op { return &redirectOp{*r} }

// Run implements [netfilter.Op].
func (r *redirectOp) Run(c *netfilter.Context) netfilter.Effect {
	p, dev := c.Packet, c.Packet.In
	if c.Hook == netfilter.Output {
		dev = "lo"
	}
	to := netip.Addr{}
	if dev != "" && dev != netfilter.UnknownIface {
		to = c.Host.RedirectAddress(dev, p.Family == netfilter.IPv4)
	}
	if !to.IsValid() {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "the address of the incoming interface is not known"}
	}
	s := natSplit{r.natRange}
	s.from, s.to = to, to
	if s.low, s.high = r.choose(p.DstPort); s.low == s.high {
		return (&natOp{to, s.low}).Run(c)
	}
	return s.Run(c)
}

func netmap(s *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) != 1 || opts[0].name != "--to" || s.table != "nat" {
		return nil, false
	}
	arg, _ := opts[0].arg()
	n, _, ok := readNetwork(arg)
	return &mapOp{n}, ok
}

// mapOp is NETMAP: the network's bits are replaced, the others kept (net/netfilter/xt_NETMAP.c).
type mapOp struct{ network }

// Run implements [netfilter.Op].
func (m *mapOp) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	if c.Hook == netfilter.Postrouting || c.Hook == netfilter.Input {
		p.SNAT, p.SrcPort = true, 0
		if p.Src.IsValid() {
			p.Src = m.apply(p.Src)
		}
	} else {
		p.DNAT, p.Dst = true, m.apply(p.Dst)
	}
	return netfilter.Effect{Kind: netfilter.Accept}
}
