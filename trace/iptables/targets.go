// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// targetSpec makes an op of a target's options; nil is one that does nothing to the packet.
type targetSpec func(s *ruleSpec, opts []option) (netfilter.Op, bool)

// verdictOp is a target that only decides.
type verdictOp struct {
	kind netfilter.Kind
	why  string
}

// Run implements [netfilter.Op].
func (v *verdictOp) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: v.kind, Why: v.why}
}

func verdict(k netfilter.Kind, why string) targetSpec {
	op := &verdictOp{k, why}
	return func(*ruleSpec, []option) (netfilter.Op, bool) { return op, true }
}

func nothing(*ruleSpec, []option) (netfilter.Op, bool) { return nil, true }

// action is a target that changes the packet and goes on.
type action func(p *netfilter.Packet)

// Run implements [netfilter.Op].
func (a action) Run(c *netfilter.Context) netfilter.Effect {
	a(c.Packet)
	return netfilter.Effect{}
}

var targets = map[string]targetSpec{
	"ACCEPT": verdict(netfilter.Accept, ""), "DROP": verdict(netfilter.Drop, ""), "REJECT": verdict(netfilter.Reject, ""),
	"RETURN": verdict(netfilter.Return, ""), "QUEUE": verdict(netfilter.Queue, "a process on the node decides (QUEUE)"),
	"NFQUEUE":  verdict(netfilter.Queue, "a process on the node decides (NFQUEUE)"),
	"SYNPROXY": verdict(netfilter.Stolen, "SYNPROXY answers in the server's place"),
	"LOG":      nothing, "NFLOG": nothing, "ULOG": nothing, "TRACE": nothing, "TCPMSS": nothing, "TCPOPTSTRIP": nothing, "CHECKSUM": nothing, "AUDIT": nothing,
	"CLASSIFY": nothing, "DSCP": nothing, "TOS": nothing, "TTL": nothing, "HL": nothing, "TEE": nothing, "IDLETIMER": nothing, "LED": nothing,
	"RATEEST": nothing, "SECMARK": nothing, "CONNSECMARK": nothing, "SET": nothing,
	"MARK": mark, "CONNMARK": connmark, "CT": ct, "NOTRACK": notrack,
	"DNAT": dnat, "SNAT": snat, "MASQUERADE": masquerade, "REDIRECT": redirect, "NETMAP": netmap, "TPROXY": tproxy,
}

func markOp(change func(old, v, m uint32) uint32, v, m uint32, of func(p *netfilter.Packet) *uint32) netfilter.Op {
	return action(func(p *netfilter.Packet) { x := of(p); *x = change(*x, v, m) })
}

func skbMark(p *netfilter.Packet) *uint32 { return &p.Mark }
func ctMark(p *netfilter.Packet) *uint32  { return &p.CTMark }

// markForms: every form is a value and a mask (net/netfilter/xt_mark.c: mark = (mark & ~mask) ^ value).
func markForms(o *option, of func(p *netfilter.Packet) *uint32) (netfilter.Op, bool) {
	arg, _ := o.arg()
	v, m, ok := valueMask(arg)
	xset := func(old, v, m uint32) uint32 { return old&^m ^ v }
	switch o.name {
	case "--set-xmark":
	case "--set-mark":
		m |= v
	case "--and-mark":
		m, v = ^v, 0
	case "--or-mark":
		m = v
	case "--xor-mark":
		m = 0
	default:
		return nil, false
	}
	return markOp(xset, v, m, of), ok
}

func mark(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) != 1 {
		return nil, false
	}
	return markForms(&opts[0], skbMark)
}

func connmark(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) == 0 {
		return nil, false
	}
	nf, ct := ^uint32(0), ^uint32(0)
	for i := range opts[1:] {
		o := &opts[1+i]
		arg, _ := o.arg()
		v, _, ok := valueMask(arg)
		if !ok {
			return nil, false
		}
		switch o.name {
		case "--nfmask":
			nf = v
		case "--ctmask":
			ct = v
		case "--mask":
			nf, ct = v, v
		default:
			return nil, false
		}
	}
	switch opts[0].name {
	case "--save-mark":
		return action(func(p *netfilter.Packet) { p.CTMark = p.CTMark&^ct ^ p.Mark&nf }), true
	case "--restore-mark":
		return action(func(p *netfilter.Packet) { p.Mark = p.Mark&^nf ^ p.CTMark&ct }), true
	}
	return markForms(&opts[0], ctMark)
}

