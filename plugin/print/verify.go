// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// How much verify shows before the rest is counted.
const (
	verifyRows     = 40
	verifyServices = 20 // of one code
	verifyBlocks   = 10 // of mode
	verifyNodes    = 20
)

func (t *text) verify() {
	several := len(t.report.Nodes) > 1
	t.impact()
	if t.report.Verdict.NeedsAttention() {
		t.Blank()
	}
	t.verifyTable()
	var blocks []*block
	for _, b := range byService(t.report) {
		// What is by design is counted; whoever wants to know why asks trace, or wide.
		if b.verdict != report.ByDesign || t.wide || t.view.All {
			blocks = append(blocks, b)
		}
	}
	t.byCode(blocks, several)
	t.Blank()
	t.counts()
	t.Blank()
	if n := t.view.Elsewhere; n > 0 {
		were := map[bool]string{true: "was", false: "were"}[n == 1]
		t.say(plain, "Scope", fmt.Sprintf("%s of other namespaces %s not verified (-A verifies all)",
			plaintext.Plural(n, "Service"), were), true)
	}
}

// bySameCode joins those of blocks that are of one code and verdict, and of a Service each, and follow one another.
func bySameCode(blocks []*block) [][]*block {
	var out [][]*block
	for i, b := range blocks {
		last := len(out) - 1
		if i > 0 && b.service != "" && blocks[i-1].service != "" &&
			b.code == blocks[i-1].code && b.verdict == blocks[i-1].verdict {
			out[last] = append(out[last], b)
			continue
		}
		out = append(out, []*block{b})
	}
	return out
}

// byCode writes blocks of Services: of each code the Services with their evidence, then the remedies of all.
func (t *text) byCode(blocks []*block, several bool) {
	for _, same := range bySameCode(blocks) {
		n := len(same)
		t.Blank()
		if n == 1 {
			t.block(same[0], several)
			continue
		}
		t.blockHead(same[0], []string{plaintext.Plural(n, "Service")})
		above := "" // why, of the Service above
		for k, b := range same {
			if k == verifyServices && !t.wide {
				t.Linef("… and %s", andMore(n-k, "more Service"))
				break
			}
			t.Add(bold, strings.TrimSpace(b.service+"  "+plaintext.Clean(t.list(b.subjects.list, subjectLimit, ", "))))
			t.End()
			t.blockBody(b, several)
			if b.example || b.why() != above {
				t.blockWhy(b)
			}
			above = b.why()
		}
		t.remedies(same)
	}
}

// verifyTable writes the paths that are not right.
func (t *text) verifyTable() {
	limit := verifyRows
	if t.wide || t.noHeaders {
		limit = 0
	}
	tab, verdicts, more := t.verifyPaths(limit)
	if t.noHeaders {
		t.byVerdict(tab, verdicts)
		return
	}
	if len(tab.rows) == 0 {
		return
	}
	t.byVerdict(t.fitPaths(tab), verdicts)
	if more > 0 {
		t.Linef("… and %s", andMore(more, "more path"))
	}
	var shown []report.Path
	for i := range t.report.Nodes {
		for _, p := range t.report.Nodes[i].Paths {
			if p.Verdict.NeedsAttention() {
				shown = append(shown, p)
			}
		}
	}
	t.samples(shown)
	t.Blank()
}

// fitPaths makes a table of paths fit a terminal. What wide output has below a row is left out otherwise, as the
// findings say it.
func (t *text) fitPaths(tab *table) *table {
	if t.wide {
		return tab.fit(t.columns, nil, "EXPECTED", "ACTUAL", "FROM", "NODE", "FRONTEND", "SERVICE")
	}
	leave := []string{"EXPECTED", "ACTUAL", "FROM"}
	if t.view.All { // no finding is of what is right
		leave = leave[:2]
	}
	for _, head := range leave {
		if t.Width == 0 || tab.width() <= t.Width {
			break
		}
		tab = tab.without(head).lastItems("ACTUAL", readable, t.Width)
	}
	return tab.fit(t.Width, nil, "FROM", "NODE", "FRONTEND", "SERVICE")
}

// byVerdict writes a table whose last column has the colours of verdicts.
func (t *text) byVerdict(tab *table, verdicts []report.Verdict) {
	t.table(tab, func(row int) terminal.Color { return colorOf(verdicts[row]) })
}

