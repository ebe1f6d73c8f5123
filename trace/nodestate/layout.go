// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Layout returns what a node's rules show of the layout that its kube-proxy programs: in each field what the first
// family shows that shows it.
func (s *State) Layout() kubeproxy.Layout {
	var l kubeproxy.Layout
	for _, t := range s.Rules.Tables {
		switch {
		case t.Backend == netfilter.BackendNative && t.Name == kubeproxy.NFTTable:
			if l.NFTFilter == 0 {
				l.NFTFilter = nftFilter(t)
			}
			if l.NFTHairpin == 0 {
				l.NFTHairpin = nftHairpin(t)
			}
		case l.IPVSExternalIPs == 0 && t.Name == tableFilter && t.Chain(kubeproxy.IPVSChainFilter) != nil:
			l.IPVSExternalIPs = ipvsExternalIPs(t.Chain(kubeproxy.IPVSChainFilter))
		}
	}
	return l
}

// tableFilter is the table of iptables that refuses packets.
const tableFilter = "filter"

// nftFilter reads the layout from the names of chains that check frontends, and from what runs first at the output
// hook. The names of the base chains say nothing: filter-output was behind nat-output and before it.
func nftFilter(t *netfilter.Table) kubeproxy.NFTFilter {
	if t.Chain(kubeproxy.NFTChainEndpointsCheckAlpha) != nil {
		return kubeproxy.NFTFilterAlpha
	}
	for _, c := range t.Chains {
		if c.Base == nil || c.Base.Hook != netfilter.Output || c.Base.Type != netfilter.TypeFilter ||
			!slices.Contains(slices.Collect(c.JumpTargets()), kubeproxy.NFTChainServiceEndpointsCheck) {
			continue
		}
		if c.Base.Priority < priorityDNAT {
			return kubeproxy.NFTFilterPreDNAT
		}
		return kubeproxy.NFTFilterPostDNAT
	}
	return 0
}

// priorityDNAT is that of nat-output (include/uapi/linux/netfilter_ipv4.h, NF_IP_PRI_NAT_DST).
const priorityDNAT = -100

// nftHairpin reads the layout from the set, and from the first endpoint's chain, of which the first rule masquerades
// what comes from the endpoint itself.
func nftHairpin(t *netfilter.Table) kubeproxy.NFTHairpin {
	if t.Set(kubeproxy.NFTSetHairpin) != nil {
		return kubeproxy.NFTHairpinSet
	}
	for _, c := range t.Chains {
		if strings.HasPrefix(c.Name, kubeproxy.NFTPrefixEndpoint) &&
			slices.Contains(slices.Collect(c.JumpTargets()), kubeproxy.NFTChainMarkMasq) {
			return kubeproxy.NFTHairpinRules
		}
	}
	return 0
}

// ipvsExternalIPs reads the layout from the chain that keeps packets from the node's own ports.
func ipvsExternalIPs(c *netfilter.Chain) kubeproxy.IPVSExternalIPs {
	const set = kubeproxy.IPVSSetExternalIP + kubeproxy.IPVSSetLocalSuffix
	for _, r := range c.Rules {
		for word := range strings.FieldsSeq(r.Text) {
			if word == set || word == kubeproxy.IPVSSetName(set, true) {
				return kubeproxy.IPVSExternalIPsPass
			}
		}
	}
	return kubeproxy.IPVSExternalIPsRefused
}
