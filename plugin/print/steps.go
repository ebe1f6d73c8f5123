// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// printedStep is a rule that packets meet, or a routing decision, as it is printed.
type printedStep struct {
	hook, table, chain, rule string
	share, kernel, to        string
	verdict                  string
	text                     string // the rule or the route, which stands below its row
	guilty                   bool
}

// steps shows the rules that packets meet, in their order, with the routing decisions in their places. The text of a
// rule stands below its row. What the verdict is due to is marked.
func (t *text) steps(paths []report.Path) {
	for i := range paths {
		p := &paths[i]
		if len(p.Steps) == 0 && len(p.Routes) == 0 {
			continue
		}
		t.Blank()
		t.title(frontendText(&p.Frontend) + " from " + originWithPod(&p.Origin) + ", rule by rule")
		rows := printedSteps(p)
		tab := &table{columns: []column{
			{" ", false},
			{"HOOK", false},
			{"TABLE", false},
			{"CHAIN", false},
			{"RULE", true},
			{"SHARE", true},
			{"KERNEL", true},
			{"ENDPOINT", false},
			{"VERDICT", false},
		}}
		for _, r := range rows {
			mark := ""
			if r.guilty {
				mark = strings.TrimSpace(guiltyMark)
			}
			tab.add(mark, r.hook, r.table, r.chain, r.rule, r.share, r.kernel, r.to, r.verdict)
		}
		tab = tab.dropEmpty(" ", "KERNEL", "ENDPOINT")
		if t.columns > 0 && tab.width() > t.columns {
			t.stackedSteps(rows, p.Verdict)
		} else {
			t.stepTable(tab, rows, p.Verdict)
		}
		if o := p.Observed; o != nil && o.TraceError != "" {
			t.Linef("The kernel's own trace is not available: %s", o.TraceError)
		}
		if o := p.Observed; o != nil && o.LegacyError != "" {
			t.Linef("The kernel's own trace is without rules of iptables-legacy: %s", o.LegacyError)
		}
	}
}

// stepTable writes steps as a table, each with its text below.
func (t *text) stepTable(tab *table, rows []printedStep, v report.Verdict) {
	color := func(row int) terminal.Color { return rows[row].color(v) }
	lines := tab.lines()
	for i, l := range lines {
		t.tableLine(l, color)
		if l.row >= 0 && (i+1 == len(lines) || lines[i+1].row != l.row) {
			t.stepText(&rows[l.row], v)
		}
	}
}

// stackedSteps writes steps for a narrow terminal: the chain, and below it what its rules do.
func (t *text) stackedSteps(rows []printedStep, v report.Verdict) {
	above := ""
	for i := range rows {
		r := &rows[i]
		chain := strings.Join(strings.Fields(r.hook+" "+r.table+" "+r.chain), " ")
		if chain != above {
			for _, line := range t.hanging(chain) {
				t.Add(bold, line)
				t.End()
			}
		}
		above = chain
		mark := noMark
		if r.guilty {
			mark = guiltyMark
		}
		parts := []string{}
		if r.rule != "" && r.rule != "-" {
			parts = append(parts, "rule "+r.rule)
		}
		parts = append(parts, r.share)
		if r.kernel != "" {
			parts = append(parts, "kernel "+r.kernel)
		}
		if r.to != "" {
			parts = append(parts, "to "+r.to)
		}
		lead := mark + strings.Join(parts, apart)
		t.Add(plain, lead)
		if below := "    "; plaintext.Width(lead+apart+r.verdict) > t.columns {
			t.End()
			t.Add(plain, below)
		} else {
			t.Add(plain, apart)
		}
		t.Add(r.color(v), r.verdict)
		t.End()
		t.stepText(r, v)
	}
}

// stepText writes the text of a rule, broken between words.
func (t *text) stepText(r *printedStep, v report.Verdict) {
	const indent = 6
	limit := 0
	if t.columns > 0 {
		limit = max(t.columns-indent, 40)
	}
	if r.text == "" {
		return
	}
	for _, line := range plaintext.WrapRule(r.text, limit) {
		t.Addf("%*s", indent, "")
		t.Add(r.color(v), line)
		t.End()
	}
}

// color is that of the path's verdict for what it is due to.
func (r *printedStep) color(v report.Verdict) terminal.Color {
	if r.guilty {
		return colorOf(v)
	}
	return plain
}

// printedSteps are the steps and the routing decisions of a path, in the order in which the packet meets them.
func printedSteps(p *report.Path) []printedStep {
	traced := p.Observed != nil && p.Observed.Traced > 0
	attention := p.Verdict.NeedsAttention()
	var out []printedStep
	routes := func(at int) {
		for k := range p.Routes {
			r := &p.Routes[k]
			if r.Step != at && (at != len(p.Steps) || r.Step < at) {
				continue
			}
			row := printedStep{
				hook: "(routing)", share: share(r.Share), verdict: routeVerdict(r),
				text: plaintext.Clean(routeText(r)), guilty: attention && refuses(r),
			}
			if traced {
				row.kernel = "-"
			}
			out = append(out, row)
		}
	}
	guilty := p.Guilty()
	for k := range p.Steps {
		routes(k)
		s := &p.Steps[k]
		row := printedStep{
			hook: s.Hook, table: tableText(s, p.Steps), chain: s.Chain, rule: "-", share: share(s.Share),
			to: endsText(stepEnds(p, s)), verdict: s.Verdict, guilty: attention && guilty[s.RuleRef],
		}
		if s.Rule > 0 {
			row.rule = fmt.Sprint(s.Rule)
			row.text = plaintext.Clean(report.Evidence{Where: s.RuleRef, Text: s.Text}.Short())
		}
		if k > 0 && s.RuleRef == p.Steps[k-1].RuleRef && s.Hook == p.Steps[k-1].Hook {
			row.text = "" // the same rule once more, for other endpoints
		}
		if traced {
			row.kernel = kernelText(s, p.Observed.Traced)
		}
		out = append(out, row)
	}
	routes(len(p.Steps))
	return out
}

// stepEnds are the endpoints whose connections a step is for, where it is not for all of them: as the walk has it, or,
// of a rule that ends connections, as the outcome has it.
func stepEnds(p *report.Path, s *report.Step) []string {
	if len(s.Endpoints) > 0 {
		return s.Endpoints
	}
	var out []string
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		if o.Endpoint == nil || o.Action == "DNAT" || o.Where != s.RuleRef {
			continue
		}
		if e := report.JoinHostPort(o.Endpoint.Address, o.Endpoint.Port); !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// endsText names an endpoint, or counts several.
func endsText(list []string) string {
	if len(list) > 1 {
		return fmt.Sprintf("%d of them", len(list))
	}
	return strings.Join(list, "")
}

// refuses tells whether a routing decision ends the packet.
func refuses(r *report.Route) bool {
	return slices.Contains([]string{"blackhole", "unreachable", "prohibit", "none"}, r.Type)
}
