// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// oldServiceChain matches the chains of Service ports that kube-proxy had until 1.23, and removed until 1.27: a later
// one does not know them (pkg/proxy/iptables/proxier.go, deprecatedServiceLBChainNamePrefix).
var oldServiceChain = lazyregexp.New(`^KUBE-XLB-[A-Z0-9]{1,20}$`)

// oldMarkDrop is the chain that the kubelet keeps until 1.27 (pkg/kubelet/kubelet_network_linux.go), for kube-proxies
// until 1.25.
const oldMarkDrop = "KUBE-MARK-DROP"

// maxRemoved is how many chains one command removes.
const maxRemoved = 50

// kept finds the chains that no packet gets to and that kube-proxy does not remove: of its own from before, and of
// others that refer to its chains. kube-proxy deletes chains of Services that are gone in the same transaction in which
// it writes all rules (ibid., syncProxyRules), and the kernel deletes none that a rule refers to: then nothing is
// written at all.
func (n *node) kept() []issue {
	names := n.mode.names()
	if names.Own == "" || names.Cluster == "" {
		return nil
	}
	var out []issue
	for _, t := range n.Rules.Tables {
		if !n.mode.home(t) {
			continue
		}
		reachable := reachableChains(t)
		var old []*netfilter.Chain
		for _, c := range t.Chains {
			switch {
			case reachable[c] || names.anyOfService(c.Name):
			case oldServiceChain().MatchString(c.Name):
				old = append(old, c)
			case namedByKubeProxy(t, c.Name): // it writes them anew
			default:
				out = append(out, n.referring(c)...)
			}
		}
		out = append(out, n.old(t, old)...)
	}
	return out
}

// old is one issue for the chains of old kube-proxies in a table.
func (n *node) old(t *netfilter.Table, chains []*netfilter.Chain) []issue {
	if len(chains) == 0 {
		return nil
	}
	var list []string
	var evidence []report.Evidence
	var held []string
	for _, c := range chains {
		list = append(list, c.Name)
		to, rules := n.refersTo(c)
		evidence = append(evidence, rules...)
		held = append(held, to...)
	}
	slices.Sort(list)
	slices.Sort(held)
	held = slices.Compact(held)
	is := issue{
		code: OrphanChain, subject: cut(list, 3), actual: number(len(list), "chain"),
		evidence: evidence[:min(len(evidence), maxEvidence)],
		message: "chains that a kube-proxy before 1.24 made are still there; no packet gets to them, and none since 1.28 " +
			"removes them",
	}
	text := "remove them; kube-proxy does not need them"
	if len(held) > 0 {
		is.severity = warning
		is.message += fmt.Sprintf("; they refer to %s: as long as they do, kube-proxy cannot delete these, and a write "+
			"that deletes them fails as a whole", cut(held, 3))
		text = "remove them first: kube-proxy then deletes what they refer to by itself"
	}
	removed := list[:min(len(list), maxRemoved)]
	if c := t.Chain(oldMarkDrop); c != nil && len(removed) == len(list) && n.onlyReferredBy(c, chains) {
		removed = append(removed, oldMarkDrop) // behind what refers to it
	}
	is.remedy = report.Remedy{Text: text, Commands: []report.Command{{Line: removing(t, removed), Node: n.Name}}}
	return []issue{is}
}

// referring is an issue for a chain of others that no packet gets to and that refers to chains of Services.
func (n *node) referring(c *netfilter.Chain) []issue {
	to, rules := n.refersTo(c)
	if len(to) == 0 {
		return nil
	}
	return []issue{{
		code: OrphanChain, subject: c.Name, severity: warning, where: netfilter.Ref{Chain: c},
		actual: "refers to " + cut(to, 3), evidence: rules[:min(len(rules), maxEvidence)],
		message: fmt.Sprintf("%s, which is not kube-proxy's and which no packet gets to, refers to %s: as long as it does, "+
			"kube-proxy cannot delete these, and a write that deletes them fails as a whole", chainName(c), cut(to, 3)),
		remedy: report.Remedy{
			Text: "find who wrote " + chainName(c) + ", and remove the rules that lead from it to kube-proxy's",
		},
	}}
}

// refersTo are the chains of Service ports and endpoints that a chain refers to, and the rules that do.
func (n *node) refersTo(c *netfilter.Chain) (to []string, rules []report.Evidence) {
	for _, r := range c.Rules {
		if n.mode.names().anyOfService(r.Target) && c.Table.Chain(r.Target) != nil {
			rules = append(rules, cite(netfilter.Ref{Chain: c, Rule: r}))
			if !slices.Contains(to, r.Target) {
				to = append(to, r.Target)
			}
		}
	}
	return to, rules
}

// onlyReferredBy tells whether no chain but some refers to one.
func (n *node) onlyReferredBy(c *netfilter.Chain, by []*netfilter.Chain) bool {
	referred := false
	for _, other := range c.Table.Chains {
		if !leadsTo(other, c.Name) {
			continue
		}
		if !slices.Contains(by, other) {
			return false
		}
		referred = true
	}
	return referred
}

// removing is the command that empties chains and then deletes them, in one transaction: it fails as a whole where a
// rule of others refers to one of them.
func removing(t *netfilter.Table, chains []string) string {
	lines := []string{"printf", `%s\n`, "*" + t.Name}
	for _, c := range chains {
		lines = append(lines, ":"+c+" - [0:0]")
	}
	for _, c := range chains {
		lines = append(lines, "-X "+c)
	}
	program := "iptables"
	if t.Family == netfilter.IPv6 {
		program = "ip6tables"
	}
	if t.Backend == netfilter.BackendLegacy {
		program += "-legacy"
	} else {
		program += "-nft"
	}
	return report.ShellLine(append(lines, "COMMIT")...) + " | " + program + "-restore --noflush"
}
