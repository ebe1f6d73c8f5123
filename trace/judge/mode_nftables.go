// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// nftablesMode is pkg/proxy/nftables/proxier.go: verdict maps lead from the frontends to the chains of Services.
type nftablesMode struct{ iptablesMode }

func (m *nftablesMode) where() string { return "nft table " + m.chains.Table }

func (m *nftablesMode) home(t *netfilter.Table) bool { return m.chains.hasTable(t) }

func (m *nftablesMode) baseChain(h netfilter.Hook) string {
	return "nft " + m.chains.Table + " nat-" + strings.ToLower(h.String())
}

func (m *nftablesMode) holds(s *nodestate.State) bool {
	return slices.ContainsFunc(s.Rules.Tables, func(t *netfilter.Table) bool {
		if !m.home(t) {
			return false
		}
		c := t.Chain(m.chains.Services)
		return c != nil && len(c.Rules) > 0
	})
}

// notRead: without the save files iptables' own tables of iptables-nft are read from the ruleset, too.
func (m *nftablesMode) notRead(s *nodestate.State, f netfilter.Family) string {
	if !s.HasNFT() && s.UnreadNFT() == "" {
		return snapshot.NFTFile + " was not collected: that is where nftables mode has its rules"
	}
	has := slices.ContainsFunc(m.tables(s), func(t *netfilter.Table) bool { return t.Family&f != 0 })
	if x := s.NotAll[f]; x != nil && !has {
		return x.String()
	}
	return savesNotRead(s, f)
}

func (*nftablesMode) tellsWhy(*nodestate.State) bool { return true }

func (*nftablesMode) notCollected(s *nodestate.State) []issue {
	if s.ListsUnread() || len(s.Have[netfilter.IPv4])+len(s.Have[netfilter.IPv6]) > 0 {
		return nil
	}
	return []issue{
		{
			code:    NotCollected,
			subject: snapshot.IPTablesFile,
			message: "rules of iptables beside kube-proxy's were not collected: those of iptables-legacy, if there are any, " +
				"are not judged",
		},
	}
}

func (*nftablesMode) showBackends(*node) {}

func (m *nftablesMode) leftovers(n *node) []issue {
	if !slices.ContainsFunc(n.Rules.Tables, m.home) {
		return nil
	}
	return []issue{
		leftover(n, m, "table "+m.chains.Table, "kube-proxy's nftables table, too", m.chains.Services),
	}
}

// frontendMaps are the maps whose elements are frontends.
var frontendMaps = []string{
	kubeproxy.NFTMapServiceIPs, kubeproxy.NFTMapServiceNodePorts,
	kubeproxy.NFTMapNoEndpointServices, kubeproxy.NFTMapNoEndpointNodePorts, kubeproxy.NFTMapFirewallIPs,
}

// tables returns kube-proxy's tables of nftables mode.
func (m *nftablesMode) tables(s *nodestate.State) []*netfilter.Table {
	return slices.DeleteFunc(slices.Clone(s.Rules.Tables), func(t *netfilter.Table) bool {
		return !m.home(t)
	})
}

// unowned finds elements of the maps and sets that belong to no Service: what belongs to one port is one finding.
func (m *nftablesMode) unowned(n *node) []issue {
	stale := newGrouped(
		issue{expected: "no element", message: "kube-proxy's maps serve a frontend that belongs to no Service"},
	)
	for _, t := range m.tables(n.State) {
		for _, name := range frontendMaps {
			if s := t.Set(name); s != nil {
				s.Each(func(e netfilter.SetElement) {
					if !n.due(frontendKey{e.Addr, e.Proto, e.Port}) {
						stale.add(ownerOfElement(e), citeElement(name, e))
					}
				})
			}
		}
		if s := t.Set(kubeproxy.NFTSetClusterIPs); s != nil {
			s.Each(func(e netfilter.SetElement) {
				if !n.survey.clusterIPs[e.Addr] {
					stale.add(e.Addr.String(), citeElement(kubeproxy.NFTSetClusterIPs, e))
				}
			})
		}
	}
	return append(stale.issues(StaleService, "element"), n.orphans()...)
}

