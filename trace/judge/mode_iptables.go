// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// iptablesMode is pkg/proxy/iptables/proxier.go, and any mode whose rules are like its rules but for their names.
type iptablesMode struct {
	called string // by kube-proxy
	chains chainNames
}

func (m *iptablesMode) name() string      { return m.called }
func (m *iptablesMode) names() chainNames { return m.chains }

func (*iptablesMode) where() string { return "table nat" }

func (*iptablesMode) home(t *netfilter.Table) bool {
	return t.Name == "nat" && (t.Backend == netfilter.BackendNFT || t.Backend == netfilter.BackendLegacy)
}

func (m *iptablesMode) owns(r netfilter.Ref) bool { return m.chains.has(r.Chain.Table, r.Chain.Name) }

func (*iptablesMode) baseChain(h netfilter.Hook) string { return "nat " + h.String() }

// holds: the chain of all Services has one name in iptables and in ipvs mode; in ipvs mode it leads to a chain that
// iptables mode does not have.
func (m *iptablesMode) holds(s *nodestate.State) bool {
	services := servicesChains(m, s)
	return len(services) > 0 && !slices.ContainsFunc(services, func(c *netfilter.Chain) bool {
		return leadsTo(c, m.chains.OtherMode)
	})
}

// servicesChains are a mode's chains of all Services, those with rules.
func servicesChains(m mode, s *nodestate.State) []*netfilter.Chain {
	var out []*netfilter.Chain
	for _, t := range s.Rules.Tables {
		if c := t.Chain(m.names().Services); m.home(t) && c != nil && len(c.Rules) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// leadsTo tells whether a rule of a chain jumps to one of a name.
func leadsTo(c *netfilter.Chain, name string) bool {
	for target := range c.JumpTargets() {
		if target == name {
			return true
		}
	}
	return false
}

func (*iptablesMode) programmed(*nodestate.State, netfilter.Family) bool { return true }

// notRead: where the collector says what it could not read, a save file that is not there is one without rules. One
// backend's rules prove nothing while the other's may hold anything.
func (*iptablesMode) notRead(s *nodestate.State, f netfilter.Family) string {
	if why := savesNotRead(s, f); why != "" {
		return why
	}
	if saves := nodestate.SaveFiles[f]; len(s.Have[f]) == 0 && !s.ListsUnread() {
		for _, save := range saves {
			if s.Has(save.Name) {
				return save.Name + " is empty, as after a save command that failed"
			}
		}
		return saves[len(saves)-1].Name + " was not collected"
	}
	if x := s.NotAll[f]; x != nil && (x.Has("nat") || len(x.Tables) == 0) {
		return x.String()
	}
	return ""
}

// savesNotRead says which file of a family's rules, whatever the mode, was not read.
func savesNotRead(s *nodestate.State, f netfilter.Family) string {
	have := s.Have[f]
	for _, d := range nodestate.SaveFiles[f] {
		if why := s.Unread(d.Name); why != "" && !have[d.Backend] && (d.Backend != "" || len(have) == 0) {
			return d.Name + " was not read: " + why
		}
	}
	if why := s.UnreadNFT(); why != "" {
		return snapshot.NFTFile + " was not read, and a table in it may drop or translate packets: " + why
	}
	return ""
}

func (*iptablesMode) tellsWhy(*nodestate.State) bool        { return false }
func (*iptablesMode) notCollected(*nodestate.State) []issue { return nil }

func (m *iptablesMode) showBackends(n *node) { m.backendsOf(n, m.name()) }

// backendsOf notes the backends of the chain of all Services. actual is what that makes the mode of the node, where
// nothing else told; "" for nothing.
func (m *iptablesMode) backendsOf(n *node, actual string) {
	for _, t := range n.Rules.Tables {
		if !m.home(t) || t.Chain(m.chains.Services) == nil {
			continue
		}
		if !n.Backends[t.Family] {
			if n.shown.Actual == "" {
				n.shown.Actual = actual
			}
			continue // nothing tells it
		}
		if n.shown.Actual == "" {
			n.shown.Actual = actual
		}
		switch {
		case n.shown.Backend == "" || n.shown.Backend == string(t.Backend):
			n.shown.Backend = string(t.Backend)
		default:
			n.shown.Backend = "both"
		}
	}
}

func (m *iptablesMode) leftovers(n *node) []issue {
	if !m.holds(n.State) && !m.refusesStill(n.State) {
		return nil
	}
	return []issue{leftover(n, m, "table nat", "kube-proxy's "+m.name()+" chains, too", m.chains.Services)}
}

// entering cites the rules of base chains that lead to a chain.
func entering(t *netfilter.Table, chain string) []report.Evidence {
	var out []report.Evidence
	for _, c := range t.Chains {
		if c.Base == nil {
			continue
		}
		for _, r := range c.Rules {
			if r.Target == chain {
				out = append(out, cite(netfilter.Ref{Chain: c, Rule: r}))
			}
		}
	}
	return out
}

// refusesStill tells whether what iptables mode has refused stays refused: the chain of all Services in nat is written
// anew by ipvs mode, its chains in filter are not (kubernetes/kubernetes#96034).
func (m *iptablesMode) refusesStill(s *nodestate.State) bool {
	for _, t := range s.Rules.Tables {
		if t.Name != "filter" || t.Backend != netfilter.BackendNFT && t.Backend != netfilter.BackendLegacy {
			continue
		}
		reachable := reachableChains(t)
		for _, name := range []string{m.chains.Services, m.chains.ExternalServices} {
			if c := t.Chain(name); c != nil && reachable[c] && len(c.Rules) > 0 {
				return true
			}
		}
	}
	return false
}

// leftover is rules of a mode that are live beside those of the mode that kube-proxy runs in; services is the mode's
// chain of all Services.
func leftover(n *node, of mode, subject, actual, services string) issue {
	var evidence []report.Evidence
	for _, t := range n.Rules.Tables {
		if of.home(t) {
			evidence = append(evidence, entering(t, services)...)
		}
	}
	return issue{
		evidence: evidence[:min(len(evidence), 2)], // where packets come from elsewhere, and from the node
		code:     ModeLeftover,
		subject:  subject,
		expected: "rules of " + n.mode.name() + " mode alone",
		actual:   actual,
		message: fmt.Sprintf(
			"kube-proxy runs in %s mode, and its rules of %s mode are still live: the first one that translates a packet "+
				"decides",
			n.mode.name(),
			of.name(),
		),
	}
}

func (m *iptablesMode) unowned(n *node) []issue {
	stale := newGrouped(issue{expected: "no rule", message: "rules serve a frontend that belongs to no Service"})
	frontendChains := m.chains.frontendChains()
	for _, t := range n.Rules.Tables {
		for _, chain := range frontendChains[t.Name] {
			c := t.Chain(chain)
			if c == nil {
				continue
			}
			for _, r := range c.Rules {
				if r.Key.DstPort == 0 || n.due(frontendKey{r.Key.Dst, r.Key.Proto, r.Key.DstPort}) {
					continue
				}
				if r.Key.Dst.IsLoopback() && n.survey.frontends[frontendKey{proto: r.Key.Proto, port: r.Key.DstPort}] {
					continue
				}
				stale.add(ownerInComment(r), cite(netfilter.Ref{Chain: c, Rule: r}))
			}
		}
	}
	return append(stale.issues(StaleService, "rule"), n.orphans()...)
}

// ownerInComment returns the Service port that a rule's comment names ("shop/web:http"), else the frontend itself.
func ownerInComment(r *netfilter.Rule) string {
	words := strings.FieldsFunc(r.Comment, func(c rune) bool { return c == '"' || c == ' ' })
	if len(words) > 0 && strings.Contains(words[0], "/") {
		return words[0]
	}
	return netip.AddrPortFrom(r.Key.Dst, r.Key.DstPort).String()
}

func (*iptablesMode) untranslated(*outcome) bool { return false }

// noLocalEndpoint is in the comment of a rule that drops for want of a local endpoint (pkg/proxy/iptables/proxier.go,
// "%s has no local endpoints").
const noLocalEndpoint = "no local endpoints"

func (m *iptablesMode) refusal(is issue, o *outcome) issue {
	where := o.where.String()
	switch {
	case o.action == string(expect.Reject):
		is.code = RefusedWithEndpoints
		is.message = where + " still refuses the connection: for kube-proxy, the Service has no endpoints"
	case o.where.Chain.Name == m.chains.ProxyFirewall:
		is.code, is.message = SourceRangesMismatch, droppedInRange(where)
	case o.where.Rule != nil && strings.Contains(o.where.Rule.Comment, noLocalEndpoint):
		is.code, is.message = TrafficPolicyMismatch, droppedNoLocal(where)
	case o.where.Rule != nil && slices.Contains(
		[]string{m.chains.Services, m.chains.ExternalServices}, o.where.Chain.Name):
		is.code, is.message = RefusedWithEndpoints, where+" still drops the connection"
	}
	return is
}

func droppedInRange(where string) string {
	return "the source is within loadBalancerSourceRanges (or there are none), yet " + where + " drops it"
}

func droppedNoLocal(where string) string {
	return where + " drops it because the node has no local endpoint, which the API does not ask for"
}

func (*iptablesMode) affinity(p *pathCase) []issue { return p.ruleAffinity() }

func (*iptablesMode) explain(p *pathCase, issues []issue) []issue { return p.explainRules(issues) }

func (*iptablesMode) reachesServices(_ *pathCase, w *walked) bool { return w.services() != nil }

func (m *iptablesMode) noTranslation(*node, expect.Frontend) (message string, evidence []report.Evidence) {
	return "no rule of " + m.chains.Services + " or " + m.chains.NodePorts +
		" leads from this frontend to the Service's chain", nil
}

func (m *iptablesMode) missing(_ *walked, c *netfilter.Chain, is *issue) {
	is.where, is.evidence = netfilter.Ref{Chain: c}, nil
	jumps := 0
	var empty []string
	for _, r := range c.Rules {
		if !m.chains.ofService(r.Target, m.chains.Endpoint) {
			continue
		}
		jumps++
		if jumps <= maxEvidence {
			is.evidence = append(is.evidence, cite(netfilter.Ref{Chain: c, Rule: r}))
		}
		if sep := c.Table.Chain(r.Target); sep != nil && !translates(sep) && !slices.Contains(empty, sep.Name) {
			empty = append(empty, sep.Name)
		}
	}
	is.message = leadsElsewhere(c, jumps)
	if len(empty) > 0 {
		is.message = fmt.Sprintf("%s leads to %s, which translates nothing", chainName(c), cut(empty, 3))
	}
}

func (*iptablesMode) elements(*node, expect.Frontend) []report.Evidence { return nil }
