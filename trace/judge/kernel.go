// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// ruleKey is a rule as the kernel's trace names it.
type ruleKey struct {
	legacy       bool
	table, chain string
	rule         int
}

func keyOfStep(s *snapshot.TraceStep) ruleKey {
	k := ruleKey{s.Legacy, s.Table, s.Chain, s.Rule}
	if s.Family == "netdev" || s.Family == "bridge" { // as [netfilter.Table] has it
		k.table = s.Family + " " + s.Table
	}
	return k
}

func keyOfRule(r netfilter.Ref) ruleKey {
	return ruleKey{r.Chain.Table.Backend == netfilter.BackendLegacy, r.Chain.Table.Name, r.Chain.Name, r.Rule.Num}
}

// traced are the kernel's own traces of the path's connections; nil where there are none.
func (p *pathCase) traced() *snapshot.Probes {
	t, ok := target(&p.want.Frontend, &p.want.Origin, netip.AddrPortFrom(p.want.Frontend.Address, p.want.Frontend.Port))
	if !ok || p.Probes[t] == nil || len(p.Probes[t].Traces) == 0 {
		return nil
	}
	return p.Probes[t]
}

// met counts, for each rule, the connections whose first packet met it.
func met(probes *snapshot.Probes) map[ruleKey]int {
	out := map[ruleKey]int{}
	for i := range probes.Traces {
		for _, s := range slices.CompactFunc(
			slices.Clone(probes.Traces[i].Steps), func(a, b snapshot.TraceStep) bool { return a == b },
		) {
			if s.Rule > 0 {
				out[keyOfStep(&s)]++
			}
		}
	}
	return out
}

// tellsOf tells whether the kernel's trace has the rules of a backend: not the virtual servers of IPVS, and those of
// iptables-legacy not always.
func tellsOf(probes *snapshot.Probes, b netfilter.Backend) bool {
	return b == netfilter.BackendNFT || b == netfilter.BackendNative || b == netfilter.BackendLegacy && probes.Legacy
}

// translatesTo tells whether a step translates the destination.
func translatesTo(s *netfilter.Step) bool {
	return s.Kind == netfilter.StepTranslate && s.NAT.Side == netfilter.Destination
}

// ledTo counts the connections that met a step's rule and came to where it translates to: one rule may draw among
// several.
func ledTo(probes *snapshot.Probes, step *netfilter.Step) int {
	n, rule := 0, keyOfRule(step.Ref)
	for i := range probes.Traces {
		t := &probes.Traces[i]
		meets := slices.ContainsFunc(t.Steps, func(s snapshot.TraceStep) bool { return keyOfStep(&s) == rule })
		if meets && t.SentTo(probes.To) == step.NAT.To {
			n++
		}
	}
	return n
}

// baseChains are those of iptables-legacy that a hook calls.
var baseChains = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// acted tells whether a rule did something for certain that the walk does not know of. Of iptables-legacy the kernel
// tells no verdicts: there it is a rule of a chain that the walk does not come to.
func acted(s *snapshot.TraceStep, ledTo bool) bool {
	if s.Legacy {
		return !ledTo && !slices.Contains(baseChains, s.Chain)
	}
	return s.Verdict != "continue"
}

