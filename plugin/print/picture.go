// SPDX-License-Identifier: Apache-2.0

package print

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"slices"
	"strconv"
	"strings"
)

// picture is what becomes of the packets to one frontend on one node, as it is drawn: lanes on the left, one for each way that a
// packet takes through the hooks, and on the right the ends that all of them come to. The formats that draw differ in their ink alone.
type picture struct {
	service  string // namespace/name; empty where the whole report is of one Service
	node     string
	frontend string
	failure  string // why there is nothing to draw: the node could not be inspected
	verdict  report.Verdict
	lanes    []lane
	ends     []row // the last may count those that are not drawn
	paths    []*report.Path
}

// lane is the way of the packets from origins for which it is the same.
type lane struct {
	from   []string
	stages []stage
}

// stage is a hook, with the chains in which rules did something with the packet, in its order.
type stage struct {
	hook   string
	chains []chainLink
	more   int // chains that are not drawn
}

// chainLink is one chain.
type chainLink struct {
	table string // "nat", "ip kube-proxy"
	name  string // with its table: "nat KUBE-SERVICES"
	rules []int  // numbers; empty for a policy alone
	state state  // broken or unsure where a finding points at the chain
}

// How much is drawn before the rest is counted.
const (
	pictureLimit = 20
	chainLimit   = 8
	endLimit     = 8
	wrongEnds    = 16
)

