// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about rules that are not there, from those of one frontend to those of the whole node.
const (
	ServiceNotProgrammed = "ServiceNotProgrammed"
	NotProgrammed        = "NotProgrammed"
	FamilyMissing        = "FamilyMissing"
	SplitBackend         = "SplitBackend"
)

var (
	_ = register(kind{
		code: ServiceNotProgrammed, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
		issues: []string{"kubernetes/kubernetes#28674", "kubernetes/kubernetes#112604"},
	})
	_ = register(kind{
		code: NotProgrammed, severity: mismatch, scope: onNode, by: programmedRules,
		effect: map[string]string{notMasqueraded: "not masqueraded"},
		remedy: advice("kube-proxy does not run on {node}, or something flushed its rules: look at its log, then restart it",
			restartProxy),
		issues: []string{"kubernetes/kubernetes#35641", "kubernetes/kubernetes#121726"},
	})
	_ = register(kind{
		code: FamilyMissing, severity: mismatch, scope: onNode, by: programmedRules,
		remedy: advice("restart kube-proxy on {node}, where something has removed its rules; if they do not come back, "+
			"look in its log for its IP families, and give its clusterCIDR one of each family", restartProxy),
		issues: []string{"kubernetes/kubernetes#123837", "kubernetes/kubernetes#99127"},
	})
	_ = register(kind{
		code: SplitBackend, severity: warning, scope: onNode, by: programmedRules,
		remedy: advice("find who writes the older set, and end that; then move the pods away and reboot {node}, which " +
			"leaves the set that is written"),
		issues: []string{"kubernetes/kubernetes#71305", "kubernetes/kubernetes#109811"},
	})
)

// programmedRules finds families that have no rules of kube-proxy's, or those of two backends.
var programmedRules = &detector{stage: stageRules, node: func(n *node) []issue {
	var out []issue
	for _, f := range nodestate.Families {
		if n.unread[f] != "" || n.holes(f) {
			continue
		}
		if !n.survey.programmed[f] && n.survey.hasFrontends[f] && !holdsUserspace(n.State) {
			is := issue{
				code:     NotProgrammed,
				subject:  f.String(),
				expected: n.mode.names().Services + " in " + n.mode.where(),
				actual:   "none",
				message:  fmt.Sprintf("the node has no %s rules of kube-proxy's", f),
			}
			if c := n.flushed(f); c != nil {
				is.actual, is.message, is.remedy = "empty", flushedMessage(f, c), n.advise(afterFlush, &is)
			} else if n.survey.programmed[netfilter.Inet&^f] {
				is.code = FamilyMissing
			}
			out = append(out, is)
		}
		if len(n.survey.backends[f]) > 1 {
			out = append(out, issue{
				code:     SplitBackend,
				subject:  f.String(),
				expected: "one backend",
				actual:   "nft and legacy",
				message: "kube-proxy's rules are in iptables-nft and in iptables-legacy, and both are live: the one that was " +
					"loaded last is evaluated first",
			})
		}
	}
	return out
}}

// flushed returns the chain of all Services of a family where it is there and empty: kube-proxy never leaves it so, as
// it makes the chain with its rules. nil where it is not there, or has rules.
func (n *node) flushed(f netfilter.Family) *netfilter.Chain {
	var empty *netfilter.Chain
	for _, t := range n.Rules.Tables {
		if t.Family&f == 0 || !n.mode.home(t) {
			continue
		}
		c := t.Chain(n.mode.names().Services)
		if c == nil {
			continue
		}
		if len(c.Rules) > 0 || c.Unread != "" {
			return nil
		}
		empty = c
	}
	return empty
}

func flushedMessage(f netfilter.Family, c *netfilter.Chain) string {
	return fmt.Sprintf("%s exists, and is empty: something flushed the %s rules, and left the chains", chainName(c), f)
}

// afterFlush: kube-proxy notices that its chains are gone (Monitor in pkg/util/iptables/iptables.go looks for
// KUBE-PROXY-CANARY), not that they are empty. Until its next full sync, an hour after the last one, and in large
// clusters only when it is needed for something else, it writes what has changed alone (needFullSync in
// pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go of 1.37, tryPartialSync in those of 1.28).
var afterFlush = advice("restart kube-proxy on {node}, which does not notice by itself for an hour or more; then find "+
	"out what has flushed them (a script, a firewall that was reloaded): the network plugin's rules may be gone, too",
	restartProxy)

// familyMissing makes of an issue one of the family, where kube-proxy has programmed the other one.
func (p *pathCase) familyMissing(is *issue) {
	f := netfilter.FamilyOf(p.want.Frontend.Address)
	if c := p.flushed(f); c != nil {
		is.where, is.message, is.remedy = netfilter.Ref{Chain: c}, flushedMessage(f, c), p.advise(afterFlush, is)
		return
	}
	if p.survey.programmed[netfilter.Inet&^f] {
		is.code = FamilyMissing
		is.message = fmt.Sprintf("kube-proxy has programmed %s on this node, but not %s", netfilter.Inet&^f, f)
	}
}

// notProgrammed finds out how much is missing: this Service, the jump to all Services, a family, or everything.
func (p *pathCase) notProgrammed(w *walked, is *issue) {
	if !p.survey.programmed[netfilter.FamilyOf(p.want.Frontend.Address)] {
		is.code, is.message = NotProgrammed, "the node has no rules of kube-proxy's at all"
		p.familyMissing(is)
		return
	}
	for i := range w.steps {
		if s := &w.steps[i]; s.Kind == netfilter.StepNotrack {
			is.code, is.where, is.evidence = Shadowed, s.Ref, []report.Evidence{cite(s.Ref)}
			is.message = s.Ref.String() + " takes the packet out of connection tracking: no NAT rule sees it"
			return
		}
	}
	if p.passedOverNAT(w, is) || p.passedOverFilter(w, is) {
		return
	}
	if p.want.Action != expect.DNAT {
		if c := w.serviceChain(); c != nil && len(c.Rules) == 0 {
			is.where, is.message = netfilter.Ref{Chain: c}, emptyChain(c)
		}
		return
	}
	if !p.mode.reachesServices(p, w) {
		is.code = NotProgrammed
		is.message = fmt.Sprintf("%s does not lead to %s: no Service works for packets that enter there",
			p.mode.baseChain(p.hook()), p.mode.names().Services)
		return
	}
	if at := w.stalled(); at != nil {
		at.blame(is, "")
		return
	}
	message, evidence := p.mode.noTranslation(p.node, p.want.Frontend)
	is.message, is.evidence = message, append(is.evidence, evidence...)
}

func emptyChain(c *netfilter.Chain) string {
	return chainName(c) + " is empty: nothing translates the packet"
}
