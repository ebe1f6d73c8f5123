// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// statuses has the word and the colour of each status of a row. A status with a finding's code is printed as that.
var statuses = map[report.Status]struct {
	word  string
	state picture.State
}{
	report.StatusOK:            {"ok", picture.OK},
	report.StatusByDesign:      {"by design", picture.ByDesign},
	report.StatusUnknown:       {"unknown", picture.Unknown},
	report.StatusUneven:        {"uneven", picture.Suspect},
	report.StatusMissing:       {"MISSING", picture.Wrong},
	report.StatusStale:         {"STALE", picture.Wrong},
	report.StatusDropped:       {"DROPPED", picture.Wrong},
	report.StatusRejected:      {"REJECTED", picture.Wrong},
	report.StatusNoRoute:       {"NO ROUTE", picture.Wrong},
	report.StatusNotTranslated: {"NOT TRANSLATED", picture.Wrong},
	report.StatusWrong:         {"wrong", picture.Wrong},
	report.StatusSuspect:       {"suspect", picture.Suspect},
}

// row is a row of a report as it is printed.
type row struct {
	cells
	of *report.Row // nil for a row that counts others
}

// cells are the texts of a row, and how it is coloured.
type cells struct {
	endpoint, pod, node string
	masquerade          string
	expected, actual    string
	observed            string
	status              string
	state               picture.State
}

// group is a frontend with the origins for which the same is true.
type group struct {
	frontend string
	from     []string
	rows     []row
	paths    []*report.Path
}

// groupsOf folds the paths of one node: origins whose rows print the same are one group.
func (t *text) groupsOf(paths []report.Path) []group {
	var groups []group
	for i := range paths {
		p := &paths[i]
		frontend, rows := frontendText(&p.Frontend), t.rowsOf(p)
		from := originText(paths, p)
		k := slices.IndexFunc(groups, func(g group) bool {
			return g.frontend == frontend &&
				slices.EqualFunc(g.rows, rows, func(a, b row) bool { return a.cells == b.cells })
		})
		if k < 0 {
			k = len(groups)
			groups = append(groups, group{frontend: frontend, rows: rows})
		}
		g := &groups[k]
		g.paths = append(g.paths, p)
		if from != "" && !slices.Contains(g.from, from) {
			g.from = append(g.from, from)
		}
	}
	return groups
}

// originText names an origin; with its address where the frontend is seen from several of the kind.
func originText(paths []report.Path, p *report.Path) string {
	for i := range paths {
		q := &paths[i]
		if q.Frontend == p.Frontend && q.Origin.Kind == p.Origin.Kind && q.Origin.Address != p.Origin.Address {
			return p.Origin.Kind + " " + p.Origin.Address
		}
	}
	return p.Origin.Kind
}

// rowsOf makes the rows of a path ready for printing.
func (t *text) rowsOf(p *report.Path) []row {
	out := make([]row, len(p.Rows))
	for i := range p.Rows {
		r := &p.Rows[i]
		s := statuses[r.Status]
		c := cells{
			endpoint: destinationText(r), pod: t.podText(r.Pod), node: r.Node,
			expected: partText(r.Expected), actual: partText(r.Actual), observed: observedCell(r.Observed, p.Observed),
			status: s.word, state: s.state,
		}
		if r.Code != "" && r.Status != report.StatusByDesign {
			c.status = r.Code
		}
		if r.Code != "" && r.Code == p.Frontend.Kind { // headless, or another name
			c.endpoint = "(by DNS alone)"
		}
		e, a := r.Expected.Share, r.Actual.Share
		if r.Status == report.StatusUneven && e != nil && a != nil && c.expected == c.actual {
			c.expected, c.actual = fmt.Sprintf("%.4f%%", *e*100), fmt.Sprintf("%.4f%%", *a*100)
		}
		if t.wide && r.Address != "" && !nothing(r.Expected) {
			c.masquerade = p.Expected.Masquerade
		}
		out[i] = row{c, r}
	}
	return out
}

// destinationText names where the connections of a row end; "" where the row is of all of them.
func destinationText(r *report.Row) string {
	switch {
	case r.Address != "":
		return report.JoinHostPort(r.Address, r.Port)
	case r.Action == "Proxy":
		return "(kube-proxy itself)"
	case r.Action != "":
		return "(" + report.ActionText(r.Action) + ")"
	case r.Code != "" && r.Status == report.StatusByDesign:
		return "(" + r.Code + ")"
	}
	return ""
}

// nothing tells whether a part is a share of none.
func nothing(p report.Part) bool { return p.Share != nil && *p.Share == 0 }

