// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// contest compares what several expectations of a node ask for with what its rules do.
type contest struct {
	*worker

	nodes []*node
	alike map[string]int // how many paths were walked that tell the same expectations apart
	// better counts the Services whose rules are right by one expectation and wrong by another; shows tells whether some
	// rule leads to endpoints as one asks, where the other asks for nothing.
	better [][]int
	shows  [][]bool
}

// service compares the paths of a Service about which the expectations do not agree.
func (c *contest) service(svc *corev1.Service) {
	right := make([][]int, len(c.nodes)) // 1: right by one and wrong by the other on some path; 3: and the reverse
	for i := range right {
		right[i] = make([]int, len(c.nodes))
	}
	wants := make([]expect.Path, len(c.nodes))
	class := make([]byte, len(c.nodes))
	var frontends []expect.Frontend
	seen := map[expect.Frontend]bool{}
	for _, w := range c.nodes {
		for _, f := range w.exp.Frontends(svc) {
			if !seen[f] {
				frontends, seen[f] = append(frontends, f), true
			}
		}
	}
	for f, o := range c.telling(svc, frontends) {
		if several := c.classify(wants, class, f, o); !several || c.alike[string(class)] >= mostAlike {
			continue
		}
		c.alike[string(class)]++
		c.path(svc, wants, class, right)
	}
	told := slices.ContainsFunc(right, func(of []int) bool { return slices.Contains(of, 1) })
	if !told || !c.served(svc, frontends, wants, class) {
		return
	}
	for i := range right {
		for j := range right[i] {
			if right[i][j] == 1 {
				c.better[i][j]++
			}
		}
	}
}

// served tells whether the rules do all that the expectations agree on for a Service. Where they do not, what else they
// lack of the Service may be the same fault, and shows nothing of the version.
func (c *contest) served(svc *corev1.Service, frontends []expect.Frontend, wants []expect.Path, class []byte) bool {
	for f, o := range c.telling(svc, frontends) {
		if several := c.classify(wants, class, f, o); !several && fitOf(c.walked(svc, wants).under(c.nodes[0])) == differs {
			return false
		}
	}
	return true
}

// telling are the paths of a Service that can show something: not those of a family that is not programmed at all, nor
// NodePorts while it is not known at which addresses there are any.
func (c *contest) telling(svc *corev1.Service, frontends []expect.Frontend) iter.Seq2[expect.Frontend, expect.Origin] {
	return func(yield func(expect.Frontend, expect.Origin) bool) {
		for _, f := range frontends {
			if !c.survey.programmed[netfilter.FamilyOf(f.Address)] ||
				f.Kind == expect.NodePort && c.isOpen(kubeproxy.NodePortRanges) != nil {
				continue
			}
			for _, o := range c.originsOf(svc, f, nil) {
				if !o.quiet && c.blind(svc, f, o.Origin) == "" && !yield(f, o.Origin) {
					return
				}
			}
		}
	}
}

// walked walks the path that expectations are for.
func (c *contest) walked(svc *corev1.Service, wants []expect.Path) *pathCase {
	p := &pathCase{worker: c.worker, svc: svc, want: &wants[0]}
	f, o := wants[0].Frontend, wants[0].Origin
	p.res = c.walker.Walk(start(f, o), netfilter.Options{Enters: c.enters(&f, &o, false)})
	p.got = c.outcomesOf(f, &p.res)
	return p
}

// classify asks each expectation for a path, and numbers the answers; several is false where all of them are the same.
func (c *contest) classify(wants []expect.Path, class []byte, f expect.Frontend, o expect.Origin) (several bool) {
	for i, w := range c.nodes {
		wants[i], class[i] = w.exp.Path(f, o), byte(i)
		if first := slices.IndexFunc(wants[:i], func(x expect.Path) bool { return x.Same(&wants[i]) }); first >= 0 {
			class[i] = class[first]
		}
		several = several || class[i] != 0
	}
	return several
}

// path walks a path once, and judges it by each of the answers.
func (c *contest) path(svc *corev1.Service, wants []expect.Path, class []byte, right [][]int) {
	p := c.walked(svc, wants)
	verdicts := make([]fit, len(c.nodes))
	for i, w := range c.nodes {
		if first := slices.Index(class, class[i]); first < i {
			verdicts[i] = verdicts[first]
			continue
		}
		verdicts[i] = fitOf(p.under(w))
	}
	for i := range verdicts {
		for j := range verdicts {
			if verdicts[i] != fits || verdicts[j] != differs {
				continue
			}
			if right[j][i] != 0 {
				right[i][j], right[j][i] = 3, 3
			} else if right[i][j] == 0 {
				right[i][j] = 1
			}
			if wants[i].Action == expect.DNAT && wants[j].Action == expect.None {
				c.shows[i][j] = true
			}
		}
	}
}

// fit tells whether what the rules do is what an expectation asks for.
type fit uint8

const (
	notTold fit = iota
	fits
	differs
)

// fitOf leaves out whose source is translated: a rule that all Services share may be missing, whatever the version.
func fitOf(p *pathCase) fit {
	wrong := slices.ContainsFunc(p.found, func(f report.Finding) bool {
		return f.Severity == report.Error && f.Code != WrongMasquerade
	})
	switch {
	case wrong:
		return differs
	case p.verdict == report.Unknown:
		return notTold
	}
	return fits
}

// rulesOut tells whether expectation i shows that j is not the node's.
func (c *contest) rulesOut(i, j int) bool {
	votes, against := c.better[i][j], c.better[j][i]
	return votes >= enoughServices && against*10 <= votes || c.shows[i][j] && against == 0
}
