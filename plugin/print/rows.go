// SPDX-License-Identifier: Apache-2.0

package print

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
)

// sameShare is how far shares may differ and still be shown as equal (docs/report.md).
const sameShare = 1e-4

// state says how bad a row is; of many rows the worst are shown.
type state int

const (
	right state = iota
	intended
	unsure
	off
	broken
)

// row is what becomes of one share of the connections to a frontend.
type row struct {
	endpoint, pod, node string
	expected, actual    string
	observed            string // of real connections
	masquerade          string
	status              string
	state               state
}

// group is a frontend with the origins for which the same is true.
type group struct {
	frontend string
	from     []string
	rows     []row
	paths    []*report.Path
}

// groupsOf folds the paths of one node: origins with the same rows are one group.
func (t *text) groupsOf(paths []report.Path) []group {
	var groups []group
	for i := range paths {
		p := &paths[i]
		frontend, rows := frontendText(&p.Frontend), t.rowsOf(p)
		from := originText(paths, p)
		if k := slices.IndexFunc(groups, func(g group) bool { return g.frontend == frontend && slices.Equal(g.rows, rows) }); k >= 0 {
			groups[k].paths = append(groups[k].paths, p)
			if from != "" && !slices.Contains(groups[k].from, from) {
				groups[k].from = append(groups[k].from, from)
			}
			continue
		}
		g := group{frontend: frontend, rows: rows, paths: []*report.Path{p}}
		if from != "" {
			g.from = []string{from}
		}
		groups = append(groups, g)
	}
	return groups
}

// originText names an origin; with its address where the frontend is looked at from several of the kind.
func originText(paths []report.Path, p *report.Path) string {
	for i := range paths {
		q := &paths[i]
		if q.Frontend == p.Frontend && q.Origin.Kind == p.Origin.Kind && q.Origin.Address != p.Origin.Address {
			return p.Origin.Kind + " " + p.Origin.Address
		}
	}
	return p.Origin.Kind
}

// rowsOf holds what should happen on a path against what does, destination by destination.
func (t *text) rowsOf(p *report.Path) []row {
	var rows []row
	switch {
	case p.Verdict == report.ByDesign && leads(p): // to endpoints from which no answer comes back
		rows = t.endpointRows(p)
		for i := range rows {
			rows[i].state, rows[i].status = intended, "by design"
		}
		return rows
	case p.Verdict == report.ByDesign:
		rows = []row{{
			endpoint: "(" + reasonOf(p) + ")", expected: refusal(p.Expected.Action), actual: endsOf(p), state: intended, status: "by design",
		}}
		return rows
	case p.Expected.Action == "DNAT":
		rows = t.endpointRows(p)
	case p.Expected.Action == "Proxy":
		rows = []row{{endpoint: "(kube-proxy itself)", expected: "listens", actual: listenerOf(p), state: right, status: "ok"}}
	default:
		rows = []row{{expected: refusal(p.Expected.Action), actual: endsOf(p), state: right, status: "ok"}}
	}
	if p.Verdict == report.Unknown {
		for i := range rows {
			if rows[i].state == right || rows[i].state == off || rows[i].actual == "?" {
				rows[i].state, rows[i].status = unsure, "unknown"
			}
		}
	}
	markCode(p, rows)
	t.markObserved(p, rows)
	return rows
}

// leads tells whether packets should come to endpoints, and do.
func leads(p *report.Path) bool {
	return p.Expected.Action == "DNAT" && len(p.Actual.Outcomes) > 0 && !slices.ContainsFunc(p.Actual.Outcomes, func(o report.Outcome) bool { return o.Endpoint == nil })
}

