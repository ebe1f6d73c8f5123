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
	service  string // of all findings, where they are folded by Service
	subjects set
	said     message
	each     bool // said is true of several subjects
	example  bool // said and evidence are those of the first subject, of several
	evidence []report.Evidence
	fixes    []report.Remedy
	fixKeys  set // those of fixes
	links    []string
	on       set        // frontends
	origins  [][]string // of each of on
	nodes    set
}

// message is what a finding says. Two findings are the same where only their whole, which names the subject, differs.
type message struct {
	whole            string
	predicate        string // report.Finding.Predicate
	expected, actual string
}

// common is the message as it is true of several subjects.
func (m message) common() message {
	if m.predicate != "" {
		m.whole = "each " + m.predicate
	}
	return m
}

// String is the message with what was expected, and what is.
func (m message) String() string {
	if m.expected == "" || m.actual == "" {
		return m.whole
	}
	return fmt.Sprintf("%s (expected: %s; actual: %s)", m.whole, inWords(m.expected), inWords(m.actual))
}

// inWords is what a value of the report means where it is one of masquerading; other values are texts.
func inWords(value string) string {
	switch value {
	case "Always":
		return "masqueraded"
	case "Never":
		return "not masqueraded"
	case "Hairpin":
		return "masqueraded only if a pod reaches itself"
	}
	return value
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

// pressing tells whether a block asks for somebody to look: information, whose verdict is "", does not.
func pressing(v report.Verdict) bool { return v != "" && v.NeedsAttention() }

// order is that of the blocks: the worst first.
var order = []report.Verdict{report.Mismatch, report.Unknown, report.Warning, report.ByDesign, ""}

// byService folds the findings of a VerifyReport: those of one code and one Service are a block, and the blocks of a
// code follow one another.
func byService(r *report.Report) []*block {
	f := folder{byKey: map[blockKey]*block{}, byCode: true, byService: true}
	f.report(r)
	at := map[string]int{}
	for i, b := range f.blocks {
		if _, ok := at[b.code]; !ok {
			at[b.code] = i
		}
	}
	slices.SortStableFunc(f.blocks, func(a, b *block) int {
		if v := slices.Index(order, a.verdict) - slices.Index(order, b.verdict); v != 0 {
			return v
		}
		return at[a.code] - at[b.code]
	})
	return f.blocks
}

// blocksOf folds the findings of a report: the same finding on several paths, nodes and subjects is one block. byCode
// folds further, to one block for each code with its first finding as an example.
func blocksOf(r *report.Report, byCode bool) []*block {
	f := folder{byKey: map[blockKey]*block{}, byCode: byCode}
	f.report(r)
	slices.SortStableFunc(f.blocks, func(a, b *block) int {
		return slices.Index(order, a.verdict) - slices.Index(order, b.verdict)
	})
	return f.blocks
}

// folder folds findings into blocks.
type folder struct {
	blocks    []*block
	byKey     map[blockKey]*block
	byCode    bool
	byService bool
}

// report folds all findings of a report.
func (f *folder) report(r *report.Report) {
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
		}
	}
}

// blockKey is what findings of one block have in common; common is the zero message where the code alone counts,
// service is empty where it does not count.
type blockKey struct {
	verdict report.Verdict
	code    string
	service string
	common  message
}

func (f *folder) finding(n *report.NodeReport, p *report.Path, x *report.Finding) {
	b := &block{
		verdict: x.VerdictOn(p), code: x.Code, subjects: subjectsOf(x),
		said:     message{x.Message, x.Predicate, x.Expected, x.Actual},
		evidence: x.Evidence, links: x.Links,
	}
	b.addFix(report.Remedy{Text: x.Remedy, Commands: x.Commands})
	f.add(n, p, b)
}

// subjectsOf is what a finding is of. A list of endpoints is taken apart: on another path it may be of some of them.
func subjectsOf(x *report.Finding) (out set) {
	if len(x.Endpoints) < 2 || x.Subject != strings.Join(x.Endpoints, ", ") {
		return setOf(x.Subject)
	}
	for _, e := range x.Endpoints {
		out.add(e)
	}
	return out
}

