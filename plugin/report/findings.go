// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
)

// block is a finding as a person reads it, with all the paths and nodes that it is true of.
type block struct {
	verdict  diagnose.Verdict // "" for what is only worth knowing
	code     string
	subject  string
	why      string
	evidence []string
	fixes    []string
	links    []string
	on       []string // frontends, with the origins
	nodes    []string
}

// order is that of the blocks: the worst first.
var order = []diagnose.Verdict{diagnose.Mismatch, diagnose.Unknown, diagnose.Warning, diagnose.ByDesign, ""}

// blocksOf folds the findings of a report: the same finding on several paths and nodes is one block.
func blocksOf(r *diagnose.Report) []*block {
	f := folder{byKey: map[string]*block{}}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for k := range n.Findings {
			f.finding(n, nil, &n.Findings[k])
		}
		for k := range n.Paths {
			p := &n.Paths[k]
			for j := range p.Findings {
				f.finding(n, p, &p.Findings[j])
			}
			if p.Verdict == diagnose.Unknown {
				for _, u := range p.Actual.Uncertain {
					f.add(n, p, &block{verdict: diagnose.Unknown, code: u.Where, why: u.Why, evidence: []string{u.Match}})
				}
			}
		}
	}
	slices.SortStableFunc(f.blocks, func(a, b *block) int { return slices.Index(order, a.verdict) - slices.Index(order, b.verdict) })
	return f.blocks
}

type folder struct {
	blocks []*block
	byKey  map[string]*block
}

func (f *folder) finding(n *diagnose.NodeReport, p *diagnose.Path, x *diagnose.Finding) {
	b := &block{code: x.Code, subject: x.Subject, why: x.Message, evidence: x.Evidence, links: x.Links}
	switch x.Severity {
	case diagnose.Error:
		b.verdict = diagnose.Mismatch
	case diagnose.Warn:
		b.verdict = diagnose.Warning
	case diagnose.Info:
		if p != nil && (p.Verdict == diagnose.ByDesign || p.Verdict == diagnose.Unknown) {
			b.verdict = p.Verdict
		}
	}
	if x.Expected != "" && x.Actual != "" {
		b.why += fmt.Sprintf(" (expected: %s; actual: %s)", x.Expected, x.Actual)
	}
	if x.Remedy != "" {
		b.fixes = []string{x.Remedy}
	}
	f.add(n, p, b)
}

func (f *folder) add(n *diagnose.NodeReport, p *diagnose.Path, b *block) {
	key := strings.Join([]string{string(b.verdict), b.code, b.subject, b.why}, "\x00")
	if old := f.byKey[key]; old != nil {
		for _, fix := range b.fixes {
			if !slices.Contains(old.fixes, fix) {
				old.fixes = append(old.fixes, fix)
			}
		}
		b = old
	} else {
		f.byKey[key] = b
		f.blocks = append(f.blocks, b)
	}
	if !slices.Contains(b.nodes, n.Node) {
		b.nodes = append(b.nodes, n.Node)
	}
	if p == nil {
		return
	}
	on := frontendText(&p.Frontend)
	if p.Service != nil {
		on = p.Service.Namespace + "/" + p.Service.Name + " " + on
	}
	if i := slices.IndexFunc(b.on, func(s string) bool { return s == on || strings.HasPrefix(s, on+" from ") }); i < 0 {
		b.on = append(b.on, strings.TrimSuffix(on+" from "+p.Origin.Kind, " from "))
	} else if head, from, ok := strings.Cut(b.on[i], " from "); ok && !slices.Contains(strings.Split(from, ","), p.Origin.Kind) {
		b.on[i] = head + " from " + from + "," + p.Origin.Kind
	}
}

// How much of a block is shown before the rest is counted.
const (
	evidenceLimit = 4
	onLimit       = 3
	nodeLimit     = 8
	fixLimit      = 3
)

