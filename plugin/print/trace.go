// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// fullNodes is up to how many nodes are shown with their tables although nothing is wrong with them; wrongNodes, how
// many of those with which something is.
const (
	fullNodes  = 3
	wrongNodes = 5
)

func (t *text) trace() {
	t.serviceHeader(t.report.Service)
	shown, more := t.quietNodes(), 0
	for i, n := range shown {
		if i > 0 {
			t.Blank()
		}
		if i >= wrongNodes && !t.wide {
			more++
			continue
		}
		t.nodeHeader(n)
		if n.Error != "" {
			continue
		}
		t.Blank()
		t.pathTable(n.Paths)
		t.samples(n.Paths)
		t.segments(n.Paths)
		if t.wide {
			t.steps(n.Paths)
		}
		t.Blank()
	}
	if more > 0 {
		t.Blank()
		t.Linef("… and %s (-o wide shows them all)", plaintext.Plural(more, "more node"))
	}
	t.Blank()
	t.blocks(blocksOf(t.report, false), len(t.report.Nodes) > 1, 0)
	t.Blank()
}

// quietNodes lists by name, where there are many nodes, those with which nothing is wrong, and returns the rest.
func (t *text) quietNodes() []*report.NodeReport {
	var shown []*report.NodeReport
	quiet := map[report.Verdict][]string{}
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		if n.Verdict.NeedsAttention() || t.wide || len(t.report.Nodes) <= fullNodes {
			shown = append(shown, n)
		} else {
			quiet[n.Verdict] = append(quiet[n.Verdict], n.Node)
		}
	}
	for _, v := range []report.Verdict{report.Match, report.ByDesign} {
		if names := quiet[v]; len(names) > 0 {
			t.say(plain, "Nodes", verdictText(v)+": "+t.list(names, nodeLimit, ", "), true)
		}
	}
	return shown
}

func verdictText(v report.Verdict) string {
	if v == report.ByDesign {
		return "by design"
	}
	return strings.ToLower(string(v))
}

// pathTable is the table of frontends and endpoints of one node.
func (t *text) pathTable(paths []report.Path) {
	groups := t.groupsOf(paths)
	if len(groups) == 0 {
		return
	}
	tab := &table{columns: []column{
		{"FRONTEND", false},
		{"FROM", false},
		{"ENDPOINT", false},
		{"POD", false},
		{"NODE", false},
		{"MASQUERADE", false},
		{"EXPECTED", true},
		{"ACTUAL", true},
		{"OBSERVED", true},
		{"STATUS", false},
	}}
	var states []picture.State
	var heads []heading
	for _, g := range groups {
		from := strings.Join(g.from, ",")
		heads = append(heads, heading{len(tab.rows), seenFrom(g.frontend, g.from)})
		front := g.frontend
		for _, r := range t.cut(g.rows) {
			tab.add(front, from, r.endpoint, r.pod, r.node, r.masquerade, r.expected, r.actual, r.observed, r.status)
			states = append(states, r.state)
			front, from = "", ""
		}
	}
	tab = tab.dropEmpty("FROM", "ENDPOINT", "POD", "NODE", "MASQUERADE", "OBSERVED")
	tab, stacked := t.fit(tab)
	for _, l := range tab.lines() {
		if k := slices.IndexFunc(heads, func(h heading) bool { return l.first && h.row == l.row }); stacked && k >= 0 {
			t.Add(bold, heads[k].text)
			t.End()
		}
		t.tableLine(l, func(row int) terminal.Color { return stateColor(states[row]) })
	}
}

// heading is a line of its own above the rows of a frontend.
type heading struct {
	row  int
	text string
}

func stateColor(s picture.State) terminal.Color {
	switch s {
	case picture.OK:
		return green
	case picture.ByDesign:
		return cyan
	case picture.Unknown, picture.Suspect:
		return yellow
	case picture.Wrong:
		return red
	}
	return plain
}

// fit makes a table fit a terminal: it shortens names, then stacks the frontends above their endpoints, then leaves the
// node and the pod out. What is right or wrong always stays.
func (t *text) fit(tab *table) (fitted *table, stacked bool) {
	if t.Width == 0 || tab.width() <= t.Width {
		return tab, false
	}
	if s := tab.squeeze("POD", 20, t.Width).squeeze("NODE", 12, t.Width); s.width() <= t.Width {
		return s, false
	}
	low := tab.without("FRONTEND").without("FROM")
	low.columns = slices.Clone(low.columns)
	low.columns[0].head = "  " + low.columns[0].head
	for _, r := range low.rows {
		r[0] = "  " + r[0]
	}
	for _, leave := range []string{"", "NODE", "POD"} {
		low = low.without(leave)
		s := low.squeeze("POD", 16, t.Width).squeeze("NODE", 10, t.Width).squeeze("STATUS", 12, t.Width)
		if s.width() <= t.Width {
			return s, true
		}
	}
	return low, true
}