// ownerOfElement returns the Service port that the chain of an element names, "HASH-shop/web/tcp/http" being
// "shop/web:http"; else the frontend itself.
func ownerOfElement(e netfilter.SetElement) string {
	if _, rest, ok := strings.Cut(e.Chain, "-"); ok && strings.Contains(e.Chain, "/") {
		if _, name, ok := strings.Cut(rest, "-"); ok {
			if parts := strings.Split(name, "/"); len(parts) == 4 { //nolint:mnd // namespace/name/protocol/port
				return kubeproxy.ServicePortName(parts[0], parts[1], parts[3])
			}
		}
	}
	if !e.Addr.IsValid() {
		return fmt.Sprintf("NodePort %d/%s", e.Port, protocolName(e.Proto))
	}
	return netip.AddrPortFrom(e.Addr, e.Port).String()
}

func (m *nftablesMode) untranslated(o *outcome) bool {
	return o.where.Chain != nil && m.chains.hasTable(o.where.Chain.Table) &&
		o.where.Chain.Name == kubeproxy.NFTChainClusterIPsCheck
}

func (m *nftablesMode) refusal(is issue, o *outcome) issue {
	where := o.where.String()
	switch c := o.where.Chain; {
	case o.action == string(expect.Reject) && m.untranslated(o):
		is.code = ServiceNotProgrammed
		is.message = "no rule translates the packet: " + where + " refuses it as a packet to a port that no Service has"
	case o.action == string(expect.Reject):
		return m.iptablesMode.refusal(is, o)
	case m.chains.ofService(c.Name, m.chains.Firewall):
		is.code, is.message = SourceRangesMismatch, droppedInRange(where)
	case m.untranslated(o):
		is.code = ServiceNotProgrammed
		is.message = "no rule translates the packet: " + where + " drops it as a packet to a cluster IP that no Service has"
	case strings.HasSuffix(c.Name, kubeproxy.NFTEndpointsCheckSuffix):
		is.code, is.message = TrafficPolicyMismatch, droppedNoLocal(where)
	}
	return is
}

// reachesServices: some packets are refused before they come to the chain of all Services; then it counts whether they
// could.
func (m *nftablesMode) reachesServices(p *pathCase, w *walked) bool {
	if w.services() != nil {
		return true
	}
	for _, t := range m.tables(p.State) {
		if t.Family&netfilter.FamilyOf(p.want.Frontend.Address) == 0 {
			continue
		}
		for _, c := range t.Chains {
			if c.Base != nil && c.Base.Hook == p.hook() && reachableFrom(t, c)[t.Chain(m.chains.Services)] {
				return true
			}
		}
	}
	return false
}

// noTranslation says that the map which should lead on from a frontend has nothing for it, or that nothing asks the
// map.
func (m *nftablesMode) noTranslation(n *node, f expect.Frontend) (message string, evidence []report.Evidence) {
	evidence = m.elements(n, f)
	name := kubeproxy.NFTMapServiceIPs
	key := f.Address.String() + " . "
	if f.Kind == expect.NodePort {
		name, key = kubeproxy.NFTMapServiceNodePorts, ""
	}
	key += fmt.Sprintf("%s . %d", protocolName(protocolNumber(f.Protocol)), f.Port)
	table := "nft " + kubeproxy.NFTTable
	if f.Kind == expect.NodePort && !m.servesNodePorts(n.State, f.Address) {
		return table + " set " + kubeproxy.NFTSetNodePortIPs + " has no element " + f.Address.String(), evidence
	}
	if m.hasElement(n, name, f) {
		return table + " services does not come to map " + name + ", or the chain that it leads to from " + key +
			" translates nothing", evidence
	}
	return table + " map " + name + " has no element " + key, evidence
}