// blocks writes the findings; of more than limit the rest is counted (0: all).
func (t *text) blocks(all []*block, severalNodes bool, limit int) {
	for i, b := range all {
		if limit > 0 && i == limit && !t.wide {
			t.blank()
			fmt.Fprintf(t, "… and %s (-o wide shows them all)\n", plural(len(all)-limit, "more finding"))
			break
		}
		t.blank()
		t.block(b, severalNodes)
	}
}

func (t *text) block(b *block, severalNodes bool) {
	label := "INFO"
	if b.verdict != "" {
		label = strings.ToUpper(verdictText(b.verdict))
	}
	t.WriteString(strings.TrimRight(t.paint(colorOf(b.verdict), label)+"  "+clean(b.code)+"  "+clean(b.subject), " ") + "\n")
	if t.report.Kind == diagnose.KindVerify && len(b.on) > 0 || len(b.on) > 1 {
		t.line("on", t.list(b.on, onLimit, "; "), true)
	}
	if severalNodes {
		t.line("nodes", t.list(b.nodes, nodeLimit, ", "), true)
	}
	t.evidence(b.evidence)
	t.line("why", b.why, true)
	for i, fix := range b.fixes {
		if i == fixLimit && !t.wide {
			t.line("", fmt.Sprintf("… and the same on %s", plural(len(b.fixes)-fixLimit, "more node")), true)
			break
		}
		label := "fix"
		if i > 0 {
			label = ""
		}
		t.fix(label, fix)
	}
	for i, link := range b.links {
		label := "links"
		if i > 0 {
			label = ""
		}
		t.line(label, link, false)
	}
}

// fix writes a remedy. A command is to be copied in one piece; what follows it as a comment may stand below.
func (t *text) fix(label, s string) {
	command, comment, ok := strings.Cut(clean(s), "   # ")
	if !ok || t.Width == 0 || labelWidth+width(s) <= t.Width {
		t.line(label, s, !strings.Contains(s, "kubectl "))
		return
	}
	t.line(label, command, false)
	t.line("", "# "+comment, false)
}

// evidence quotes rules. Several of one chain stand below the chain's name, as it is long, and the rule is what counts.
func (t *text) evidence(rules []string) {
	label := "where"
	limit := evidenceLimit
	if len(rules) == limit+1 {
		limit++ // a line that counts one more takes as much room as the one
	}
	last := ""
	for i, quoted := range rules {
		if i == limit && !t.wide {
			t.line("", fmt.Sprintf("… and %d more rules (-o wide)", len(rules)-limit), true)
			break
		}
		rule := clean(quoted)
		if chain, number, text, ok := splitRule(rule); ok {
			switch {
			case chain == last:
				rule = "  rule " + number + ": " + text
			case i+1 < len(rules) && strings.HasPrefix(rules[i+1], chain+" rule "):
				t.line(label, chain, false)
				label, last = "", chain
				rule = "  rule " + number + ": " + text
			default:
				rule, last = chain+" rule "+number+": "+text, ""
			}
		}
		if room := max(t.Width-labelWidth, 40); t.Width > 0 && width(rule) > room {
			rule = middle(strings.ReplaceAll(rule, "-m comment --comment ", ""), room)
		}
		t.line(label, rule, false)
		label = ""
	}
}

// splitRule takes "nat KUBE-SVC-X rule 3: -A KUBE-SVC-X …" apart, and leaves the chain's name out of the rule.
func splitRule(s string) (chain, number, text string, ok bool) {
	place, text, ok := strings.Cut(s, ": ")
	if !ok {
		return "", "", "", false
	}
	if chain, number, ok = strings.Cut(place, " rule "); !ok {
		return "", "", "", false
	}
	if i := strings.LastIndexByte(chain, ' '); i >= 0 {
		text = strings.TrimPrefix(text, "-A "+chain[i+1:]+" ")
	}
	return chain, number, text, true
}

// line is a labelled line of a block.
func (t *text) line(label, s string, breakable bool) {
	if s == "" {
		return
	}
	t.say(plain, strings.TrimRight("  "+label, " "), s, breakable)
}