func (f *folder) add(n *report.NodeReport, p *report.Path, b *block) {
	key := blockKey{verdict: b.verdict, code: b.code}
	// A note of a node says one thing that no other one stands for, such as what is not judged without a file.
	byCode := f.byCode && !(p == nil && b.verdict == "")
	if !byCode {
		key.common = b.said.common()
	}
	if f.byService && p != nil && p.Service != nil {
		b.service = p.Service.Namespace + "/" + p.Service.Name
		key.service = b.service
	}
	if old := f.byKey[key]; old != nil {
		old.merge(b, byCode)
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

// addFix adds a remedy that is not there yet: the commands of one that begins as another does, on whichever node, to
// that one, as long as there are not too many.
func (b *block) addFix(r report.Remedy) {
	if r.IsZero() {
		return
	}
	keyOf := func(commands []report.Command) string {
		key := make([]string, 1, 1+3*len(commands)) //nolint:mnd // a command has three parts
		key[0] = r.Text
		for _, c := range commands {
			key = append(key, c.Line, c.Node, c.When)
		}
		return strings.Join(key, "\x00")
	}
	first := slices.Clone(r.Commands[:min(len(r.Commands), 1)])
	for i := range first {
		first[i].Node = ""
	}
	at, isNew := b.fixKeys.add(keyOf(first))
	if !isNew {
		if all := union(b.fixes[at].Commands, r.Commands); len(all) <= fixCommands {
			b.fixes[at].Commands = all
			return
		}
		_, isNew = b.fixKeys.add(keyOf(r.Commands))
	}
	if isNew {
		b.fixes = append(b.fixes, r)
	}
}

// merge adds another finding of the same kind.
func (b *block) merge(more *block, byCode bool) {
	several := false
	for _, subject := range more.subjects.list {
		if _, isNew := b.subjects.add(subject); isNew {
			several = true
		}
	}
	switch {
	case byCode:
		b.example = b.example || several || b.said != more.said
	case several:
		b.each = true
		b.evidence = union(b.evidence, more.evidence)
	case b.code == more.code && len(b.evidence) < evidenceLimit: // the same, seen from another origin
		b.evidence = union(b.evidence, more.evidence)
	}
	for _, fix := range more.fixes {
		b.addFix(fix)
	}
}

// why is what the findings of the block say.
func (b *block) why() string {
	if b.each {
		return b.said.common().String()
	}
	return b.said.String()
}

// places are the frontends with their origins.
func (b *block) places() []string {
	out := make([]string, len(b.on.list))
	for i, on := range b.on.list {
		out[i] = seenFrom(on, b.origins[i])
	}
	return out
}

// seenFrom names a frontend with the origins that it is seen from, of which there may be none.
func seenFrom(frontend string, origins []string) string {
	if len(origins) == 0 {
		return frontend
	}
	return frontend + " from " + strings.Join(origins, ",")
}

// union adds to a list what it does not hold yet. The list is not changed.
func union[T comparable](list, more []T) []T {
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
	fixCommands   = 8
)

// blocks writes the findings; of more than limit the rest is counted (0: all).
func (t *text) blocks(all []*block, severalNodes bool, limit int) {
	for i, b := range all {
		if limit > 0 && i == limit && !t.wide {
			t.Blank()
			t.Linef("… and %s", andMore(len(all)-limit, "more finding"))
			break
		}
		t.Blank()
		t.block(b, severalNodes)
	}
}

func (t *text) block(b *block, severalNodes bool) {
	t.blockHead(b, b.subjects.list)
	t.blockBody(b, severalNodes)
	t.blockWhy(b)
	t.remedies([]*block{b})
}

// blockHead is the first line of a block, and the next where the first has no room: the verdict, the code, and what it
// is of.
func (t *text) blockHead(b *block, subjects []string) {
	label := "INFO"
	if b.verdict != "" {
		label = strings.ToUpper(verdictText(b.verdict))
	}
	code, of := plaintext.Clean(b.code), plaintext.Clean(t.list(subjects, subjectLimit, ", "))
	if of != "" && (t.columns == 0 || plaintext.Width(label+code+of)+2*gap <= t.columns) {
		code, of = code+"  "+of, ""
	}
	t.Add(colorOf(b.verdict), label)
	t.Linef("  %s", code)
	t.line("of", of, true)
}

// blockBody says where a finding was made, and what shows it.
func (t *text) blockBody(b *block, severalNodes bool) {
	if t.report.Kind == report.KindVerify && len(b.on.list) > 0 || len(b.on.list) > 1 {
		t.line("on", t.list(b.places(), onLimit, "; "), true)
	}
	if severalNodes {
		t.line("nodes", t.onNodes(b.nodes.list), true)
		t.shared(b)
	}
	t.evidence(b.evidence, b.verdict)
}

// blockWhy says what was found.
func (t *text) blockWhy(b *block) {
	why := b.why()
	if b.example {
		if of := b.subjects.list; len(of) > 0 && b.said.predicate == "" {
			why = "for " + of[0] + ", for example: " + why
		} else {
			why = "for example: " + why
		}
	}
	t.line("why", why, true)
}

// line is a labelled line of a block.
func (t *text) line(label, s string, breakable bool) {
	if s == "" {
		return
	}
	t.say(plain, strings.TrimRight("  "+label, " "), s, breakable)
}