func notrack(*ruleSpec, []option) (netfilter.Op, bool) {
	return action(func(p *netfilter.Packet) { p.Untracked = true }), true
}

func ct(s *ruleSpec, opts []option) (netfilter.Op, bool) {
	for i := range opts {
		switch opts[i].name {
		case "--notrack":
			return notrack(s, nil)
		case "--helper", "--zone", "--zone-orig", "--zone-reply", "--timeout", "--ctevents", "--expevents":
		default:
			return nil, false
		}
	}
	return nil, true
}

// natRange is what a NAT target may translate to: one address and port, or a range of either. Zero addresses or ports keep the
// packet's.
type natRange struct {
	from, to  netip.Addr
	low, high uint16
}

// maxAlternatives bounds the ways that a range of destinations opens.
const maxAlternatives = 256

// natArg reads [address[-address]][:port[-port]] (extensions/libxt_NAT.c). Port 0 is nothing that iptables takes: a dump that
// has it was written, or read, by an iptables of another version (kubernetes/kubernetes#114537).
func natArg(arg string) (r natRange, ok bool) {
	addrs, ports := arg, ""
	if i := strings.LastIndexByte(arg, ':'); i >= 0 && (strings.HasPrefix(arg, "[") && strings.HasSuffix(arg[:i], "]") || strings.Count(arg, ":") == 1) {
		addrs, ports = arg[:i], arg[i+1:]
		if r.low, r.high, ok = portPair(ports); !ok {
			return r, false
		}
	}
	if addrs == "" {
		return r, ports != ""
	}
	from, to, isRange := strings.Cut(strings.Trim(addrs, "[]"), "-")
	if !isRange {
		to = from
	}
	var err1, err2 error
	r.from, err1 = netip.ParseAddr(from)
	r.to, err2 = netip.ParseAddr(to)
	return r, err1 == nil && err2 == nil && r.from.BitLen() == r.to.BitLen() && !r.to.Less(r.from)
}

func portPair(s string) (low, high uint16, ok bool) {
	a, b, isRange := strings.Cut(s, "-")
	if !isRange {
		b = a
	}
	x, err1 := strconv.ParseUint(a, 10, 16)
	y, err2 := strconv.ParseUint(b, 10, 16)
	return uint16(x), uint16(y), err1 == nil && err2 == nil && 0 < x && x <= y
}

// natOp sets a single destination.
type natOp struct{ natRange }

// Run implements [netfilter.Op].
func (n *natOp) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	if n.from.IsValid() {
		p.Dst = n.from
	}
	if n.low != 0 {
		p.DstPort = n.low
	}
	p.DNAT = true
	return netfilter.Effect{Kind: netfilter.Accept}
}

// natSplit sets one of several destinations. The kernel chooses the address by a hash, over many clients all alike
// (net/netfilter/nf_nat_core.c, find_best_ips_proto), and keeps the packet's port if that is in the range (get_unique_tuple).
type natSplit struct{ natRange }

// Run implements [netfilter.Op].
func (n *natSplit) Run(c *netfilter.Context) netfilter.Effect {
	var addrs []netip.Addr
	if !n.from.IsValid() {
		addrs = []netip.Addr{c.Packet.Dst}
	} else {
		for a := n.from; len(addrs) <= maxAlternatives; a = a.Next() {
			addrs = append(addrs, a)
			if a == n.to {
				break
			}
		}
	}
	low, high := n.low, n.high
	if low == 0 || low <= c.Packet.DstPort && c.Packet.DstPort <= high {
		low, high = c.Packet.DstPort, c.Packet.DstPort
	}
	ways := len(addrs) * (int(high) - int(low) + 1)
	if ways > maxAlternatives {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: "it translates to any of very many destinations"}
	}
	alts := make([]netfilter.Alt, 0, ways)
	for _, a := range addrs {
		for port := int(low); port <= int(high); port++ {
			p := *c.Packet
			p.Dst, p.DstPort, p.DNAT = a, uint16(port), true //nolint:gosec // low and high are ports
			alts = append(alts, netfilter.Alt{P: 1 / float64(ways), Packet: p, Effect: netfilter.Effect{Kind: netfilter.Accept}})
		}
	}
	return netfilter.Effect{Kind: netfilter.Split, Alts: alts}
}

