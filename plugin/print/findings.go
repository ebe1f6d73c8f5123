// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// block is a finding as a person reads it, with all the paths and nodes that it is true of.
type block struct {
	verdict  report.Verdict // "" for what is only worth knowing
	code     string
	subjects set
	why      string
	example  bool // why and evidence are those of the first subject, of several
	evidence []string
	fixes    set
	links    []string
	on       set        // frontends
	origins  [][]string // of each of on
	nodes    set
}

// set is a list without doubles. A report of a large cluster has tens of thousands of findings of one kind.
type set struct {
	list  []string
	index map[string]int
}

func setOf(s string) set {
	var out set
	if s != "" {
		out.add(s)
	}
	return out
}

// add adds what is not there yet, and returns where it is.
func (s *set) add(x string) (at int, isNew bool) {
	if at, ok := s.index[x]; ok {
		return at, false
	}
	if s.index == nil {
		s.index = map[string]int{}
	}
	s.index[x] = len(s.list)
	s.list = append(s.list, x)
	return len(s.list) - 1, true
}

// order is that of the blocks: the worst first.
var order = []report.Verdict{report.Mismatch, report.Unknown, report.Warning, report.ByDesign, ""}

// blocksOf folds the findings of a report: the same finding on several paths, nodes and subjects is one block. byCode
// folds further, to one block for each code with its first finding as an example.
func blocksOf(r *report.Report, byCode bool) []*block {
	f := folder{byKey: map[string]*block{}, byCode: byCode}
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
			if p.Verdict == report.Unknown {
				for _, u := range p.Actual.Uncertain {
					f.add(n, p, &block{verdict: report.Unknown, code: u.Where, why: u.Why, evidence: []string{u.Match}})
				}
			}
		}
	}
	slices.SortStableFunc(f.blocks, func(a, b *block) int {
		return slices.Index(order, a.verdict) - slices.Index(order, b.verdict)
	})
	return f.blocks
}

type folder struct {
	blocks []*block
	byKey  map[string]*block
	byCode bool
}

func (f *folder) finding(n *report.NodeReport, p *report.Path, x *report.Finding) {
	b := &block{
		verdict: x.VerdictOn(p), code: x.Code, subjects: setOf(x.Subject), why: x.Message,
		evidence: x.Evidence, fixes: setOf(x.Remedy), links: x.Links,
	}
	if x.Expected != "" && x.Actual != "" {
		b.why += fmt.Sprintf(" (expected: %s; actual: %s)", x.Expected, x.Actual)
	}
	f.add(n, p, b)
}

func (f *folder) add(n *report.NodeReport, p *report.Path, b *block) {
	// A message that differs by its subject alone is the same message.
	common := b.why
	for _, subject := range b.subjects.list {
		common = strings.ReplaceAll(common, subject, "each")
	}
	key := strings.Join([]string{string(b.verdict), b.code, common}, "\x00")
	if f.byCode {
		key = string(b.verdict) + "\x00" + b.code
	}
	if old := f.byKey[key]; old != nil {
		old.merge(b, common, f.byCode)
		b = old
	} else {
		f.byKey[key] = b
		f.blocks = append(f.blocks, b)
	}
	b.nodes.add(n.Node)
	if p == nil {
		return
	}
	on := frontendText(&p.Frontend)
	if p.Service != nil {
		on = p.Service.Namespace + "/" + p.Service.Name + " " + on
	}
	i, isNew := b.on.add(on)
	if isNew {
		b.origins = append(b.origins, nil)
	}
	if p.Origin.Kind != "" && !slices.Contains(b.origins[i], p.Origin.Kind) {
		b.origins[i] = append(b.origins[i], p.Origin.Kind)
	}
}

// merge adds another finding of the same kind; common is the message without its subject.
func (b *block) merge(more *block, common string, byCode bool) {
	several := false
	for _, subject := range more.subjects.list {
		if _, isNew := b.subjects.add(subject); isNew {
			several = true
		}
	}
	switch {
	case byCode:
		b.example = b.example || several || b.why != more.why
	case several:
		b.why = common
		b.evidence = union(b.evidence, more.evidence)
	}
	for _, fix := range more.fixes.list {
		b.fixes.add(fix)
	}
}

// places are the frontends with their origins.
func (b *block) places() []string {
	out := make([]string, len(b.on.list))
	for i, on := range b.on.list {
		out[i] = strings.TrimSuffix(on+" from "+strings.Join(b.origins[i], ","), " from ")
	}
	return out
}

// union adds to a list what it does not hold yet. The list is not changed.
func union(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(slices.Clip(list), s)
		}
	}
	return list
}

// How much of a block is shown before the rest is counted.
const (
	subjectLimit  = 4
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
			fmt.Fprintf(t, "… and %s (-o wide shows them all)\n", plaintext.Plural(len(all)-limit, "more finding"))
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
	code, of := plaintext.Clean(b.code), plaintext.Clean(t.list(b.subjects.list, subjectLimit, ", "))
	if of != "" && (t.Width == 0 || plaintext.Width(label+code+of)+2*gap <= t.Width) {
		code, of = code+"  "+of, ""
	}
	t.WriteString(t.paint(colorOf(b.verdict), label) + "  " + code + "\n")
	t.line("of", of, true)
	if t.report.Kind == report.KindVerify && len(b.on.list) > 0 || len(b.on.list) > 1 {
		t.line("on", t.list(b.places(), onLimit, "; "), true)
	}
	if severalNodes {
		t.line("nodes", t.list(b.nodes.list, nodeLimit, ", "), true)
	}
	t.evidence(b.evidence)
	why := b.why
	if b.example {
		why = "for example: " + why
		if of := b.subjects.list; len(of) > 0 && !strings.Contains(why, of[0]) {
			why = "for " + of[0] + ", for example: " + b.why
		}
	}
	t.line("why", why, true)
	for i, fix := range b.fixes.list {
		if i == fixLimit && !t.wide {
			t.line("", fmt.Sprintf("… and %d more of the kind", len(b.fixes.list)-fixLimit), true)
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
	command, comment, ok := strings.Cut(plaintext.Clean(s), "   # ")
	if !ok || t.Width == 0 || labelWidth+plaintext.Width(s) <= t.Width {
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
		rule := plaintext.Clean(quoted)
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
		if room := max(t.Width-labelWidth, 40); t.Width > 0 && plaintext.Width(rule) > room {
			rule = plaintext.Middle(strings.ReplaceAll(rule, "-m comment --comment ", ""), room)
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
