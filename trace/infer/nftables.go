// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// ofNFTables reads the rules of nftables mode (pkg/proxy/nftables/proxier.go, setupNFTables and syncProxyRules): since
// 1.36 one rule in the chain of all Services asks for masquerade of packets to cluster IPs, before that one in each
// Service's own chain.
func (in *Input) ofNFTables() []Fact {
	var families [2]*masquerade
	var ports [2]served
	for i, f := range nodestate.Families {
		families[i] = newMasquerade()
		t := in.nftTable(f)
		if t == nil {
			continue
		}
		families[i].ofTable(t)
		ports[i].ofTable(t)
	}
	return append(in.localFacts(families), in.nodePortFact(ports, []string{"primary"}))
}

func (m *masquerade) ofTable(t *netfilter.Table) {
	if t.Chain(kubeproxy.NFTChainMarkMasq) != nil {
		marks := func(r *netfilter.Rule) bool { return slices.Contains(jumps(r), kubeproxy.NFTChainMarkMasq) }
		seen := map[string]bool{}
		if s := t.Set(kubeproxy.NFTMapServiceIPs); s != nil {
			s.Each(func(e netfilter.SetElement) {
				if (strings.HasPrefix(e.Chain, kubeproxy.NFTPrefixCluster) ||
					strings.HasPrefix(e.Chain, kubeproxy.NFTPrefixLocal)) && !seen[e.Chain] {
					seen[e.Chain] = true
					m.internal(t.Chain(e.Chain), marks)
				}
			})
		}
	} else if c := t.Chain(kubeproxy.NFTChainServices); c != nil && len(c.Rules) > 0 {
		m.shared(c)
	}
	for _, c := range t.Chains {
		if strings.HasPrefix(c.Name, kubeproxy.NFTPrefixExternal) && strings.Contains(c.Name, "/") {
			m.external(c, kubeproxy.NFTPrefixCluster, kubeproxy.NFTPrefixLocal)
		}
	}
}

// shared reads the rule of the chain of all Services that marks packets to cluster IPs; all others lead on to chains.
func (m *masquerade) shared(c *netfilter.Chain) {
	for _, r := range c.Rules {
		if len(jumps(r)) > 0 {
			continue
		}
		if _, ok := markSet(r); ok {
			m.marked(localOf(r, true))
			m.explicit = true
			return
		}
	}
	m.by[local{}]++
	m.all[false]++
}

// ofTable reads at which addresses NodePorts are served: at those in a set, which there is none of where all are.
func (s *served) ofTable(t *netfilter.Table) {
	set := t.Set(kubeproxy.NFTSetNodePortIPs)
	if set == nil {
		s.rule = t.Set(kubeproxy.NFTMapServiceNodePorts) != nil
		s.all = s.rule
		return
	}
	s.rule = true
	set.Each(func(e netfilter.SetElement) {
		if e.Addr.IsValid() {
			s.at(e.Addr)
		}
	})
}