// kernelText says how many of the connections that the kernel traced met a rule.
func kernelText(s *report.Step, traced int) string {
	if s.Kernel == nil {
		return "-"
	}
	return fmt.Sprintf("%d of %d", *s.Kernel, traced)
}

// tableText names a step's table. Of a path that meets rules of both backends of iptables it says which: either has
// tables of the same names.
func tableText(s *report.Step, path []report.Step) string {
	if !s.OfIPTables() ||
		!slices.ContainsFunc(path, func(o report.Step) bool { return o.OfIPTables() && o.Backend != s.Backend }) {
		return s.Table
	}
	return s.Table + " (" + s.Backend + ")"
}

// routeVerdict says in a few words what a routing decision comes to.
func routeVerdict(r *report.Route) string {
	switch {
	case r.Type == "unicast" && r.Via != "":
		return "by " + r.Dev + " via " + r.Via
	case r.Type == "unicast" && r.Dev != "":
		return "by " + r.Dev
	case r.Type == "none":
		return "no route"
	}
	return r.Type
}

// routeText is a routing decision in a line: the number of the rule, where it is none of the default ones, the route,
// and the destinations that have it.
func routeText(r *report.Route) string {
	out := "route:"
	if r.Rule != "" {
		number, _, _ := strings.Cut(r.Rule, ":")
		out += " rule " + number + " →"
		if r.Entry == "" {
			out = "route: rule " + r.Rule
		}
	}
	if r.Entry != "" {
		out += " " + r.Entry
	}
	if r.Rule == "" && r.Entry == "" {
		out += " of the default rules"
	}
	to := strings.Join(r.To, ", ")
	if r.Count > 3 || r.Count > len(r.To) {
		to = plaintext.Plural(r.Count, "destination")
	}
	return out + " (to " + to + ")"
}

// steps shows the way of each packet, rule by rule, with the routing decisions in their places.
func (t *text) steps(paths []report.Path) {
	for i := range paths {
		p := &paths[i]
		if len(p.Steps) == 0 && len(p.Routes) == 0 {
			continue
		}
		t.Blank()
		t.Linef("%s from %s, rule by rule", frontendText(&p.Frontend), originWithPod(&p.Origin))
		tab := &table{
			columns: []column{
				{"HOOK", false},
				{"TABLE", false},
				{"CHAIN", false},
				{"RULE", true},
				{"SHARE", true},
				{"KERNEL", true},
				{"VERDICT", false},
				{"TEXT", false},
			},
		}
		if p.Observed == nil || p.Observed.Traced == 0 {
			tab = tab.without("KERNEL")
		}
		routes := func(at int) {
			for k := range p.Routes {
				if r := &p.Routes[k]; r.Step == at || at == len(p.Steps) && r.Step > at {
					cells := []string{"(routing)", "", "", "", share(r.Share)}
					if o := p.Observed; o != nil && o.Traced > 0 {
						cells = append(cells, "-")
					}
					tab.add(append(cells, plaintext.Clean(routeVerdict(r)), plaintext.Clean(routeText(r)))...)
				}
			}
		}
		for k := range p.Steps {
			routes(k)
			s := &p.Steps[k]
			number := "-"
			if s.Rule > 0 {
				number = fmt.Sprint(s.Rule)
			}
			cells := []string{s.Hook, tableText(s, p.Steps), s.Chain, number, share(s.Share)}
			if o := p.Observed; o != nil && o.Traced > 0 {
				cells = append(cells, kernelText(s, o.Traced))
			}
			tab.add(append(cells, s.Verdict, plaintext.Clean(s.Text))...)
		}
		routes(len(p.Steps))
		t.table(tab, func(int) terminal.Color { return plain })
		if o := p.Observed; o != nil && o.TraceError != "" {
			t.Linef("The kernel's own trace is not to be had: %s", o.TraceError)
		}
		if o := p.Observed; o != nil && o.LegacyError != "" {
			t.Linef("The kernel's own trace is without rules of iptables-legacy: %s", o.LegacyError)
		}
	}
}
