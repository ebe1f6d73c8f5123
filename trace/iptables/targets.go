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

// natOp sets a destination; the zero address or port keeps the packet's.
type natOp struct{ to netip.AddrPort }

// Run implements [netfilter.Op].
func (n *natOp) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	if n.to.Addr().IsValid() {
		p.Dst = n.to.Addr()
	}
	if n.to.Port() != 0 {
		p.DstPort = n.to.Port()
	}
	p.DNAT = true
	return netfilter.Effect{Kind: netfilter.Accept}
}

// natArg reads [address[-address]][:port[-port]] for a single address and port.
func natArg(arg string) (to netip.AddrPort, ok bool) {
	if ap, err := netip.ParseAddrPort(arg); err == nil {
		return ap, ap.Port() != 0
	}
	if a, err := netip.ParseAddr(strings.Trim(arg, "[]")); err == nil {
		return netip.AddrPortFrom(a, 0), true
	}
	if p, cut := strings.CutPrefix(arg, ":"); cut {
		n, err := strconv.ParseUint(p, 10, 16)
		return netip.AddrPortFrom(netip.Addr{}, uint16(n)), err == nil && n != 0
	}
	return netip.AddrPort{}, false
}

func dnat(s *ruleSpec, opts []option) (netfilter.Op, bool) {
	var op *natOp
	for i := range opts {
		switch o := &opts[i]; o.name {
		case "--to-destination":
			arg, _ := o.arg()
			to, ok := natArg(arg)
			if !ok || op != nil {
				return nil, false
			}
			op = &natOp{to}
			if to.Addr().IsValid() && to.Port() != 0 {
				s.rule.NAT = to
			}
		case "--random", "--persistent":
		default:
			return nil, false
		}
	}
	if op == nil {
		return nil, false
	}
	return op, true
}

func snat(_ *ruleSpec, opts []option) (netfilter.Op, bool) {
	var to netip.Addr
	for i := range opts {
		switch o := &opts[i]; o.name {
		case "--to-source":
			arg, _ := o.arg()
			ap, ok := natArg(arg)
			if !ok {
				return nil, false
			}
			to = ap.Addr()
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