// pictures draws the paths of a report that there is reason to look at: of verify those that are not right (all of them with
// --show-all); of trace those of the nodes that a table shows. more counts those beyond pictureLimit.
func (t *text) pictures() (out []picture, more int) {
	var nodes []*report.NodeReport
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		if t.report.Kind == report.KindVerify || wrong(n.Verdict) || len(t.report.Nodes) <= fullNodes {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 && len(t.report.Nodes) > 0 {
		nodes = append(nodes, &t.report.Nodes[0]) // of many that are all right, one shows how
	}
	for _, n := range nodes {
		for _, p := range t.picturesOf(n) {
			if len(out) == pictureLimit {
				more++
				continue
			}
			out = append(out, p)
		}
	}
	return out, more
}

// picturesOf draws the paths of a node.
func (t *text) picturesOf(n *report.NodeReport) []picture {
	if n.Error != "" {
		return []picture{{node: n.Node, failure: Sentence(n), verdict: n.Verdict}}
	}
	var out []picture
	for from := 0; from < len(n.Paths); {
		to := from + 1
		for to < len(n.Paths) && sameService(n.Paths[from].Service, n.Paths[to].Service) {
			to++
		}
		for _, g := range t.groupsOf(n.Paths[from:to]) {
			v := g.paths[0].Verdict
			if t.report.Kind == report.KindVerify && !wrong(v) && !t.view.All {
				continue
			}
			p := picture{node: n.Node, frontend: g.frontend, verdict: v, ends: fold(g.rows, endLimit, wrongEnds), paths: g.paths}
			if s := g.paths[0].Service; s != nil {
				p.service = s.Namespace + "/" + s.Name
			}
			p.lanes = lanesOf(g.paths)
			out = append(out, p)
		}
		from = to
	}
	return out
}

func sameService(a, b *report.ObjectRef) bool { return a == b || a != nil && b != nil && *a == *b }

// lanesOf draws the ways of packets to one frontend.
func lanesOf(paths []*report.Path) []lane {
	var lanes []lane
	for _, p := range paths {
		l := lane{stages: stagesOf(p)}
		from := strings.TrimSpace(p.Origin.Kind + " " + p.Origin.Address)
		if p.Origin.Pod != "" {
			from += " (" + p.Origin.Pod + ")"
		}
		if from == "" {
			from = "anywhere"
		}
		l.from = []string{from}
		same := func(o lane) bool {
			return slices.EqualFunc(o.stages, l.stages, func(a, b stage) bool {
				return a.hook == b.hook && a.more == b.more && slices.EqualFunc(a.chains, b.chains, func(a, b chainLink) bool {
					return a.name == b.name && a.state == b.state && slices.Equal(a.rules, b.rules)
				})
			})
		}
		if k := slices.IndexFunc(lanes, same); k >= 0 {
			lanes[k].from = union(lanes[k].from, l.from)
			continue
		}
		lanes = append(lanes, l)
	}
	return lanes
}

// stagesOf sorts the steps of a path by hook and chain. Without steps there are no stages.
func stagesOf(p *report.Path) []stage {
	var stages []stage
	places := blamed(p)
	for i := range p.Steps {
		s := &p.Steps[i]
		k := slices.IndexFunc(stages, func(o stage) bool { return o.hook == s.Hook })
		if k < 0 {
			k = len(stages)
			stages = append(stages, stage{hook: s.Hook})
		}
		st, name := &stages[k], strings.TrimSpace(s.Table+" "+s.Chain)
		c := slices.IndexFunc(st.chains, func(o chainLink) bool { return o.name == name })
		if c < 0 {
			c = len(st.chains)
			st.chains = append(st.chains, chainLink{table: s.Table, name: name, state: blame(places, name)})
		}
		if s.Rule > 0 && !slices.Contains(st.chains[c].rules, s.Rule) {
			st.chains[c].rules = append(st.chains[c].rules, s.Rule)
		}
	}
	for i := range stages {
		stages[i].cut()
	}
	return stages
}

// cut keeps the first chains of a long list, and those with which something is wrong.
func (s *stage) cut() {
	if len(s.chains) <= chainLimit {
		return
	}
	var kept []chainLink
	for i, c := range s.chains {
		if i < chainLimit-1 || c.state != right && len(kept) < 2*chainLimit {
			kept = append(kept, c)
		}
	}
	s.more, s.chains = len(s.chains)-len(kept), kept
}

// place is where a finding points, with how bad it is.
type place struct {
	where string // "nat KUBE-SVC-X rule 3", without the "nft " of native tables
	state state
}

// blamed lists the places that the findings of a path point at.
func blamed(p *report.Path) []place {
	var out []place
	add := func(s string, st state) {
		where, _, _ := strings.Cut(s, ": ")
		out = append(out, place{strings.TrimPrefix(where, "nft "), st})
	}
	for i := range p.Findings {
		f := &p.Findings[i]
		st := broken
		switch f.Severity {
		case report.Info:
			continue
		case report.Warn:
			st = off
		case report.Error:
		}
		for _, e := range f.Evidence {
			add(e, st)
		}
	}
	for i := range p.Actual.Uncertain {
		add(p.Actual.Uncertain[i].Where, unsure)
	}
	if p.Verdict == report.Mismatch && p.Expected.Action == "DNAT" {
		for i := range p.Actual.Outcomes {
			if o := &p.Actual.Outcomes[i]; o.Where != "" && o.Action != "DNAT" {
				add(o.Where, broken)
			}
		}
	}
	return out
}

// blame is the worst that is said of a chain.
func blame(places []place, chain string) state {
	worst := right
	for _, p := range places {
		rest, ok := strings.CutPrefix(p.where, chain)
		if ok && (rest == "" || strings.HasPrefix(rest, " rule ") || strings.HasPrefix(rest, " policy")) {
			worst = max(worst, p.state)
		}
	}
	return worst
}

// title names a picture.
func (p *picture) title() string {
	s := p.node
	if p.frontend != "" {
		s += ": " + p.frontend
	}
	if p.service != "" {
		s += " (" + p.service + ")"
	}
	return s
}

// text is a chain as it is labelled.
func (c *chainLink) text() string { return c.name + c.which() }

// which says which of a chain's rules did something.
func (c *chainLink) which() string {
	if len(c.rules) == 0 {
		return " policy"
	}
	return " #" + numbers(c.rules)
}

// split parts a chain's name from its table's.
func (c *chainLink) split() (table, chain string) {
	return c.table, strings.TrimPrefix(strings.TrimPrefix(c.name, c.table), " ")
}

// numbers writes rule numbers, three and more in a row as a range, and only the first of many.
func numbers(n []int) string {
	const limit = 4
	var parts []string
	for i := 0; i < len(n); {
		if len(parts) == limit {
			return strings.Join(append(parts, "…"), ",")
		}
		to := i
		for to+1 < len(n) && n[to+1] == n[to]+1 {
			to++
		}
		if to-i < 2 {
			to = i
			parts = append(parts, strconv.Itoa(n[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", n[i], n[to]))
		}
		i = to + 1
	}
	return strings.Join(parts, ",")
}

// mark says in a word what is wrong with a chain.
func (s state) mark() string {
	switch s {
	case broken:
		return "WRONG"
	case off:
		return "SUSPECT"
	case unsure:
		return "UNKNOWN"
	case right, intended:
	}
	return ""
}

// class names a state in style sheets and class definitions.
func (s state) class() string {
	return [...]string{right: "right", intended: "intended", unsure: "unsure", off: "off", broken: "broken"}[s]
}

// share is what is written at the way to an end: what arrives there, and what should where that is not the same.
func (r *row) share() string {
	switch {
	case r.expected == r.actual || r.expected == "" || r.expected == "-":
		return r.actual
	case r.missed():
		return "none, " + r.expected + " expected"
	}
	return r.actual + ", " + r.expected + " expected"
}

// missed tells whether nothing arrives where something should.
func (r *row) missed() bool { return r.actual == "-" && r.expected != "-" }

// counts tells whether a row only counts others.
func (r *row) counts() bool { return strings.HasPrefix(r.endpoint, "… and ") }

// lines are an end as it is labelled: the address, the pod with its node, what is wrong.
func (r *row) lines() []string {
	out := []string{r.endpoint}
	if r.endpoint == "" {
		out[0] = r.actual
	}
	pod := r.pod
	if r.node != "" {
		pod = strings.TrimPrefix(pod+" on "+r.node, " ")
	}
	if pod != "" {
		out = append(out, pod)
	}
	if r.observed != "" {
		out = append(out, "observed "+r.observed)
	}
	if r.status != "" && r.status != "ok" {
		out = append(out, r.status)
	}
	return out
}