// markObserved shows beside each endpoint how many connections it got, and how the others ended beside the first that got none.
func (t *text) markObserved(p *report.Path, rows []row) {
	o := p.Observed
	if o == nil || len(rows) == 0 {
		return
	}
	for i := range rows {
		for k := range o.Endpoints {
			if e := &o.Endpoints[k]; net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port))) == rows[i].endpoint {
				rows[i].observed = fmt.Sprintf("%d of %d", e.Count, o.Probes)
			}
		}
	}
	switch {
	case o.Error != "":
		rows[0].observed = "?"
	case len(o.Events) > 0:
		// They left no entry that tells of the endpoint: beside the first of those that got none.
		at := max(0, slices.IndexFunc(rows, func(r row) bool { return r.observed == "" }))
		rows[at].observed = strings.TrimPrefix(rows[at].observed+"; "+strings.Join(o.Events, ", "), "; ")
	case rows[0].observed == "":
		rows[0].observed = fmt.Sprintf("0 of %d", o.Probes)
	}
}

// markCode puts a finding's code where the comparison of shares shows nothing: in the rows that it names, else in the first.
func markCode(p *report.Path, rows []row) {
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Severity == report.Info {
			continue
		}
		s, marked := off, false
		if f.Severity == report.Error {
			s = broken
		}
		for k := range rows {
			named := rows[k].endpoint != "" && slices.Contains(strings.FieldsFunc(f.Subject, func(r rune) bool { return r == ',' || r == ' ' }), rows[k].endpoint)
			if rows[k].state == right && named {
				rows[k].status, rows[k].state, marked = f.Code, s, true
			}
			marked = marked || rows[k].state >= off
		}
		if !marked && len(rows) > 0 && rows[0].state == right {
			rows[0].status, rows[0].state = f.Code, s
		}
	}
}

func (t *text) endpointRows(p *report.Path) []row {
	var rows []row
	seen := map[string]bool{}
	for i := range p.Expected.Endpoints {
		e := &p.Expected.Endpoints[i]
		seen[addressText(e)] = true
		rows = append(rows, t.endpointRow(p, e))
	}
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		if o.Endpoint == nil || seen[addressText(o.Endpoint)] {
			continue
		}
		seen[addressText(o.Endpoint)] = true
		_, status := sumOf(p, o.Endpoint)
		if status == "" {
			status = "STALE"
		}
		r := row{endpoint: addressText(o.Endpoint), expected: "-", actual: certainShare(p, o.Endpoint), status: status, state: broken}
		if p.Verdict == report.Unknown {
			r.status, r.state = "unknown", unsure
		}
		rows = append(rows, r)
	}
	return append(rows, otherRows(p)...)
}

func (t *text) endpointRow(p *report.Path, e *report.Endpoint) row {
	r := row{endpoint: addressText(e), pod: t.podText(e.Pod), node: e.Node, expected: shareOf(p, e.Share), actual: certainShare(p, e), status: "ok"}
	if t.wide {
		r.masquerade = p.Expected.Masquerade
	}
	got, ended := sumOf(p, e)
	switch {
	case len(p.Actual.Outcomes) == 0:
		r.actual, r.status, r.state = "?", "unknown", unsure
	case ended != "":
		r.status, r.state = ended, broken
	case got == 0:
		r.actual, r.status, r.state = "-", "MISSING", broken
	case r.actual == "?":
		r.status, r.state = "unknown", unsure
	case p.Actual.Sharing == "" && math.Abs(got-e.Share) > sameShare:
		r.status, r.state = "uneven", off
		if r.actual == r.expected {
			r.expected, r.actual = fmt.Sprintf("%.4f%%", e.Share*100), fmt.Sprintf("%.4f%%", got*100)
		}
	}
	return r
}

// sumOf adds up what arrives at an endpoint, and says what becomes of the rest that was meant for it.
func sumOf(p *report.Path, e *report.Endpoint) (arrives float64, ended string) {
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		if o.Endpoint == nil || o.Endpoint.Address != e.Address || o.Endpoint.Port != e.Port {
			continue
		}
		if o.Action == "DNAT" {
			arrives += o.Share
		} else {
			ended = strings.ToUpper(endText(o.Action))
		}
	}
	return arrives, ended
}