// rulesDisagree compares the rules that the kernel had connections meet with those of the walk. A rule that matched and
// did nothing is none of the walk's steps; what the walk takes for certain has to be in every trace.
func (p *pathCase) rulesDisagree() []issue {
	probes := p.traced()
	if probes == nil {
		return nil
	}
	walked := map[ruleKey]bool{}
	leads := map[ruleKey]bool{} // chains that a rule of the walk leads to
	certain := map[ruleKey]string{}
	for i, listed := range p.clients() {
		res := p.walker.Walk(start(p.want.Frontend, p.want.Origin), netfilter.Options{Steps: true, Listed: listed})
		if len(res.Uncertain) > 0 || res.Both || res.Ended != "" {
			return nil // of what is not known, the rules' order among equals included, the kernel may do either
		}
		always := map[ruleKey]string{}
		for i := range res.Steps {
			s := &res.Steps[i]
			if s.Ref.Rule == nil || !tellsOf(probes, s.Ref.Chain.Table.Backend) {
				continue
			}
			k := keyOfRule(s.Ref)
			walked[k] = true
			if s.P >= 1-certainty && !s.AtMost {
				always[k] = fmt.Sprintf("the walk alone: %s: %s", s.Ref, s)
			}
			for _, op := range s.Ref.Rule.Ops {
				if jump, ok := op.(netfilter.Jumper); ok {
					leads[ruleKey{legacy: k.legacy, table: k.table, chain: jump.JumpsTo()}] = true
				}
			}
		}
		if i == 0 {
			certain = always
		}
		maps.DeleteFunc(certain, func(k ruleKey, _ string) bool { return always[k] == "" })
	}
	var evidence []string
	note := func(line string) {
		if !slices.Contains(evidence, line) {
			evidence = append(evidence, line)
		}
	}
	for i := range probes.Traces {
		t := &probes.Traces[i]
		if len(t.Steps) == 0 {
			continue
		}
		has := map[ruleKey]bool{}
		for _, s := range t.Steps {
			k := keyOfStep(&s)
			has[k] = true
			foretold := walked[k]
			if k.rule = 0; !foretold && s.Rule > 0 && acted(&s, leads[k]) {
				line := fmt.Sprintf("the kernel alone: %s %s rule %d", s.Table, s.Chain, s.Rule)
				if s.Verdict != "" {
					line += ": " + s.Verdict
				}
				note(line)
			}
		}
		for _, k := range slices.SortedFunc(maps.Keys(certain), compareRules) {
			if !has[k] && !lostBefore(t) {
				note(certain[k])
			}
		}
	}
	if len(evidence) == 0 {
		return nil
	}
	return []issue{
		{
			code:     WalkDisagrees,
			subject:  "rules",
			expected: "the rules of the walk",
			actual:   fmt.Sprintf("%d rules differ", len(evidence)),
			evidence: say(evidence[:min(len(evidence), maxEvidence)]...),
			message: "the kernel has the packet meet other rules than the walk: this tool may read the rules wrongly, or they " +
				"have changed in between",
		},
	}
}

// clients are those that the packets of a path may come from: one that was never seen before, and with affinity one
// that comes back to any of the endpoints, as the connections of an earlier moment have made it. Each is named by the
// lists that it is in ([netfilter.Options].Listed).
func (p *pathCase) clients() []string {
	out := []string{""}
	for _, o := range p.got.translated() {
		if o.recent != "" && !slices.Contains(out, o.recent) {
			out = append(out, o.recent)
		}
	}
	return out
}

// lostBefore tells whether a traced packet was discarded on its path through the hooks, so that it did not meet what
// comes behind.
func lostBefore(t *snapshot.Trace) bool {
	if len(t.Drops) > 0 {
		return true
	}
	_, lost := lostBetween(requestPacket, t.Hooks)
	return lost
}

func compareRules(a, b ruleKey) int {
	return cmp.Or(strings.Compare(a.table, b.table), strings.Compare(a.chain, b.chain), cmp.Compare(a.rule, b.rule))
}

// confirm notes beside each step of a path how many of the traced connections met it.
func (p *pathCase) confirm(out *report.Path) {
	probes := p.traced()
	if probes == nil {
		return
	}
	counts := met(probes)
	for i := range p.res.Steps {
		if s := &p.res.Steps[i]; s.Ref.Rule != nil && tellsOf(probes, s.Ref.Chain.Table.Backend) {
			n := counts[keyOfRule(s.Ref)]
			if translatesTo(s) {
				n = ledTo(probes, s)
			}
			out.Steps[i].Kernel = &n
		}
	}
}
