// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// ofIPTables reads the rules of iptables mode (pkg/proxy/iptables/proxier.go, syncProxyRules).
func (in *Input) ofIPTables() []Fact {
	var families [2]*masquerade
	var ports [2]served
	loopback := counts[bool]{}
	for i, f := range nodestate.Families {
		families[i] = newMasquerade()
		for _, t := range in.natTables(f) {
			families[i].ofChains(t)
			ports[i].ofRules(t.Chain(kubeproxy.ChainServices), f, loopback)
		}
	}
	return append(in.localFacts(families), in.nodePortFact(ports, nil),
		choice(kubeproxy.LocalNodePorts, loopback, true, func(c *kubeproxy.Config, v bool) { c.LocalhostNodePorts = v },
			"rules"))
}

// ofChains counts the chains of a table's Services: those that the chain of all Services leads to for cluster IPs, and
// those of external addresses.
func (m *masquerade) ofChains(t *netfilter.Table) {
	marks := func(r *netfilter.Rule) bool { return r.Target == kubeproxy.ChainMarkMasq }
	seen := map[string]bool{}
	for _, r := range t.Chain(kubeproxy.ChainServices).Rules {
		if (strings.HasPrefix(r.Target, kubeproxy.PrefixCluster) || strings.HasPrefix(r.Target, kubeproxy.PrefixLocal)) &&
			!seen[r.Target] {
			seen[r.Target] = true
			m.internal(t.Chain(r.Target), marks)
		}
	}
	for _, c := range t.Chains {
		if strings.HasPrefix(c.Name, kubeproxy.PrefixExternal) {
			m.external(c, kubeproxy.PrefixCluster, kubeproxy.PrefixLocal)
		}
	}
}

// ofRules reads at which addresses the chain of all Services leads to that of all NodePorts: at every one of the
// node's, or at some, with a rule each. loopback counts whether the rule for all leaves out the loopback address.
func (s *served) ofRules(services *netfilter.Chain, f netfilter.Family, loopback counts[bool]) {
	for _, r := range services.Rules {
		if r.Target != kubeproxy.ChainNodePorts {
			continue
		}
		if r.Key.Dst.IsValid() {
			s.at(r.Key.Dst)
			continue
		}
		if r.Masked {
			continue
		}
		s.rule, s.all = true, true
		if f == netfilter.IPv4 {
			without := false
			for _, b := range r.Bounds() {
				without = without || b.Not && b.Field == netfilter.BoundDestination && b.Prefix.Addr().IsLoopback()
			}
			loopback[!without]++
		}
	}
}
