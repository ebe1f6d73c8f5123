// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// keepMark is the remedy where a rule of others changes the mark by which kube-proxy's rules know what to masquerade.
var keepMark = advice("find who owns {where}, and make it leave the bit of kube-proxy's mark as it is (a mask: "+
	"--set-xmark VALUE/MASK, meta mark set meta mark and … or …), or choose another masqueradeBit for kube-proxy",
	command{chain: true})

// explainMasquerade says of a source address that is not translated, or should not be, where that comes from. A rule
// that is not as kube-proxy's configuration has it is one that somebody has changed, or that kube-proxy has not written
// again: where all rules show another configuration, that is the one that counts ([ConfigNotApplied]).
func (p *pathCase) explainMasquerade(is *issue) {
	w := p.walkedSteps()
	if is.expected == string(expect.MasqHairpin) && is.unmasqueraded {
		w = p.hairpinSteps(is)
	}
	is.evidence = w.masquerading()
	if !is.unmasqueraded {
		if at := w.markedByOthers(); at.Chain != nil {
			is.where, is.message = at, is.message+": "+at.String()+", which is not kube-proxy's, sets kube-proxy's mark"
			is.evidence = append([]report.Evidence{cite(at)}, is.evidence...)
			is.remedy = p.advise(keepMark, is)
		}
		return
	}
	u := w.unmarked(netfilter.FamilyOf(p.want.Frontend.Address))
	if u == nil {
		return
	}
	is.where, is.message = u.at, is.message+": "+u.text
	is.evidence = append([]report.Evidence{cite(u.at)}, is.evidence...)
	if u.foreign {
		is.remedy = p.advise(keepMark, is)
		if is.own.IsValid() {
			is.severity = warning
		}
	}
}

// markedByOthers returns the rule of others by which a packet has kube-proxy's mark that none of kube-proxy's gives it;
// the zero Ref where there is none.
func (w *walked) markedByOthers() (at netfilter.Ref) {
	for i := range w.steps {
		s := &w.steps[i]
		if s.Kind != netfilter.StepMark || s.Mark.Connection || s.Ref.Hook == netfilter.Postrouting && w.byKubeProxy(s.Ref) {
			continue
		}
		switch has := s.Mark.Value&w.masqueradeMark() != 0; {
		case has && w.byKubeProxy(s.Ref):
			return netfilter.Ref{}
		case has:
			at = s.Ref
		}
	}
	return at
}

// masqueradeMark is the mark of what kube-proxy's rules masquerade.
func (n *node) masqueradeMark() uint32 { return 1 << n.config.MasqueradeBit }

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
	var changed, ended netfilter.Ref
	marked, other := false, uint32(0)
	for i := range w.steps {
		s := &w.steps[i]
		switch kubes := w.byKubeProxy(s.Ref); {
		case s.Kind == netfilter.StepCall && names.MarkMasq != "" && s.Target.Name == names.MarkMasq:
			marker = s.Target
		case s.Kind == netfilter.StepCall && s.Ref.Hook == netfilter.Postrouting && w.mode.home(s.Target.Table) &&
			w.byKubeProxy(netfilter.Ref{Chain: s.Target}):
			last = s.Target
		case s.Kind == netfilter.StepMark && !s.Mark.Connection && kubes && s.Ref.Hook != netfilter.Postrouting:
			marked, other = true, s.Mark.Value // in POSTROUTING it is taken off
		case s.Kind == netfilter.StepMark && !s.Mark.Connection && !kubes && marked:
			changed = s.Ref
		case s.Kind == netfilter.StepVerdict && last != nil && s.Ref.Chain == last && s.P > 0 &&
			(s.Verdict == netfilter.Return || s.Verdict == netfilter.Accept):
			ended = s.Ref
		}
	}
	switch base := w.postrouting(f); {
	case marker != nil && !marked:
		return &unmarked{at: netfilter.Ref{Chain: marker}, text: lacks(marker, "sets no mark")}
	case !marked:
	case marker != nil && changed.Chain == nil && other&w.masqueradeMark() == 0:
		return &unmarked{at: netfilter.Ref{Chain: marker}, text: fmt.Sprintf("%s sets the mark %#x, and kube-proxy's rules "+
			"translate what has %#x", chainName(marker), other, w.masqueradeMark())}
	case last != nil && !masqueradesMarked(last):
		return &unmarked{at: netfilter.Ref{Chain: last}, text: lacks(last, "has no rule that translates a source")}
	case last != nil && changed.Chain != nil:
		return &unmarked{at: changed, text: changed.String() + ", which is not kube-proxy's, changes its mark", foreign: true}
	case ended.Chain != nil:
		return &unmarked{at: ended, text: ended.String() + " ends the chain ahead of the rule that translates the source"}
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
