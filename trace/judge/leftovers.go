// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about what kube-proxy has left, or written too often.
const (
	ModeLeftover   = "ModeLeftover"
	StaleService   = "StaleService"
	OrphanChain    = "OrphanChain"
	DuplicateRules = "DuplicateRules"
)

var (
	_ = register(kind{
		code: ModeLeftover, severity: warning, scope: onNode, by: leftovers,
		remedy: advice("restart kube-proxy on {node}: one that starts removes the rules of a mode with other tables (since "+
			"1.29 those of iptables and ipvs, since 1.31 those of nftables); where they stay, move the pods away and reboot "+
			"the node (kube-proxy --cleanup removes the rules of all modes: no Service works until the restart)", restartProxy),
		issues: []string{"kubernetes/kubernetes#102314", "kubernetes/kubernetes#96034"},
	})
	_ = register(kind{
		code:     StaleService,
		severity: mismatch,
		scope:    onNode,
		by:       backwards,
		remedy:   restart,
		issues:   []string{"kubernetes/kubernetes#76338"},
	})
	_ = register(kind{
		code: OrphanChain, severity: note, scope: onNode, by: backwards,
		remedy: advice("nothing to do: no packet arrives there, and kube-proxy removes such chains late"),
		issues: []string{"kubernetes/kubernetes#122604"},
	})
	_ = register(kind{
		code: DuplicateRules, severity: warning, scope: onNode, by: duplicates,
		remedy: advice("kube-proxy's iptables and the node's do not agree: align their versions, then restart kube-proxy on "+
			"{node}", restartProxy),
		issues: []string{"kubernetes/kubernetes#71305", "kubernetes/dns#568"},
	})
)

// leftovers finds kube-proxy's rules of other modes than the one that it runs in.
var leftovers = &detector{stage: stageLeftovers, node: func(n *node) []issue {
	var out []issue
	for _, m := range modes {
		if m != n.mode {
			out = append(out, m.leftovers(n)...)
		}
	}
	if q := n.isOpen(kubeproxy.SettingMode); q != nil {
		for i := range out {
			out[i].message = "rules of several modes are live (" + q.texts() + "), and it is not known in which of them " +
				"kube-proxy runs: the first one that translates a packet decides"
		}
	}
	return out
}}

// backwards goes from the rules to the API, as the mode does: everything in the rules must belong to a Service.
var backwards = &detector{stage: stageBackwards, node: func(n *node) []issue {
	out := n.mode.unowned(n)
	if q := n.isOpen(kubeproxy.SettingMode); q != nil {
		for i := range out {
			out[i].severity = note
			out[i].message += "; kube-proxy's mode is not known (" + q.texts() + "): the rules may be left over of another mode"
		}
	}
	return out
}}

// orphans finds chains that no packet gets to any more: those of Services or endpoints that are gone, which kube-proxy
// removes late (largeClusterMode) and which harm nobody, and those that it does not remove.
func (n *node) orphans() []issue { return append(n.gone(), n.kept()...) }

// gone finds chains made for Services or endpoints that are gone.
func (n *node) gone() []issue {
	gone := map[string]bool{}
	names := n.mode.names()
	for _, t := range n.Rules.Tables {
		if !n.mode.home(t) || t.Holes != "" { // what leads to a chain may be what was not read
			continue
		}
		reachable := reachableChains(t)
		for _, c := range t.Chains {
			if !reachable[c] && names.anyOfService(c.Name) {
				gone[c.Name] = true
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	names.due(n, func(name string) { delete(gone, name) })
	if n.survey.notJudged > 0 {
		n.keepNotJudged(gone)
	}
	orphans := slices.Sorted(maps.Keys(gone))
	if len(orphans) == 0 {
		return nil
	}
	return []issue{{
		code: OrphanChain, subject: cut(orphans, 3), actual: number(len(orphans), "chain"),
		message:  "chains of Services or endpoints that are gone are still there; no packet gets to them",
		evidence: say(orphans[:min(len(orphans), maxEvidence)]...),
	}}
}

// eachPortServed calls f with every port of the Services that kube-proxy serves.
func (n *node) eachPortServed(f func(svc *corev1.Service, port *corev1.ServicePort)) {
	for _, svc := range n.cluster.Services {
		if reason, _ := n.exp.Ignored(svc); reason != "" {
			continue
		}
		for i := range svc.Spec.Ports {
			f(svc, &svc.Spec.Ports[i])
		}
	}
}

// endpointsOf returns the endpoints of a Service port in both families, used or not.
func (n *node) endpointsOf(svc *corev1.Service, port *corev1.ServicePort) []expect.Endpoint {
	v4 := n.exp.Endpoints(expect.NameOf(svc), port, corev1.IPv4Protocol)
	v6 := n.exp.Endpoints(expect.NameOf(svc), port, corev1.IPv6Protocol)
	switch {
	case len(v6) == 0:
		return v4
	case len(v4) == 0:
		return v6
	}
	return slices.Concat(v4, v6)
}

// duplicates finds rules that stand more than once in a chain of kube-proxy's, or that lead to one more than once.
var duplicates = &detector{stage: stageDuplicates, node: func(n *node) []issue {
	var evidence []report.Evidence
	var chains []string
	count := 0
	rangesTwice := sync.OnceValue(n.rangesTwice)
	for _, t := range n.Rules.Tables {
		for _, c := range t.Chains {
			if c.Base == nil && !n.byKubeProxy(netfilter.Ref{Chain: c}) {
				continue
			}
			more := slices.DeleteFunc(repeated(c), func(r *netfilter.Rule) bool {
				return n.listedTwice(r) || rangesTwice()[c.Name]
			})
			if len(more) == 0 {
				continue
			}
			count += len(more)
			chains = append(chains, chainName(c))
			for _, r := range more {
				evidence = append(evidence, cite(netfilter.Ref{Chain: c, Rule: r}))
			}
		}
	}
	if count == 0 {
		return nil
	}
	return []issue{{
		code: DuplicateRules, subject: cut(chains, 3), actual: fmt.Sprintf("%d rules too many", count),
		message:  "the same rule is in a chain more than once: kube-proxy appends it where it should find that it exists",
		evidence: evidence[:min(len(evidence), maxEvidence)],
	}}
}}

// listedTwice tells whether kube-proxy itself writes a rule as often as the API lists what it is for: an address that
// is both an external and a load-balancer IP, or is listed twice.
func (n *node) listedTwice(r *netfilter.Rule) bool {
	return n.cluster.twice[r.Key.Dst] || n.cluster.twice[r.Key.Src]
}

// rangesTwice are the names that the chains have, in any mode, of ports whose Service lists a source range more than
// once: kube-proxy writes a rule as often.
func (n *node) rangesTwice() map[string]bool {
	out := map[string]bool{}
	for _, p := range n.cluster.rangesTwice {
		for _, m := range modes {
			if ofPort := m.names().OfPort; ofPort != nil {
				out[ofPort(expect.NameOf(p.svc), p.port.Name, p.port.Protocol).Firewall] = true
			}
		}
	}
	return out
}

// repeated returns the rules of a chain that stand in it before already; of a base chain only those that lead to
// kube-proxy's.
func repeated(c *netfilter.Chain) []*netfilter.Rule {
	if len(c.Rules) < 2 {
		return nil
	}
	var out []*netfilter.Rule
	seen := make(map[string]bool, len(c.Rules))
	for _, r := range c.Rules {
		if c.Base != nil && !namedByKubeProxy(c.Table, r.Target) {
			continue
		}
		if seen[r.Text] {
			out = append(out, r)
		}
		seen[r.Text] = true
	}
	return out
}