// servesNodePorts tells whether the set of the addresses that serve NodePorts has one of them; where there is no such
// set, all do.
func (m *nftablesMode) servesNodePorts(s *nodestate.State, a netip.Addr) bool {
	for _, t := range m.tables(s) {
		set := t.Set(kubeproxy.NFTSetNodePortIPs)
		if set == nil || t.Family&netfilter.FamilyOf(a) == 0 {
			continue
		}
		has := false
		set.Each(func(e netfilter.SetElement) { has = has || e.Addr == a })
		return has
	}
	return true
}

// missing: one rule draws among destinations, or, with session affinity or before 1.36, one that draws among the chains
// of endpoints.
func (m *nftablesMode) missing(_ *walked, c *netfilter.Chain, is *issue) {
	is.where, is.evidence = netfilter.Ref{Chain: c}, quote(c)
	targets := map[string]bool{}
	var empty []string
	for _, r := range c.Rules {
		for _, o := range r.Ops {
			if t, ok := o.(netfilter.Translator); ok {
				for _, d := range t.Destinations() {
					targets[d.String()] = true
				}
			}
		}
	}
	for _, ep := range c.Targets() {
		if !m.chains.ofService(ep.Name, m.chains.Endpoint) {
			continue
		}
		targets[ep.Name] = true
		if !translates(ep) && !slices.Contains(empty, ep.Name) {
			empty = append(empty, ep.Name)
		}
	}
	is.message = leadsElsewhere(c, len(targets))
	if len(empty) > 0 {
		is.message = fmt.Sprintf("%s leads to %s, which translates nothing", chainName(c), cut(empty, 3))
	}
}

func (m *nftablesMode) elements(n *node, f expect.Frontend) []report.Evidence {
	var out []report.Evidence
	for _, name := range frontendMaps {
		for _, e := range m.elementsOf(n.State, name, f) {
			out = append(out, citeElement(name, e))
		}
	}
	return out
}

func (m *nftablesMode) hasElement(n *node, set string, f expect.Frontend) bool {
	return len(m.elementsOf(n.State, set, f)) > 0
}

// elementsOf are the elements of a map that are for a frontend.
func (m *nftablesMode) elementsOf(s *nodestate.State, set string, f expect.Frontend) []netfilter.SetElement {
	var out []netfilter.SetElement
	for _, t := range m.tables(s) {
		s := t.Set(set)
		if s == nil || t.Family&netfilter.FamilyOf(f.Address) == 0 {
			continue
		}
		s.Each(func(e netfilter.SetElement) {
			if e.Proto == protocolNumber(f.Protocol) && e.Port == f.Port &&
				(e.Addr == f.Address || !e.Addr.IsValid() && f.Kind == expect.NodePort) {
				out = append(out, e)
			}
		})
	}
	return out
}

// verdictText is how nft prints the verdict of a map's element; "%s" is the chain.
var verdictText = map[netfilter.Kind]string{
	netfilter.Goto: " : goto %s", netfilter.Jump: " : jump %s", netfilter.Drop: " : drop", netfilter.Accept: " : accept",
}

// citeElement quotes an element of a map or set of kube-proxy's as nft list prints it.
func citeElement(set string, e netfilter.SetElement) report.Evidence {
	var parts []string
	if e.Addr.IsValid() {
		parts = append(parts, e.Addr.String())
	}
	if e.Proto != 0 {
		parts = append(parts, protocolName(e.Proto))
	}
	if e.Port != 0 {
		parts = append(parts, fmt.Sprint(e.Port))
	}
	kind, verdict := "set ", ""
	if text, ok := verdictText[e.Kind]; ok {
		kind, verdict = "map ", strings.ReplaceAll(text, "%s", e.Chain)
	}
	return report.Evidence{
		Text: "nft " + kubeproxy.NFTTable + " " + kind + set + ": " + strings.Join(parts, " . ") + verdict,
	}
}

func protocolName(p uint8) string {
	switch p {
	case netfilter.UDP:
		return "udp"
	case netfilter.SCTP:
		return "sctp"
	}
	return "tcp"
}