// verifyPaths lists the paths that are not right, one row for each, with their verdicts; of more than limit the rest is
// counted (0: all).
func (t *text) verifyPaths(limit int) (tab *table, verdicts []report.Verdict, more int) {
	tab = &table{columns: []column{
		{"NODE", false},
		{"SERVICE", false},
		{"FRONTEND", false},
		{"FROM", false},
		{"EXPECTED", false},
		{"ACTUAL", false},
		{"STATUS", false},
	}}
	seen := map[string]int{}
	var from []set // origins, of each row
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		for k := range n.Paths {
			p := &n.Paths[k]
			if !p.Verdict.NeedsAttention() && !t.view.All && !t.wide {
				continue
			}
			status := t.codesText(p.Codes(), verdictText(p.Verdict))
			cells := []string{
				n.Node,
				"",
				frontendText(&p.Frontend),
				"", // from where, below
				p.Expected.Summary,
				p.Actual.Summary,
				status,
			}
			if p.Service != nil {
				cells[1] = p.Service.Namespace + "/" + p.Service.Name
			}
			key := strings.Join(append(cells[:3:3], cells[4:]...), "\x00")
			if at, ok := seen[key]; ok {
				from[at].add(p.Origin.Kind)
				continue
			}
			if limit > 0 && len(tab.rows) >= limit {
				more++
				continue
			}
			seen[key] = len(tab.rows)
			tab.add(cells...)
			from = append(from, setOf(p.Origin.Kind))
			verdicts = append(verdicts, p.Verdict)
		}
	}
	for i := range from {
		tab.rows[i][3] = strings.Join(from[i].list, ",")
	}
	if len(t.report.Nodes) == 1 {
		tab = tab.without("NODE")
	}
	return tab, verdicts, more
}

// codesText is the first of the findings' codes and how many there are besides; wide output has them all. Without a
// code it is verdict.
func (t *text) codesText(codes []string, verdict string) string {
	switch {
	case len(codes) == 0:
		return verdict
	case len(codes) == 1 || t.wide:
		return strings.Join(codes, ",")
	}
	return fmt.Sprintf("%s +%d", codes[0], len(codes)-1)
}

// counts writes the table of what was judged on each node.
func (t *text) counts() {
	tab, verdicts, lost, quiet := t.countTable()
	if len(tab.rows) > 0 {
		for _, leave := range []string{"WARNING", "UNKNOWN", "BY DESIGN"} {
			if t.Width > 0 && tab.width() > t.Width {
				tab = tab.withoutZeros(leave)
			}
		}
		tab = tab.fit(t.columns, nil, "WARNING", "UNKNOWN", "BY DESIGN", "MATCH", "PATHS", "MISMATCH", "NODE")
		t.byVerdict(tab, verdicts)
	}
	if quiet > 0 {
		t.Linef("… and %s on which nothing is wrong", plaintext.Plural(quiet, "more node"))
	}
	t.lost(lost)
}

// countTable is what was judged on each node, with the nodes' verdicts, the nodes that could not be inspected, and how
// many of a long list are left out because nothing is wrong with them.
func (t *text) countTable() (tab *table, verdicts []report.Verdict, lost []*report.NodeReport, quiet int) {
	tab = &table{columns: []column{
		{"NODE", false},
		{"PATHS", true},
		{"MATCH", true},
		{"BY DESIGN", true},
		{"MISMATCH", true},
		{"UNKNOWN", true},
		{"WARNING", true},
		{"VERDICT", false},
	}}
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		s := &n.Summary
		if n.Error != "" {
			lost = append(lost, n)
			continue
		}
		if len(tab.rows) >= verifyNodes && !n.Verdict.NeedsAttention() && !t.wide {
			quiet++
			continue
		}
		number := func(n int) string { return fmt.Sprint(n) }
		tab.add(
			n.Node,
			number(s.Paths),
			number(s.Matched),
			number(s.ByDesign),
			number(s.Mismatched),
			number(s.Unknown),
			number(s.Warnings),
			verdictText(n.Verdict),
		)
		verdicts = append(verdicts, n.Verdict)
	}
	return tab, verdicts, lost, quiet
}