func dnat(s *ruleSpec, opts []option) (netfilter.Op, bool) {
	var op netfilter.Op
	for i := range opts {
		switch o := &opts[i]; o.name {
		case "--to-destination":
			arg, _ := o.arg()
			r, ok := natArg(arg)
			if !ok || op != nil {
				return nil, false
			}
			if r.from != r.to || r.low != r.high {
				op = &natSplit{r}
				continue
			}
			op = &natOp{r}
			if r.from.IsValid() && r.low != 0 {
				s.rule.NAT = netip.AddrPortFrom(r.from, r.low)
			}
		case "--random", "--persistent":
		default:
			return nil, false
		}
	}
	return op, op != nil
}

func snat(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	var to netip.Addr
	for i := range opts {
		switch o := &opts[i]; o.name {
		case "--to-source":
			arg, _ := o.arg()
			r, ok := natArg(arg)
			if !ok {
				return nil, false
			}
			to = r.from // of a range, any will do: nothing behind asks for it
		case "--random", "--random-fully", "--persistent":
		default:
			return nil, false
		}
	}
	return acceptAfter(func(p *netfilter.Packet) {
		if to.IsValid() {
			p.Src = to
		}
		p.SNAT = true
	}), true
}

// acceptAfter is a NAT target: it ends the chain.
type acceptAfter func(p *netfilter.Packet)

// Run implements [netfilter.Op].
func (a acceptAfter) Run(c *netfilter.Context) netfilter.Effect {
	a(c.Packet)
	return netfilter.Effect{Kind: netfilter.Accept}
}

func masquerade(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	for i := range opts {
		switch opts[i].name {
		case "--random", "--random-fully", "--to-ports":
		default:
			return nil, false
		}
	}
	return acceptAfter(func(p *netfilter.Packet) { p.SNAT = true }), true
}

type redirectOp struct{ port uint16 }

// Run implements [netfilter.Op] (net/netfilter/nf_nat_redirect.c).
func (r *redirectOp) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	switch {
	case p.Local && p.Family == netfilter.IPv4:
		p.Dst = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case p.Local:
		p.Dst = netip.IPv6Loopback()
	default:
		a := c.Host.PrimaryAddress(p.In, p.Family == netfilter.IPv4)
		if !a.IsValid() {
			return netfilter.Effect{Kind: netfilter.Opaque, Why: "the address of the incoming interface is not known"}
		}
		p.Dst = a
	}
	if r.port != 0 {
		p.DstPort = r.port
	}
	p.DNAT = true
	return netfilter.Effect{Kind: netfilter.Accept}
}

func redirect(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	r := &redirectOp{}
	for i := range opts {
		switch o := &opts[i]; o.name {
		case "--to-ports":
			arg, _ := o.arg()
			n, err := strconv.ParseUint(arg, 10, 16)
			if err != nil {
				return nil, false
			}
			r.port = uint16(n)
		case "--random":
		default:
			return nil, false
		}
	}
	return r, true
}

func netmap(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	if len(opts) != 1 || opts[0].name != "--to" {
		return nil, false
	}
	arg, _ := opts[0].arg()
	to, ok := prefix(arg)
	return mapOp(to), ok
}

type mapOp netip.Prefix

// Run implements [netfilter.Op]: the host part is kept, the network part replaced (net/netfilter/xt_NETMAP.c).
func (m mapOp) Run(c *netfilter.Context) netfilter.Effect {
	p, to := c.Packet, netip.Prefix(m)
	of := &p.Dst
	if c.Hook == netfilter.Postrouting || c.Hook == netfilter.Input {
		of = &p.Src
		p.SNAT = true
	} else {
		p.DNAT = true
	}
	a, n := of.AsSlice(), to.Addr().AsSlice()
	if len(a) != len(n) {
		return netfilter.Effect{Kind: netfilter.Break}
	}
	for i := range a {
		mask := byte(0xff)
		if free := 8*(i+1) - to.Bits(); free > 0 {
			mask = byte(0xff << min(free, 8))
		}
		a[i] = n[i]&mask | a[i]&^mask
	}
	*of, _ = netip.AddrFromSlice(a)
	return netfilter.Effect{Kind: netfilter.Accept}
}

func tproxy(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	var port uint16
	var v, m uint32
	for i := range opts {
		arg, _ := opts[i].arg()
		switch opts[i].name {
		case "--on-port":
			n, err := strconv.ParseUint(arg, 10, 16)
			if err != nil {
				return nil, false
			}
			port = uint16(n)
		case "--tproxy-mark":
			var ok bool
			if v, m, ok = valueMask(arg); !ok {
				return nil, false
			}
		case "--on-ip":
		default:
			return nil, false
		}
	}
	return acceptAfter(func(p *netfilter.Packet) { p.TProxy, p.Mark = port, p.Mark&^m^v }), port != 0
}
