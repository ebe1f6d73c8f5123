// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// walked is what a packet met: the steps of its walk, and the chains that it was sent to, also those without a rule.
type walked struct {
	*node

	steps  []netfilter.Step
	chains []*netfilter.Chain
}

// walkedSteps walks the path's packet once more, for its steps.
func (p *pathCase) walkedSteps() *walked {
	if p.steps != nil {
		return p.steps
	}
	p.steps = p.stepsOf(start(p.want.Frontend, p.want.Origin), netfilter.Options{Steps: true})
	return p.steps
}

// stepsOf walks a packet for its steps.
func (p *pathCase) stepsOf(s netfilter.Start, opt netfilter.Options) *walked {
	res := p.walker.Walk(s, opt)
	w := &walked{node: p.node, steps: res.Steps}
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Kind == netfilter.StepCall {
			w.chains = append(w.chains, s.Target)
		}
	}
	return w
}

// met returns the first chain that belongs to a Service port, and whose name starts with the prefix; nil for an empty
// prefix.
func (w *walked) met(prefix string) *netfilter.Chain {
	for _, c := range w.chains {
		if w.mode.home(c.Table) && w.mode.names().ofService(c.Name, prefix) {
			return c
		}
	}
	return nil
}

// services returns the chain of all Services, if the packet came to it.
func (w *walked) services() *netfilter.Chain {
	for _, c := range w.chains {
		if w.mode.home(c.Table) && c.Name == w.mode.names().Services {
			return c
		}
	}
	return nil
}

// serviceChain returns the chain that chooses among the endpoints.
func (w *walked) serviceChain() *netfilter.Chain {
	if c := w.met(w.mode.names().Cluster); c != nil {
		return c
	}
	return w.met(w.mode.names().Local)
}

// masquerading quotes the rules that have to do with masquerading.
func (w *walked) masquerading() []report.Evidence {
	var out []report.Evidence
	for i := range w.steps {
		s := &w.steps[i]
		if s.Ref.Rule == nil || !w.masquerades(s) {
			continue
		}
		if line := cite(s.Ref); !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	if len(out) > 0 {
		return out
	}
	c := w.met(w.mode.names().External)
	if c == nil {
		c = w.serviceChain()
	}
	if c == nil {
		return nil
	}
	return append(say("no rule on the path "+w.mode.names().marks()), quote(c)...)
}

// masquerades tells whether a step marks a packet for masquerade, or translates its source.
func (w *walked) masquerades(s *netfilter.Step) bool {
	switch s.Kind {
	case netfilter.StepCall:
		return s.Target.Name == w.writerOf(netfilter.Ref{Chain: s.Target}).names().MarkMasq
	case netfilter.StepMark:
		return !s.Mark.Connection && w.byKubeProxy(s.Ref)
	case netfilter.StepTranslate:
		return s.NAT.Side == netfilter.Source
	default:
		return false
	}
}

// translates tells whether a chain has a rule that translates to an address written in it.
func translates(c *netfilter.Chain) bool {
	return slices.ContainsFunc(c.Rules, func(r *netfilter.Rule) bool { return r.NAT.IsValid() })
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
	next := slices.Clone(from)
	for len(next) > 0 {
		c := next[len(next)-1]
		next = next[:len(next)-1]
		if c == nil || seen[c] {
			continue
		}
		seen[c] = true
		next = append(next, c.Targets()...)
	}
	return seen
}
