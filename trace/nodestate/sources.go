// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/iptables"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// SourcesOf returns what a rule of a table tells packets apart by as to where they come from. Elements of ipsets are
// not among them, those of nftables' sets are.
func SourcesOf(t *netfilter.Table, r *netfilter.Rule) netfilter.SourceTerms {
	var out netfilter.SourceTerms
	if t.Backend != netfilter.BackendNative {
		out = iptables.SourcesOf(r)
	}
	for _, o := range r.Ops {
		if x, ok := o.(netfilter.SourceNamer); ok {
			x.NamesSources(func(first, last netip.Addr) { out.Ranges = append(out.Ranges, [2]netip.Addr{first, last}) })
		}
	}
	return out
}
