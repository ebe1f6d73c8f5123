// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// hopsLeft are the options of ttl and hl (net/netfilter/xt_hl.c). What a client gives its packets is not known. It is
// taken to be 2 at least: with less, a node that forwards them ends them, be there a Service or not (ip_forward in
// net/ipv4/ip_forward.c), and only what traces routes sends such packets.
func hopsLeft(name string) map[string]reader {
	return map[string]reader{
		"--" + name + "-eq": hops(func(n uint32) truth { return noIf(n < 2) }),
		"--" + name + "-lt": hops(func(n uint32) truth { return noIf(n <= 2) }),
		"--" + name + "-gt": hops(func(n uint32) truth { return noIf(n < 2).Not() }),
	}
}

func noIf(never bool) truth {
	if never {
		return no
	}
	return maybe
}

func hops(is func(n uint32) truth) reader {
	return withArg(func(arg string) (cond, bool) {
		n, ok := number(arg)
		return func(*netfilter.Context) truth { return is(n) }, ok
	})
}
