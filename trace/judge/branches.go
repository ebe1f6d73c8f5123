// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"math"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// branches returns for each step the endpoints ("10.244.1.5:8080") of the connections that it is for; nil where it is
// for those to all of them, and where the step alone does not tell: behind the translation rules tell endpoints apart
// by what they match.
func branches(steps []netfilter.Step) [][]string {
	ends := map[*netfilter.Chain][]string{}
	type end struct {
		of *netfilter.Chain
		at string
	}
	has := map[end]bool{}
	add := func(c *netfilter.Chain, list []string) (changed bool) {
		for _, e := range list {
			if k := (end{c, e}); !has[k] {
				has[k], ends[c], changed = true, append(ends[c], e), true
			}
		}
		return changed
	}
	own := make([][]string, len(steps))
	every := map[string]bool{}
	for i := range steps {
		if s := &steps[i]; s.Kind == netfilter.StepTranslate && s.NAT.Side == netfilter.Destination &&
			s.NAT.To.Addr().IsValid() {
			own[i] = []string{report.JoinHostPort(s.NAT.To.Addr().String(), int32(s.NAT.To.Port()))}
			every[own[i][0]] = true
			add(s.Ref.Chain, own[i])
		}
	}
	for changed := len(every) > 1; changed; { // from the called chains to those that call them
		changed = false
		for i := range steps {
			if s := &steps[i]; s.Target != nil && add(s.Ref.Chain, ends[s.Target]) {
				changed = true
			}
		}
	}
	out := make([][]string, len(steps))
	for i := range steps {
		s := &steps[i]
		of := own[i]
		if of == nil && s.Target != nil {
			of = ends[s.Target]
		}
		if of == nil {
			of = ends[s.Ref.Chain]
		}
		if len(of) > 0 && len(of) < len(every) {
			out[i] = slices.Clone(of)
		}
	}
	return out
}

// nameRemaining adds the endpoints of steps behind a rule that ends the connections to some of the endpoints: the
// others. That only their connections come to a step is shown by its share, which is then the sum of theirs; where it
// is not, nothing is said.
func nameRemaining(endpoints [][]string, steps []netfilter.Step, ends []outcome) {
	type connections struct {
		to    string
		share float64
		last  int // the step that ends the last of them; len(steps) where none does
	}
	var all []connections
	for i := range ends {
		o := &ends[i]
		if o.sharing != "" || !o.certain {
			return // the shares are not fixed
		}
		if !o.to.IsValid() {
			continue
		}
		last := len(steps)
		if o.action != "DNAT" {
			if k := slices.IndexFunc(steps, func(s netfilter.Step) bool { return s.Ref == o.where }); k >= 0 {
				last = k
			}
		}
		to := report.JoinHostPort(o.to.Addr().String(), int32(o.to.Port()))
		k := slices.IndexFunc(all, func(c connections) bool { return c.to == to })
		if k < 0 {
			all = append(all, connections{to: to})
			k = len(all) - 1
		}
		all[k].share += o.share
		all[k].last = max(all[k].last, last)
	}
	for i := range steps {
		if len(endpoints[i]) > 0 || steps[i].AtMost {
			continue
		}
		var rest []string
		sum := 0.0
		for _, c := range all {
			if c.last >= i {
				rest, sum = append(rest, c.to), sum+c.share
			}
		}
		if len(rest) > 0 && len(rest) < len(all) && math.Abs(sum-steps[i].P) < 1e-9 {
			endpoints[i] = rest
		}
	}
}

// inOrder returns steps in the order of the rules. A walk follows one branch of the packets after the other: what
// another one meets in the same base chain comes behind it there, also where its rule stands before. Each base chain is
// ordered for itself, with the chains that it calls.
func inOrder(steps []netfilter.Step) []netfilter.Step {
	out := make([]netfilter.Step, 0, len(steps))
	for i := 0; i < len(steps); {
		n := 1
		for i+n < len(steps) {
			s := &steps[i+n]
			if s.Ref.Hook != steps[i].Ref.Hook || s.Ref.Chain == nil ||
				s.Ref.Chain.Base != nil && s.Ref.Chain != steps[i].Ref.Chain {
				break
			}
			n++
		}
		out = append(out, byRule(steps[i:i+n], 0)...)
		i += n
	}
	return out
}

// maxCalls is how deep chains that call one another are ordered; the kernel allows 16.
const maxCalls = 16

// byRule orders the steps of a chain, that of the first, by its rules, each followed by the steps of the chains that it
// calls. The chain's policy comes last.
func byRule(steps []netfilter.Step, depth int) []netfilter.Step {
	if len(steps) < 2 || depth > maxCalls {
		return steps
	}
	number := func(s *netfilter.Step) int {
		if s.Ref.Rule == nil {
			return math.MaxInt
		}
		return s.Ref.Rule.Num
	}
	var groups [][]netfilter.Step
	for i := range steps {
		if steps[i].Ref.Chain == steps[0].Ref.Chain {
			groups = append(groups, steps[i:i:len(steps)])
		}
		last := len(groups) - 1
		groups[last] = groups[last][:len(groups[last])+1]
	}
	slices.SortStableFunc(groups, func(a, b []netfilter.Step) int { return cmp.Compare(number(&a[0]), number(&b[0])) })
	out := make([]netfilter.Step, 0, len(steps))
	for _, g := range groups {
		out = append(append(out, g[0]), byRule(g[1:], depth+1)...)
	}
	return out
}
