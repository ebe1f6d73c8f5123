// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// explainMasquerade says of a source address that is not translated, or should not be, where that comes from. What no
// configuration of kube-proxy leaves out is a rule that is gone: then its configuration is not to blame.
func (p *pathCase) explainMasquerade(is *issue) {
	w := p.walkedSteps()
	if is.expected == string(expect.MasqHairpin) && is.unmasqueraded {
		w = p.hairpinSteps(is)
	}
	is.evidence = w.masquerading()
	if !is.unmasqueraded {
		return
	}
	if u := w.unmarked(netfilter.FamilyOf(p.want.Frontend.Address)); u != nil {
		is.where, is.message = u.at, is.message+": "+u.text
		if is.evidence = append([]report.Evidence{cite(u.at)}, is.evidence...); u.foreign {
			is.remedy = p.advise(foreignRule, is)
		} else {
			is.remedy = p.advise(restart, is)
		}
		return
	}
	// The rules for cluster IPs depend on clusterCIDR and detectLocalMode; those for what comes in from outside, and for a
	// pod that reaches itself, do not (kube-proxy, pkg/proxy/iptables/proxier.go).
	if p.want.Frontend.Kind != expect.ClusterIP || is.expected == string(expect.MasqHairpin) {
		is.remedy = p.advise(restart, is)
	}
}

// hairpinSteps are those of a packet from the first of the endpoints that an issue is about to itself.
func (p *pathCase) hairpinSteps(is *issue) *walked {
	at, err := netip.ParseAddrPort(is.endpoints[0])
	if err != nil {
		return p.walkedSteps()
	}
	self := p.want.Origin
	self.Address, self.Pod = at.Addr(), ""
	return p.stepsOf(start(p.want.Frontend, self), netfilter.Options{Only: at, Steps: true})
}

// unmarked is what is to blame that the source of a packet is not translated which kube-proxy's rules mark for it, or
// should mark.
type unmarked struct {
	at      netfilter.Ref // a chain of kube-proxy's, or a rule of others that changes the mark
	text    string
	foreign bool
}

// unmarked finds the chain that should set the mark, or the one that should translate what has it, or the rule of
// others that changes it; nil where the packet met nothing of the kind. A rule of others that ends the chain before is
// [Shadowed].
func (w *walked) unmarked(f netfilter.Family) *unmarked {
	names := w.mode.names()
	var marker, last *netfilter.Chain
	var changed netfilter.Ref
	marked := false
	for i := range w.steps {
		s := &w.steps[i]
		switch kubes := w.byKubeProxy(s.Ref); {
		case s.Kind == netfilter.StepCall && names.MarkMasq != "" && s.Target.Name == names.MarkMasq:
			marker = s.Target
		case s.Kind == netfilter.StepCall && s.Ref.Hook == netfilter.Postrouting && w.mode.home(s.Target.Table) &&
			w.byKubeProxy(netfilter.Ref{Chain: s.Target}):
			last = s.Target
		case s.Kind == netfilter.StepMark && !s.Mark.Connection && kubes && s.Ref.Hook != netfilter.Postrouting:
			marked = true // in POSTROUTING it is taken off
		case s.Kind == netfilter.StepMark && !s.Mark.Connection && !kubes && marked:
			changed = s.Ref
		}
	}
	switch base := w.postrouting(f); {
	case marker != nil && !marked:
		return &unmarked{at: netfilter.Ref{Chain: marker}, text: lacks(marker, "sets no mark")}
	case !marked:
	case last != nil && !masqueradesMarked(last):
		return &unmarked{at: netfilter.Ref{Chain: last}, text: lacks(last, "has no rule that translates a source")}
	case last != nil && changed.Chain != nil:
		return &unmarked{at: changed, text: changed.String() + ", which is not kube-proxy's, changes its mark", foreign: true}
	case last == nil && base != nil && !w.leadsToKubeProxy(base):
		return &unmarked{
			at:   netfilter.Ref{Chain: base},
			text: "the packet is marked for it, and " + chainName(base) + " does not lead to kube-proxy's rules for it",
		}
	}
	return nil
}

// masqueradesMarked tells whether a chain has a rule that translates a source.
func masqueradesMarked(c *netfilter.Chain) bool {
	return slices.ContainsFunc(c.Rules, func(r *netfilter.Rule) bool {
		text := strings.ToLower(r.Text)
		return strings.Contains(text, "masquerade") || strings.Contains(text, "snat")
	})
}

// leadsToKubeProxy tells whether a rule of a chain leads to one of kube-proxy's.
func (w *walked) leadsToKubeProxy(c *netfilter.Chain) bool {
	return slices.ContainsFunc(c.Targets(), func(to *netfilter.Chain) bool {
		return w.byKubeProxy(netfilter.Ref{Chain: to})
	})
}

// postrouting is the base chain from which kube-proxy's rules are to translate sources; nil where there is none.
func (w *walked) postrouting(f netfilter.Family) *netfilter.Chain {
	for _, t := range w.Rules.Tables {
		if !w.mode.home(t) || t.Family&f == 0 {
			continue
		}
		for _, c := range t.Chains {
			if c.Base != nil && c.Base.Hook == netfilter.Postrouting && c.Base.Type == netfilter.TypeNAT {
				return c
			}
		}
	}
	return nil
}
