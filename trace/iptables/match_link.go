// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// macIs is --mac-source of mac (net/netfilter/xt_mac.c).
func macIs(arg string) (cond, bool) {
	want, ok := op.MAC(arg)
	return func(c *netfilter.Context) truth {
		mac, known := op.LinkSource(c)
		return op.Known(mac == want, known)
	}, ok
}