// certainShare is the share to show. Where a rule could not be judged, both of its ways are in the outcomes, and their sum is not
// a share.
func certainShare(p *report.Path, e *report.Endpoint) string {
	if len(p.Actual.Uncertain) > 0 {
		return "?"
	}
	s, _ := sumOf(p, e)
	if s == 0 {
		return "-"
	}
	return shareOf(p, s)
}

// shareOf writes a share, or, where there is no fixed one, by what it is decided ("by load").
func shareOf(p *report.Path, s float64) string {
	by, _, _ := strings.Cut(p.Actual.Sharing, " ")
	if by != "" {
		return "by " + by
	}
	return share(s)
}

// otherRows are the shares that go to no endpoint at all.
func otherRows(p *report.Path) []row {
	var rows []row
	sums := map[string]float64{}
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		if o.Endpoint != nil {
			continue
		}
		what := endText(o.Action)
		if _, seen := sums[what]; !seen {
			rows = append(rows, row{endpoint: "(" + what + ")", expected: "-", status: strings.ToUpper(what), state: broken})
		}
		sums[what] += o.Share
	}
	for i := range rows {
		rows[i].actual = shareOf(p, sums[strings.Trim(rows[i].endpoint, "()")])
		if len(p.Actual.Uncertain) > 0 || p.Verdict == report.Unknown {
			rows[i].actual, rows[i].status, rows[i].state = "?", "unknown", unsure
		}
	}
	return rows
}

// listenerOf names the process that a packet comes to on the node itself.
func listenerOf(p *report.Path) string {
	for i := range p.Actual.Outcomes {
		if o := &p.Actual.Outcomes[i]; o.Listener != "" {
			return o.Listener
		}
	}
	return endsOf(p)
}

func endText(action string) string {
	switch action {
	case "Accept":
		return "not translated"
	case "Drop":
		return "dropped"
	case "Reject":
		return "rejected"
	case "None":
		return "no route"
	}
	return strings.ToLower(action)
}

func refusal(action string) string {
	switch action {
	case "Reject", "Drop":
		return strings.ToLower(action)
	case "DNAT":
		return "endpoint"
	}
	return "-"
}

// endsOf sums up, in a word or two, what becomes of the packets of a path.
func endsOf(p *report.Path) string {
	if len(p.Actual.Uncertain) > 0 || len(p.Actual.Outcomes) == 0 && p.Verdict == report.Unknown {
		return "?"
	}
	endpoints := map[string]bool{}
	var words []string
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		w := endText(o.Action)
		switch o.Action {
		case "DNAT":
			if o.Endpoint != nil {
				endpoints[addressText(o.Endpoint)] = true
			}
			continue
		case "Drop", "Reject":
			w = strings.ToLower(o.Action)
		}
		if !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	if len(endpoints) > 0 {
		words = append([]string{plural(len(endpoints), "endpoint")}, words...)
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

// reasonOf is the code of a by-design answer.
func reasonOf(p *report.Path) string {
	if len(p.Findings) == 0 {
		return p.Expected.Action
	}
	return p.Findings[len(p.Findings)-1].Code
}

// podText leaves the namespace out where it is that of the Service.
func (t *text) podText(pod string) string {
	if ns, name, ok := strings.Cut(pod, "/"); ok && ns == t.view.Namespace && !t.wide {
		return name
	}
	return pod
}

// rowLimit is how many rows of a group are shown before the rest is counted; differLimit, how many of those that differ.
const (
	rowLimit    = 12
	differLimit = 24
)

// cut keeps the rows of a long list that tell something, and counts the rest; wide output never cuts.
func (t *text) cut(rows []row) []row {
	if t.wide {
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
		if r.state == right {
			same = append(same, r)
		} else {
			other = append(other, r)
		}
	}
	slices.SortStableFunc(other, func(a, b row) int { return int(b.state) - int(a.state) })
	rest := func(n int, what string) row { return row{endpoint: fmt.Sprintf("… and %d more, %s", n, what)} }
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
