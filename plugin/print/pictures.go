// SPDX-License-Identifier: Apache-2.0

package print

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// How much is drawn before the rest is counted.
const (
	pictureLimit = 20
	chainLimit   = 8
	endLimit     = 8
	wrongEnds    = 16
)

// drawing is a picture with the paths that it is of.
type drawing struct {
	picture.Picture
	verdict report.Verdict
	rows    []row
	paths   []*report.Path
	ends    []*picture.EndToEnd // of those paths that were followed beyond the node
}

// parts are what is drawn of it: a connection that was followed beyond the node as a whole, and the node's rules where
// it was not, or where something is not right there.
func (d *drawing) parts() []picture.Drawing {
	var out []picture.Drawing
	for _, e := range d.ends {
		out = append(out, e)
	}
	if len(d.ends) < len(d.paths) || len(d.paths) == 0 || slices.ContainsFunc(d.paths, nodeNotRight) {
		out = append(out, &d.Picture)
	}
	return out
}

// nodeNotRight tells whether the segment of the client's node, or of that which connections come in to, is not as it
// should be.
func nodeNotRight(p *report.Path) bool {
	return slices.ContainsFunc(p.Segments, func(s report.Segment) bool {
		return s.OfFirstNode() && s.Verdict != report.SegmentRight
	})
}

// beyondNode tells whether what is wrong with paths is behind the client's node, or before it.
func beyondNode(paths []*report.Path) bool {
	return slices.ContainsFunc(paths, func(p *report.Path) bool {
		return slices.ContainsFunc(p.Segments, func(s report.Segment) bool { return s.Lost })
	}) && !slices.ContainsFunc(paths, nodeNotRight)
}

