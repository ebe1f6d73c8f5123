// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// bounded is a number of the packet.
type bounded func(c *netfilter.Context) op.Bounds

const mostNumber = 1<<32 - 1

// hopsLeft are the options of ttl and hl (net/netfilter/xt_hl.c).
func hopsLeft(name string) map[string]reader {
	return map[string]reader{
		"--" + name + "-eq": oneNumber(op.Hops, func(n uint64) (low, high uint64, some bool) { return n, n, true }),
		"--" + name + "-lt": oneNumber(op.Hops, func(n uint64) (low, high uint64, some bool) { return 0, n - 1, n > 0 }),
		"--" + name + "-gt": oneNumber(op.Hops, func(n uint64) (low, high uint64, some bool) {
			return n + 1, mostNumber, true
		}),
	}
}

// oneNumber reads a number; of tells which numbers of the packet match, or that none does.
func oneNumber(is bounded, of func(n uint64) (low, high uint64, some bool)) reader {
	return withArg(func(arg string) (cond, bool) {
		n, ok := number(arg)
		low, high, some := of(uint64(n))
		return func(c *netfilter.Context) truth {
			if !some {
				return no
			}
			return is(c).Within(low, high)
		}, ok
	})
}

// numberRange reads n, or from:to, each of which may be missing.
func numberRange(is bounded) reader {
	return withArg(func(arg string) (cond, bool) {
		from, to, isRange := strings.Cut(arg, ":")
		if !isRange {
			to = from
		}
		low, ok1 := number(from)
		high, ok2 := number(to)
		if isRange && from == "" {
			low, ok1 = 0, true
		}
		if isRange && to == "" {
			high, ok2 = mostNumber, true
		}
		return func(c *netfilter.Context) truth { return is(c).Within(uint64(low), uint64(high)) }, ok1 && ok2
	})
}

// mss is --mss of tcpmss: a packet without the option does not match (net/netfilter/xt_tcpmss.c).
func mss(s *ruleSpec, o *option) (cond, bool) {
	within, ok := numberRange(op.MSS)(s, o)
	return func(c *netfilter.Context) truth {
		if op.HasMSS(c) == no {
			return no
		}
		return within(c)
	}, ok
}

// tosIs is --tos of tos, value or value/mask (net/netfilter/xt_dscp.c, tos_mt).
func tosIs(arg string) (cond, bool) {
	value, mask, ok := valueMask(arg)
	return tosBits(value, mask&0xff), ok && value <= 0xff
}

// dscpIs is --dscp of dscp: the upper six bits of the TOS.
func dscpIs(arg string) (cond, bool) {
	value, ok := number(arg)
	return tosBits(value<<2, 0xfc), ok && value < 1<<6
}

func tosBits(value, mask uint32) cond {
	return func(c *netfilter.Context) truth {
		set, unknown := op.TOS(c)
		if value&^mask != 0 || (uint32(set)^value)&mask&^uint32(unknown) != 0 {
			return no
		}
		return op.Known(true, uint32(unknown)&mask == 0)
	}
}

// groupOf is --src-group and --dst-group of devgroup, n or n/mask (net/netfilter/xt_devgroup.c): the group of the
// interface that the packet came in by, or leaves by.
func groupOf(dev func(p *netfilter.Packet) string) reader {
	return withArg(func(arg string) (cond, bool) {
		if arg == "default" {
			arg = "0"
		}
		value, mask, ok := valueMask(arg)
		return func(c *netfilter.Context) truth {
			group, known := op.Group(c, dev(c.Packet))
			return op.Known(group&mask == value, known)
		}, ok
	})
}

// ipsecPolicy is net/netfilter/xt_policy.c: without IPsec a packet matches "none" alone.
func ipsecPolicy(_ *ruleSpec, opts []option, _ string) (netfilter.Op, bool) {
	is, ok := op.Transformed, false
	for i := range opts {
		if arg, one := opts[i].arg(); opts[i].name == "--pol" && one && !opts[i].not {
			ok = arg == "none" || arg == "ipsec"
			if arg == "none" {
				is = op.Cond(op.Transformed).Not()
			}
		}
	}
	return op.Conditions([]cond{is}, "it depends on IPsec policies"), ok
}

func incoming(p *netfilter.Packet) string { return p.In }
func outgoing(p *netfilter.Packet) string { return p.Out }
