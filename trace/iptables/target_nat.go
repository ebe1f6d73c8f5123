// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// natArg reads [ADDRESS[-ADDRESS]][:PORT[-PORT[/BASE]]] (extensions/libxt_NAT.c). iptables does not accept port 0: a
// dump that has it was written by an iptables of another version than the rule, which misread the revision of the
// kernel's structure (kubernetes/kubernetes#112477, #114537). Such a dump does not show what the kernel has.
func natArg(arg string) (r op.NATRange, ok bool) {
	addrs, ports := arg, ""
	if i := strings.LastIndexByte(arg, ':'); i >= 0 && (strings.HasSuffix(arg[:i], "]") || strings.Count(arg, ":") == 1) {
		addrs, ports = arg[:i], arg[i+1:]
		if !natPorts(&r, ports) {
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
	r.From, err1 = netip.ParseAddr(from)
	r.To, err2 = netip.ParseAddr(to)
	return r, err1 == nil && err2 == nil && r.From.BitLen() == r.To.BitLen() && r.From.Compare(r.To) <= 0
}

// natPorts reads PORT[-PORT[/BASE]].
func natPorts(r *op.NATRange, s string) (ok bool) {
	s, base, hasBase := strings.Cut(s, "/")
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	var ok1, ok2 bool
	r.Low, ok1 = portNumber(low)
	r.High, ok2 = portNumber(high)
	if r.HasBase = hasBase; hasBase {
		if r.Base, ok = portNumber(base); !ok {
			return false
		}
	}
	return ok1 && ok2 && 0 < r.Low && r.Low <= r.High
}

// natTarget reads the options of a target whose range is the argument of the option to. NAT targets are in table nat
// only: the kernel refuses them in other tables.
func natTarget(to string, then func(s *ruleSpec, r *op.NATRange) netfilter.Op) targetSpec {
	return func(s *ruleSpec, opts []option) (netfilter.Op, bool) {
		var r op.NATRange
		found := to == "--to-ports"
		for i := range opts {
			o := &opts[i]
			ok := true
			switch o.name {
			case to:
				arg, _ := o.arg()
				if to == "--to-ports" {
					ok = r.Low == 0 && natPorts(&r, arg)
				} else if r, ok = natArg(arg); found {
					ok = false // kernels before 2.6.11 allowed several
				}
				found = true
			case "--random", "--random-fully":
				r.Shuffle = true
			case "--persistent":
			default:
				ok = false
			}
			if !ok {
				return nil, false
			}
		}
		return then(s, &r), found && s.table == "nat"
	}
}

func translateDst(s *ruleSpec, r *op.NATRange) netfilter.Op {
	if !r.Single() {
		return &op.DNATSplit{NATRange: *r}
	}
	if r.From.IsValid() && r.Low != 0 {
		s.rule.NAT = netip.AddrPortFrom(r.From, r.Low)
	}
	return s.nats.make(op.DNAT{To: r.From, Port: r.Low})
}

func translateSrc(_ *ruleSpec, r *op.NATRange) netfilter.Op { return op.SNAT(r) }
func masquerade(_ *ruleSpec, r *op.NATRange) netfilter.Op   { return op.Masquerade(r) }
func redirect(_ *ruleSpec, r *op.NATRange) netfilter.Op     { return &op.Redirect{NATRange: *r} }

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
