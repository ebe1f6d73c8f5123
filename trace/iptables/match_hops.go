// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// hopsLeft are the options of ttl and hl (net/netfilter/xt_hl.c). What a client gives its packets is not known. It is
// taken to be 2 at least: with less, a node that forwards them ends them, be there a Service or not (ip_forward in
// net/ipv4/ip_forward.c), and only what traces routes sends such packets. What finds link-layer addresses has 255
// (RFC 4861, section 7.1).
func hopsLeft(name string) map[string]reader {
	return map[string]reader{
		"--" + name + "-eq": hops(func(n uint32) truth { return noIf(n < 2) }, op.Is(false), op.Is(true), op.Is(false)),
		"--" + name + "-lt": hops(func(n uint32) truth { return noIf(n <= 2) }, op.Is(false), op.Is(false), op.Is(true)),
		"--" + name + "-gt": hops(func(n uint32) truth { return noIf(n < 2).Not() }, op.Is(true), op.Is(false), op.Is(false)),
	}
}

func noIf(never bool) truth {
	if never {
		return no
	}
	return maybe
}

// mostHops is what packets have that may not be forwarded.
const mostHops = 255

// hops reads a number: is tells of a client's packet, the others of one that has more than it, as many, and fewer.
func hops(is func(n uint32) truth, more, same, less truth) reader {
	return withArg(func(arg string) (cond, bool) {
		n, ok := number(arg)
		return func(c *netfilter.Context) truth {
			switch {
			case !c.Packet.Resolves():
				return is(n)
			case n < mostHops:
				return more
			case n == mostHops:
				return same
			}
			return less
		}, ok
	})
}
