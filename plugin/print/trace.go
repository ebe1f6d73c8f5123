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
	shown := t.quietNodes()
	single := len(shown) == 1
	for _, n := range shown {
		if single || n.Error != "" {
			t.nodeHeader(n)
		}
	}
	t.impact()
	found, notes := t.found(blocksOf(t.report, false))
	several := len(t.report.Nodes) > 1
	t.blocks(found, several, 0)
	more := 0
	for i, n := range shown {
		if n.Error != "" {
			continue
		}
		if i >= wrongNodes && !t.wide {
			more++
			continue
		}
		t.Blank()
		if !single {
			t.nodeHeader(n)
			t.Blank()
		}
		t.samples(t.pathTable("", n.Paths))
		t.segments(n.Paths)
		if t.wide {
			t.steps(n.Paths)
		}
	}
	if more > 0 {
		t.Blank()
		t.Linef("… and %s", andMore(more, "more node"))
	}
	t.blocks(notes, several, 0)
	t.Blank()
}

// impact says what the verdict means for connections, unless all is as it should be.
func (t *text) impact() {
	said := report.Impact(t.report)
	if said == "" {
		return
	}
	verdict := strings.ToUpper(verdictText(t.report.Verdict))
	for i, line := range t.wrapped(verdict + ": " + said) {
		if i > 0 {
			t.Addf("%-*s", labelWidth, "")
			t.Linef("%s", line)
			continue
		}
		t.Addf("%-*s", labelWidth, "Impact")
		t.Add(colorOf(t.report.Verdict), verdict)
		t.Linef("%s", strings.TrimPrefix(line, verdict))
	}
}

// found tells what is said first, as the verdict is due to it, from what is only worth knowing.
func (t *text) found(blocks []*block) (found, notes []*block) {
	for _, b := range blocks {
		if pressing(b.verdict) ||
			b.verdict == report.ByDesign && t.report.Verdict == report.ByDesign {
			found = append(found, b)
		} else {
			notes = append(notes, b)
		}
	}
	return found, notes
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

// pathTable is the table of frontends and endpoints of one node. Where something is not right, what is right is
// counted. It returns the paths that are shown. With the name of a node each row begins with that.
func (t *text) pathTable(node string, paths []report.Path) (shown []report.Path) {
	groups, folded := t.foldHealthy(t.groupsOf(paths))
	tab := &table{columns: []column{
		{"ON", false},
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
	heads := make([]heading, 0, len(groups))
	for _, g := range groups {
		for _, p := range g.paths {
			shown = append(shown, *p)
		}
		from := strings.Join(g.from, ",")
		heads = append(heads, heading{len(tab.rows), seenFrom(g.frontend, g.from)})
		front := g.frontend
		for _, r := range t.cut(g.rows) {
			tab.add(node, front, from, r.endpoint, r.pod, r.node, r.masquerade, r.expected, r.actual, r.observed, r.status)
			states = append(states, r.state)
			if !t.noHeaders { // a line by itself has to say all
				front, from = "", ""
			}
		}
	}
	if len(groups) > 0 {
		tab = tab.dropEmpty("ON", "FROM", "ENDPOINT", "POD", "NODE", "MASQUERADE", "OBSERVED")
		tab, stacked := t.fit(tab, states)
		for _, l := range tab.lines() {
			if k := slices.IndexFunc(heads, func(h heading) bool { return l.first && h.row == l.row }); stacked && k >= 0 {
				for _, line := range t.hanging(heads[k].text) {
					t.Add(bold, line)
					t.End()
				}
			}
			t.tableLine(l, func(row int) terminal.Color { return stateColor(states[row]) })
		}
	}
	if folded != "" {
		t.Linef("%s", folded)
	}
	return shown
}

// briefRows is how many rows a table has at most in which every endpoint of a healthy frontend is shown.
const briefRows = 12

// foldHealthy leaves the groups that are right out where something else asks for attention, and counts their paths in a
// line. Where nothing does, and the table would be long, each of them has one row.
func (t *text) foldHealthy(groups []group) (kept []group, folded string) {
	if t.wide || t.noHeaders {
		return groups, ""
	}
	healthy := func(g group) bool {
		return !slices.ContainsFunc(g.paths, func(p *report.Path) bool { return p.Verdict.NeedsAttention() })
	}
	if !t.report.Verdict.NeedsAttention() {
		rows := 0
		for _, g := range groups {
			rows += len(g.rows)
		}
		if rows <= briefRows || len(groups) == 1 {
			return groups, ""
		}
		for i := range groups {
			groups[i].rows = brief(groups[i].rows)
		}
		return groups, "(-o wide shows each endpoint)"
	}
	right, byDesign := 0, 0
	for _, g := range groups {
		if !healthy(g) {
			kept = append(kept, g)
			continue
		}
		for _, p := range g.paths {
			if p.Verdict == report.ByDesign {
				byDesign++
			} else {
				right++
			}
		}
	}
	more := "path"
	if len(kept) > 0 {
		more = "more path"
	}
	switch {
	case right+byDesign == 0:
		return kept, ""
	case byDesign == 0:
		folded = plaintext.Plural(right, more) + map[bool]string{true: " is", false: " are"}[right == 1] + " right"
	default:
		folded = fmt.Sprintf("%s: %d right, %d by design", plaintext.Plural(right+byDesign, more), right, byDesign)
	}
	return kept, "… and " + folded + " " + wideShows(right+byDesign)
}

// brief makes one row of those of several endpoints, where nothing is to be said of any of them.
func brief(rows []row) []row {
	if len(rows) < 2 || slices.ContainsFunc(rows, func(r row) bool {
		return r.state != picture.OK || r.of.Address == "" || r.observed != ""
	}) {
		return rows
	}
	return []row{{
		cells: cells{
			endpoint: plaintext.Plural(len(rows), "endpoint"), expected: "100%", actual: "100%",
			status: rows[0].status, state: picture.OK,
		},
		of: rows[0].of,
	}}
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

// movedBelow are the columns of a table of paths that are the first to have no room in a narrow terminal: what is right
// or wrong always stays in the table.
var movedBelow = []string{"NODE", "POD", "MASQUERADE", "OBSERVED", "EXPECTED", "ACTUAL"}

// fit makes a table fit a terminal: it stacks the frontends above their endpoints, then has what else is known of an
// endpoint below it; of those with which nothing is wrong only in wide output.
func (t *text) fit(tab *table, states []picture.State) (fitted *table, stacked bool) {
	if t.columns == 0 || tab.width() <= t.columns {
		return tab, false
	}
	low := tab.without("FRONTEND").without("FROM")
	low.columns = slices.Clone(low.columns)
	low.columns[0].head = "  " + low.columns[0].head
	for _, r := range low.rows {
		r[0] = "  " + r[0]
	}
	low = low.fit(t.columns, nil, movedBelow...)
	for i := range low.below {
		if !t.wide && states[i] == picture.OK {
			low.below[i] = nil
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
