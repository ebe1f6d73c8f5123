// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// frontendKey is a frontend as a rule names it; NodePorts have no address.
type frontendKey struct {
	addr  netip.Addr
	proto uint8
	port  uint16
}

func keyOf(f expect.Frontend) frontendKey {
	k := frontendKey{f.Address, protocolNumber(f.Protocol), f.Port}
	if f.Kind == expect.NodePort {
		k.addr = netip.Addr{}
	}
	return k
}

// frontendChains are the chains in which kube-proxy's iptables mode names frontends (pkg/proxy/iptables/proxier.go).
var frontendChains = map[string][]string{
	"nat":    {"KUBE-SERVICES", "KUBE-NODEPORTS"},
	"filter": {"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"},
}

// backwards walks from the rules to the API: every frontend that a rule names, and every chain made for a Service, must belong
// to a Service that there is.
func (n *node) backwards() []report.Finding {
	if n.isNFT() {
		return append(n.staleElements(), n.orphans()...)
	}
	if n.isIPVS() {
		return append(n.staleVirtual(), n.staleAddresses()...)
	}
	stale := map[string]*issue{}
	var names []string
	for _, t := range n.rules.Tables {
		for _, chain := range frontendChains[t.Name] {
			c := t.Chain(chain)
			if c == nil {
				continue
			}
			for _, r := range c.Rules {
				if r.Key.DstPort == 0 || n.frontends[frontendKey{r.Key.Dst, r.Key.Proto, r.Key.DstPort}] {
					continue
				}
				if r.Key.Dst.IsLoopback() && n.frontends[frontendKey{proto: r.Key.Proto, port: r.Key.DstPort}] {
					continue
				}
				name := ownerInComment(r)
				is := stale[name]
				if is == nil {
					is = &issue{expected: "no rule", message: "rules serve a frontend that belongs to no Service"}
					stale[name] = is
					names = append(names, name)
				}
				is.evidence = append(is.evidence, cite(netfilter.Ref{Chain: c, Rule: r}))
			}
		}
	}
	slices.Sort(names)
	var out []report.Finding
	for _, name := range names {
		is := stale[name]
		is.actual = fmt.Sprintf("%d rules", len(is.evidence))
		is.evidence = is.evidence[:min(len(is.evidence), maxEvidence)]
		out = append(out, n.finding(StaleService, name, *is))
	}
	return append(out, n.orphans()...)
}

// ownerInComment returns the Service port that a rule's comment names ("shop/web:http"), else the frontend itself.
func ownerInComment(r *netfilter.Rule) string {
	if words := strings.FieldsFunc(r.Comment, func(c rune) bool { return c == '"' || c == ' ' }); len(words) > 0 && strings.Contains(words[0], "/") {
		return words[0]
	}
	return netip.AddrPortFrom(r.Key.Dst, r.Key.DstPort).String()
}

// orphans finds chains made for Services or endpoints that are gone and that no rule leads to any more: kube-proxy removes
// them late (largeClusterMode), and they harm nobody.
func (n *node) orphans() []report.Finding {
	gone := map[string]bool{}
	prefixes := []string{n.dialect.cluster, n.dialect.local, n.dialect.external, n.dialect.firewall, n.dialect.endpoint}
	for _, t := range n.rules.Tables {
		if !n.dialect.home(t) {
			continue
		}
		reachable := reachableChains(t)
		for _, c := range t.Chains {
			if !reachable[c] && slices.ContainsFunc(prefixes, func(p string) bool { return n.dialect.ofService(c, p) }) {
				gone[c.Name] = true
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	due := n.eachChainDue
	if n.isNFT() {
		due = n.eachNFTNameDue
	}
	due(func(name string) { delete(gone, name) })
	orphans := slices.Sorted(maps.Keys(gone))
	if len(orphans) == 0 {
		return nil
	}
	return []report.Finding{n.finding(OrphanChain, cut(orphans, 3), issue{
		actual:   fmt.Sprintf("%d chains", len(orphans)),
		message:  "chains of Services or endpoints that are gone are still there; no rule leads to them",
		evidence: orphans[:min(len(orphans), maxEvidence)],
	})}
}

// reachableChains are those that a packet can get to.
func reachableChains(t *netfilter.Table) map[*netfilter.Chain]bool {
	var bases []*netfilter.Chain
	for _, c := range t.Chains {
		if c.Base != nil {
			bases = append(bases, c)
		}
	}
	return reachableFrom(t, bases...)
}

// reachableFrom are the chains that a packet can get to from some of them, with these.
func reachableFrom(t *netfilter.Table, from ...*netfilter.Chain) map[*netfilter.Chain]bool {
	seen := make(map[*netfilter.Chain]bool, len(t.Chains))
	var visit func(c *netfilter.Chain)
	visit = func(c *netfilter.Chain) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		for name := range c.LeadsTo() {
			visit(t.Chain(name))
		}
	}
	for _, c := range from {
		visit(c)
	}
	return seen
}

// eachChainDue calls f with the name of every chain that kube-proxy may have made for the Services and endpoints there are,
// used or not.
func (n *node) eachChainDue(f func(name string)) {
	for _, svc := range n.cluster.Services {
		if reason, _ := n.exp.Ignored(svc); reason != "" {
			continue
		}
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			name := expect.ServicePortName(svc.Namespace, svc.Name, port.Name)
			names := expect.ChainNames(name, port.Protocol)
			for _, chain := range []string{names.Cluster, names.Local, names.External, names.Firewall} {
				f(chain)
			}
			for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
				for _, e := range n.exp.Endpoints(expect.NameOf(svc), port, family) {
					f(expect.EndpointChain(name, port.Protocol, e.Address))
				}
			}
		}
	}
}
