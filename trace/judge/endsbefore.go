// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// A base chain of iptables is a list that others put rules into, too. ACCEPT there, or RETURN, or a goto, ends it for a
// packet (net/ipv4/netfilter/ip_tables.c, ipt_do_table), so that what kube-proxy has behind is not asked. In nftables
// mode this cannot be: each base chain of a hook is run, whatever an earlier one accepts (nf_hook_slow,
// nf_nat_inet_fn).

var endsBefore = advice("find who owns {where}, and make it ignore Service traffic or move it after kube-proxy's "+
	"rule; restarting kube-proxy does not move the rules", command{chain: true})

// endedBefore returns the rules that are not kube-proxy's and that end a base chain of some hooks, of table, for the
// packet, ahead of the rule that leads to one of kube-proxy's chains.
func (w *walked) endedBefore(table string, hooks []netfilter.Hook, chains ...string) []netfilter.Ref {
	var out []netfilter.Ref
	for _, t := range w.Rules.Tables {
		if t.Name != table || t.Backend == netfilter.BackendNative || t.Backend == netfilter.BackendIPVS {
			continue
		}
		for _, base := range t.Chains {
			if base.Base == nil || !slices.Contains(hooks, base.Base.Hook) {
				continue
			}
			leads := slices.IndexFunc(base.Rules, func(r *netfilter.Rule) bool {
				return slices.Contains(chains, r.Target)
			})
			if leads >= 0 {
				out = append(out, w.endsOf(base, base.Rules[leads])...)
			}
		}
	}
	return out
}

// endsOf returns the rules of others that end a base chain before one of its rules. A chain that only a later rule
// leads to, as a CNI's own for masquerade, ends nothing ahead of it.
func (w *walked) endsOf(base *netfilter.Chain, before *netfilter.Rule) []netfilter.Ref {
	var out []netfilter.Ref
	var ahead []*netfilter.Chain
	for _, r := range base.Rules {
		if r.Num < before.Num {
			ahead = append(ahead, base.Table.Chain(r.Target))
		}
	}
	asked := reachableFrom(base.Table, ahead...)
	for i := range w.steps {
		s := &w.steps[i]
		if s.Ref.Rule == nil || s.Ref.Chain.Table != base.Table || s.Ref.Hook != base.Base.Hook ||
			w.ownerOf(s.Ref) != others {
			continue
		}
		if s.Ref.Chain == base && s.Ref.Rule.Num >= before.Num || s.Ref.Chain != base && !asked[s.Ref.Chain] {
			continue
		}
		switch {
		case s.Kind == netfilter.StepTranslate || s.Kind == netfilter.StepOpaque:
		case s.Verdict == netfilter.Accept,
			s.Verdict == netfilter.Return && s.Ref.Chain == base,
			s.Verdict == netfilter.Goto && s.Ref.Chain == base:
			out = append(out, s.Ref)
		}
	}
	return out
}

// passedOver makes of an issue one about the rules that end the base chain ahead of kube-proxy's; false where none do.
func (p *pathCase) passedOver(is *issue, ends []netfilter.Ref) bool {
	if len(ends) == 0 {
		return false
	}
	is.code, is.where, is.evidence, is.endpoints, is.subject = Shadowed, ends[0], nil, nil, ""
	for _, r := range ends[:min(len(ends), maxEvidence)] {
		is.evidence = append(is.evidence, cite(r))
	}
	is.predicate, is.unmasqueraded = false, false
	is.message = ends[0].String() + ", which is not kube-proxy's, ends the chain for the packet: kube-proxy's rules " +
		"after it are not evaluated"
	is.remedy = p.advise(endsBefore, is)
	return true
}

// passedOverNAT finds what keeps the packet from the chain of all Services.
func (p *pathCase) passedOverNAT(w *walked, is *issue) bool {
	return w.services() == nil &&
		p.passedOver(is, w.endedBefore("nat", []netfilter.Hook{p.hook()}, p.mode.names().Services))
}

// passedOverFilter finds what keeps the packet from the rule of kube-proxy's that should refuse it. Where there is no
// such rule, nothing does.
func (p *pathCase) passedOverFilter(w *walked, is *issue) bool {
	if p.want.Action != expect.Reject && p.want.Action != expect.Drop {
		return false
	}
	f := &p.want.Frontend
	var chains []string
	for _, t := range p.Rules.Tables {
		if t.Name != "filter" || t.Family != netfilter.FamilyOf(f.Address) {
			continue
		}
		for _, name := range p.mode.names().frontendChains()[t.Name] {
			c := t.Chain(name)
			if c == nil || slices.Contains(chains, name) || slices.Contains(w.chains, c) {
				continue
			}
			if slices.ContainsFunc(c.Rules, func(r *netfilter.Rule) bool {
				return r.Key.DstPort == f.Port && (r.Key.Dst == f.Address || f.Kind == expect.NodePort && !r.Key.Dst.IsValid())
			}) {
				chains = append(chains, name)
			}
		}
	}
	hooks := []netfilter.Hook{netfilter.Input, netfilter.Forward, netfilter.Output}
	return len(chains) > 0 && p.passedOver(is, w.endedBefore("filter", hooks, chains...))
}

// passedOverMasquerade finds what keeps a packet that is marked for it from having its source translated.
func (p *pathCase) passedOverMasquerade(w *walked, is *issue) bool {
	if !is.unmasqueraded {
		return false
	}
	if is.expected == string(expect.MasqHairpin) && len(is.endpoints) > 0 {
		w = p.hairpinSteps(is) // it is about a packet of the endpoint itself
	}
	marked := slices.ContainsFunc(w.steps, func(s netfilter.Step) bool {
		return s.Kind != netfilter.StepTranslate && w.masquerades(&s)
	})
	expected := is.expected
	if !marked || !p.passedOver(is, w.endedBefore("nat", []netfilter.Hook{netfilter.Postrouting},
		p.mode.names().Postrouting)) {
		return false
	}
	is.expected, is.actual = expected, notMasqueraded
	is.message += ", and the source address is not translated"
	if is.own.IsValid() {
		is.severity = warning
		is.message += "; answers come to the node all the same, as it is " + is.own.String() + ", its own"
	}
	return true
}

// endedForSome returns the rules that keep a share of the packets from the chain of all Services.
func (p *pathCase) endedForSome(w *walked) []netfilter.Ref {
	if len(p.got.of(acceptAction)) == 0 {
		return nil
	}
	return w.endedBefore("nat", []netfilter.Hook{p.hook()}, p.mode.names().Services)
}

// onceShadowed keeps one issue for a rule that stands in the way in several respects.
func onceShadowed(issues []issue) []issue {
	seen := map[netfilter.Ref]bool{}
	return slices.DeleteFunc(issues, func(is issue) bool {
		again := is.code == Shadowed && seen[is.where]
		seen[is.where] = seen[is.where] || is.code == Shadowed
		return again
	})
}