// shortBy shortens, for a cell, by what IPVS distributes connections (report.Actual.Sharing).
var shortBy = map[string]string{"client address": "client", "order of real servers": "order"}

// partText writes what a row has of the connections.
func partText(p report.Part) string {
	switch {
	case p.Text != "":
		return p.Text
	case p.By != "":
		if short := shortBy[p.By]; short != "" {
			return "by " + short
		}
		return "by " + p.By
	case nothing(p):
		return "-"
	case p.Share != nil:
		return share(*p.Share)
	}
	return "?"
}

// observedCell writes what real connections showed of a row.
func observedCell(r *report.RowObserved, o *report.Observed) string {
	if r == nil {
		return ""
	}
	var parts []string
	if r.Count != nil {
		sent, connected := *r.Count, r.Connected
		switch {
		case sent == connected || len(r.Events) == 0:
			parts = append(parts, fmt.Sprintf("%d of %d", sent, o.Probes))
		default:
			parts = append(parts, fmt.Sprintf("%d of %d sent there, %d connected", sent, o.Probes, connected))
		}
	}
	if len(r.Events) > 0 {
		parts = append(parts, eventsText(r.Events))
	}
	if len(parts) == 0 {
		return "?"
	}
	return strings.Join(parts, "; ")
}

// eventsText says what became of connections: "2 refused, 1 timed out".
func eventsText(events []report.Event) string {
	texts := make([]string, len(events))
	for i, e := range events {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}

// podText leaves the namespace out where it is that of the Service.
func (t *text) podText(pod string) string {
	if ns, name, ok := strings.Cut(pod, "/"); ok && ns == t.view.Namespace && !t.wide {
		return name
	}
	return pod
}

// rowLimit is how many rows of a group are shown before the rest is counted; differLimit, how many of those that
// differ.
const (
	rowLimit    = 12
	differLimit = 24
)

// cut keeps the rows of a long list that tell something, and counts the rest; wide output, and one for a
// program, never cuts.
func (t *text) cut(rows []row) []row {
	if t.wide || t.noHeaders {
		return rows
	}
	return fold(rows, rowLimit, differLimit)
}

// fold keeps of more than limit rows those that are not as expected, at most differ of them, and counts the rest.
func fold(rows []row, limit, differ int) []row {
	if len(rows) <= limit {
		return rows
	}
	var same, other []row
	for _, r := range rows {
		if r.state == picture.OK {
			same = append(same, r)
		} else {
			other = append(other, r)
		}
	}
	slices.SortStableFunc(other, func(a, b row) int { return int(b.state) - int(a.state) })
	rest := func(n int, what string) row {
		return row{cells: cells{endpoint: fmt.Sprintf("… and %d more, %s", n, what)}}
	}
	if len(other) == 0 {
		return append(slices.Clone(rows[:limit/2]), rest(len(rows)-limit/2, "all ok"))
	}
	out := slices.Clone(other[:min(len(other), differ)])
	if n := len(other) - len(out); n > 0 {
		out = append(out, rest(n, "not as expected"))
	}
	if len(same) > 0 {
		out = append(out, rest(len(same), "all ok"))
	}
	return out
}

// counts tells whether a row only counts others.
func (r *row) counts() bool { return r.of == nil }

// end makes a row the end of a picture.
func (r *row) end() picture.End {
	e := picture.End{Lines: []string{r.endpoint}, Status: r.status, State: r.state, Counts: r.counts()}
	if r.endpoint == "" {
		e.Lines[0] = r.actual
	}
	switch {
	case r.node == "" && r.pod == "":
	case r.node == "":
		e.Lines = append(e.Lines, r.pod)
	case r.pod == "":
		e.Lines = append(e.Lines, "on "+r.node)
	default:
		e.Lines = append(e.Lines, r.pod+" on "+r.node)
	}
	if r.observed != "" {
		e.Lines = append(e.Lines, "observed "+r.observed)
	}
	if e.Counts {
		return e
	}
	e.Missed = nothing(r.of.Actual) && !nothing(r.of.Expected)
	switch {
	case e.Missed:
		e.Share = "none, " + r.expected + " expected"
	case r.expected == r.actual || nothing(r.of.Expected):
		e.Share = r.actual
	default:
		e.Share = r.actual + ", " + r.expected + " expected"
	}
	return e
}

// endsOf makes the ends of a picture of a group's rows.
func endsOf(rows []row) []picture.End {
	shown := fold(rows, endLimit, wrongEnds)
	out := make([]picture.End, len(shown))
	for i := range shown {
		out[i] = shown[i].end()
	}
	return out
}