// pictures draws the paths of a report that there is reason to look at: of verify those that are not right (all of them
// with --show-all); of trace those of the nodes that a table shows. more counts, in words, those beyond pictureLimit.
func (t *text) pictures() (out []picture.Drawing, more string) {
	var nodes []*report.NodeReport
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		if t.report.Kind == report.KindVerify || n.Verdict.NeedsAttention() || len(t.report.Nodes) <= fullNodes {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 && len(t.report.Nodes) > 0 {
		nodes = append(nodes, &t.report.Nodes[0]) // of many that are all right, one is shown
	}
	left := 0
	for _, n := range nodes {
		for _, d := range t.drawingsOf(n) {
			if len(out) >= pictureLimit {
				left++
				continue
			}
			out = append(out, d.parts()...)
		}
	}
	if left > 0 {
		more = "… and " + andMore(left, "more path")
	}
	return out, more
}

// drawingsOf draws the paths of a node.
func (t *text) drawingsOf(n *report.NodeReport) []drawing {
	if n.Error != "" {
		failed := picture.Picture{Node: n.Node, Failure: n.Error, Verdict: verdictText(n.Verdict)}
		return []drawing{{Picture: failed, verdict: n.Verdict}}
	}
	var out []drawing
	for from := 0; from < len(n.Paths); {
		to := from + 1
		for to < len(n.Paths) && sameService(n.Paths[from].Service, n.Paths[to].Service) {
			to++
		}
		for _, g := range t.groupsOf(n.Paths[from:to]) {
			first := g.paths[0]
			if t.report.Kind == report.KindVerify && !first.Verdict.NeedsAttention() && !t.view.All {
				continue
			}
			d := drawing{verdict: first.Verdict, rows: g.rows, paths: g.paths}
			d.Picture = picture.Picture{
				Node:     n.Node,
				Frontend: g.frontend,
				Verdict:  verdictText(first.Verdict),
				Lanes:    lanesOf(g.paths),
				Ends:     endsOf(g.rows),
				Beyond:   beyondNode(g.paths),
			}
			if s := first.Service; s != nil {
				d.Service = s.Namespace + "/" + s.Name
			}
			for _, p := range g.paths {
				if e := endToEndOf(n.Node, p); e != nil {
					e.Service = d.Service
					d.ends = append(d.ends, e)
				}
			}
			out = append(out, d)
		}
		from = to
	}
	return out
}

func sameService(a, b *report.ObjectRef) bool { return a == b || a != nil && b != nil && *a == *b }

// lanesOf draws how packets from the origins of paths pass the hooks.
func lanesOf(paths []*report.Path) []picture.Lane {
	var lanes []picture.Lane
	for _, p := range paths {
		l := picture.Lane{Stages: stagesOf(p)}
		from := originWithPod(&p.Origin)
		if from == "" {
			from = "anywhere"
		}
		l.From = []string{from}
		same := func(o picture.Lane) bool { return slices.EqualFunc(o.Stages, l.Stages, sameStage) }
		if k := slices.IndexFunc(lanes, same); k >= 0 {
			lanes[k].From = union(lanes[k].From, l.From)
			continue
		}
		lanes = append(lanes, l)
	}
	return lanes
}

// originWithPod names an origin with its address and pod.
func originWithPod(o *report.Origin) string {
	s := strings.TrimSpace(o.Kind + " " + o.Address)
	var more []string
	if o.Pod != "" {
		more = append(more, o.Pod)
	}
	if o.Sample {
		more = append(more, "a sample")
	}
	if len(more) > 0 {
		s += " (" + strings.Join(more, ", ") + ")"
	}
	return s
}

func sameStage(a, b picture.Stage) bool {
	return a.Hook == b.Hook && a.More == b.More && slices.EqualFunc(a.Chains, b.Chains, func(a, b picture.Chain) bool {
		return a.Table == b.Table && a.Name == b.Name && a.State == b.State && slices.Equal(a.Rules, b.Rules)
	})
}

// stagesOf sorts the steps of a path by hook and chain. Without steps there are no stages.
func stagesOf(p *report.Path) []picture.Stage {
	var stages []picture.Stage
	states := stepStates(p)
	for i := range p.Steps {
		s := &p.Steps[i]
		k := slices.IndexFunc(stages, func(o picture.Stage) bool { return o.Hook == s.Hook })
		if k < 0 {
			k = len(stages)
			stages = append(stages, picture.Stage{Hook: s.Hook})
		}
		st := &stages[k]
		state := states[i]
		c := slices.IndexFunc(st.Chains, func(o picture.Chain) bool {
			return o.Table == s.Table && o.Name == s.Chain && o.State == state
		})
		if c < 0 {
			c = len(st.Chains)
			st.Chains = append(st.Chains, picture.Chain{Table: s.Table, Name: s.Chain, State: state})
		}
		if s.Rule > 0 && !slices.Contains(st.Chains[c].Rules, s.Rule) {
			st.Chains[c].Rules = append(st.Chains[c].Rules, s.Rule)
		}
	}
	for i := range stages {
		cutChains(&stages[i])
	}
	return stages
}

// stepStates are how the steps of a path are drawn: as wrong, suspect or unknown are the rules that findings point at,
// and all of such a rule's chain where the packet meets none of those in it.
func stepStates(p *report.Path) []picture.State {
	chain := func(r report.RuleRef) report.RuleRef {
		r.Rule, r.Server = 0, ""
		return r
	}
	guilty, met := p.Guilty(), map[report.RuleRef]bool{}
	for i := range p.Steps {
		if s := &p.Steps[i]; guilty[s.RuleRef] {
			met[chain(s.RuleRef)] = true
		}
	}
	out := make([]picture.State, len(p.Steps))
	for i := range p.Steps {
		if s := &p.Steps[i]; guilty[s.RuleRef] || !met[chain(s.RuleRef)] {
			out[i] = statuses[s.Status].state
		}
	}
	return out
}

// cutChains keeps the first chains of a long list, and those that are not as they should be.
func cutChains(s *picture.Stage) {
	if len(s.Chains) <= chainLimit {
		return
	}
	var kept []picture.Chain
	for i, c := range s.Chains {
		if i < chainLimit-1 || c.State != picture.OK && len(kept) < 2*chainLimit {
			kept = append(kept, c)
		}
	}
	s.More, s.Chains = len(s.Chains)-len(kept), kept
}
