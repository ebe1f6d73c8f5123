// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ProgrammedOrphan says that rules or addresses of the command program are on the node without a record in its journal.
const ProgrammedOrphan = "ProgrammedOrphan"

var _ = register(kind{
	code: ProgrammedOrphan, severity: warning, scope: onNode, by: orphanRules,
	remedy: advice("remove what is left over: cleanup lists it, and asks before it removes it",
		command{line: "kubectl svcproxy cleanup --node {node}"}),
})

// orphanRules finds what outlives the journal of the command program: rules that were saved and restored after their
// path had ended, or after the node was started anew. No helper removes them at their time, and nothing keeps them in
// step with the Service.
var orphanRules = &detector{stage: stageLeftovers, node: func(n *node) []issue {
	if n.Journal == nil {
		return nil
	}
	type orphan struct {
		evidence []report.Evidence
		chains   int
	}
	found := map[string]*orphan{}
	for _, t := range n.Rules.Tables {
		for _, c := range t.Chains {
			name := planOf(c)
			if name == "" || n.Journal.Has(name) {
				continue
			}
			if found[name] == nil {
				found[name] = &orphan{}
			}
			o := found[name]
			o.chains++
			if len(o.evidence) < maxEvidence {
				o.evidence = append(o.evidence, report.Evidence{Where: ruleRef(netfilter.Ref{Chain: c})})
			}
		}
	}
	var out []issue
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, issue{
			code: ProgrammedOrphan, subject: name, evidence: found[name].evidence,
			expected: "none without a record", actual: number(found[name].chains, "chain"),
			message: "chains of kubectl svcproxy program are on the node, and its journal there has no record of them: " +
				"they were restored after their path had ended, and nothing removes them",
		})
	}
	if bound := n.net.AddressesOn(kubeproxy.ProgramDevice); len(bound) > 0 && !n.Journal.HasMode(kubeproxy.IPVS) {
		texts := make([]string, 0, maxEvidence)
		for _, a := range bound[:min(len(bound), maxEvidence)] {
			texts = append(texts, a.String()+" dev "+kubeproxy.ProgramDevice)
		}
		out = append(out, issue{
			code: ProgrammedOrphan, subject: kubeproxy.ProgramDevice, evidence: say(texts...),
			expected: "none without a record", actual: number(len(bound), "address"),
			message: "the device of kubectl svcproxy program makes addresses of Services the node's own, and its journal " +
				"there has no record of ipvs mode",
		})
	}
	return out
}}

// planOf returns the name of the plan that a chain of the command program belongs to; "": it is none of that command's.
// Tables by which probes are traced, and tables of others whose names begin alike, have no plan's name.
func planOf(c *netfilter.Chain) string {
	var name string
	var ok bool
	if c.Table.Backend == netfilter.BackendNative {
		name, ok = strings.CutPrefix(c.Table.Name, kubeproxy.ProgramTablePrefix)
	} else {
		name, ok = strings.CutPrefix(c.Name, kubeproxy.ProgramChainPrefix)
		name, _, _ = strings.Cut(name, "-")
	}
	if !ok || !plan.IsName(name) {
		return ""
	}
	return name
}

// orphan is the finding of a path that such rules decide; ok is false where there is a record of them, and where the
// journal was not collected.
func (n *node) orphan(by netfilter.Ref) (is issue, ok bool) {
	name := ""
	if by.Chain != nil {
		name = planOf(by.Chain)
	}
	if n.Journal == nil || name == "" || n.Journal.Has(name) {
		return is, false
	}
	return issue{
		code: ProgrammedOrphan, subject: name, where: by, evidence: []report.Evidence{cite(by)},
		message: fmt.Sprintf("%s decides, which kubectl svcproxy program once wrote, and its journal on the node has no "+
			"record of it: it was restored after its end, comes before kube-proxy's rules, and does not follow the Service", by),
	}, true
}
