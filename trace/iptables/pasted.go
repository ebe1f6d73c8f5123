// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/pasted"
)

// Dump is what a text holds of the tables of a family.
type Dump struct {
	Tables []*netfilter.Table
	// Listed is true for the output of iptables -S, which has one table: those that are not in Tables were not asked for.
	// A save has all that the backend holds, unless somebody cut it.
	Listed bool
	// Excerpt says why tables that are not in Tables may be in the text's source all the same; "" where nothing does.
	Excerpt string
	// Legacy is true where iptables-nft has noted that there are tables of iptables-legacy, too.
	Legacy bool
}

// Errors of texts that look like the output of iptables, and cannot be read as such.
var (
	errListing = errors.New("it is the output of iptables -L, which leaves out interfaces and options of rules: that of " +
		"iptables-save was expected")
	errExcerpt = errors.New("it has single rules, without their table, its other chains and their policies: the whole " +
		"output of iptables-save was expected")
)

// Read reads what [Parse] reads, and what people have of it: indented, quoted or wrapped lines, prompts and remarks
// between them, tables that are cut off or have lines left out, and the output of iptables -S, of one table or several.
// What is missing in a table is a rule that is opaque at its place, and said in its Holes. Text of the other family is
// skipped, where a header or a command line says that it is. The error is for a text without any table.
func Read(data []byte, family netfilter.Family, backend netfilter.Backend) (*Dump, error) {
	strict := parser{scope: scope{family: family}, backend: backend, wanted: backend}
	text := string(data)
	err := errNoText
	if isText(data) && !strings.ContainsRune(text, '\u201c') { // a typographic quote, in place of that of a comment
		if err = strict.all(text); err == nil {
			return &Dump{Tables: onlyOnce(strict.tables), Legacy: strict.legacy}, nil
		}
	}
	if text = pasted.Text(data); strings.IndexByte(text, 0) >= 0 || !isText([]byte(text)) {
		return nil, errNoText
	}
	r := &divider{parser: parser{scope: scope{family: family}, backend: backend, wanted: backend}}
	r.all(text)
	d := &Dump{Excerpt: r.excerpt, Legacy: r.legacy}
	for i := range r.segments {
		t, why := r.build(&r.segments[i])
		if why != nil {
			return nil, why
		}
		d.Tables, d.Listed = append(d.Tables, t), d.Listed || r.segments[i].list
	}
	if n := len(r.segments); n > 0 && r.segments[n-1].cut != "" && d.Excerpt == "" {
		d.Excerpt = r.segments[n-1].cut // what comes behind it is missing as well
	}
	d.Tables = onlyOnce(d.Tables)
	switch {
	case len(d.Tables) > 0:
		return d, nil
	case r.listing:
		return nil, errListing
	case r.excerpt != "":
		return nil, errExcerpt
	case r.foreign || r.legacy:
		return nil, ErrEmpty
	}
	return nil, err
}

// onlyOnce leaves one of equal tables; where two of the same name differ, nobody knows which of them is in force.
func onlyOnce(tables []*netfilter.Table) []*netfilter.Table {
	var out []*netfilter.Table
	for _, t := range tables {
		i := slices.IndexFunc(out, func(o *netfilter.Table) bool { return o.Name == t.Name && o.Backend == t.Backend })
		switch {
		case i < 0:
			out = append(out, t)
		case out[i].Holes != "" && t.Holes == "":
			out[i] = t
		case t.Holes == "" && !equal(out[i], t):
			unread(t, "table "+t.Name+" is in the text more than once, and not the same each time")
			out[i] = t
		}
	}
	return out
}

// unread makes of a table one of which nothing is known.
func unread(t *netfilter.Table, why string) {
	t.Holes = why
	for _, c := range t.Chains {
		if c.Base != nil {
			c.Unread = why
		}
	}
	addBases(t, why)
}

// addBases adds the builtin chains that a table does not have.
func addBases(t *netfilter.Table, why string) {
	for h := netfilter.Prerouting; h <= netfilter.Postrouting; h++ {
		base := baseOf(t.Backend, t.Name, h)
		if base == nil || slices.ContainsFunc(t.Chains, func(c *netfilter.Chain) bool {
			return c.Name == h.String()
		}) {
			continue
		}
		t.Chains = append(t.Chains, &netfilter.Chain{Name: h.String(), Base: base, Unread: why})
		t.Holes = why
	}
}

func equal(a, b *netfilter.Table) bool {
	return slices.EqualFunc(a.Chains, b.Chains, func(x, y *netfilter.Chain) bool {
		return x.Name == y.Name && (x.Base == nil) == (y.Base == nil) &&
			(x.Base == nil || x.Base.Policy == y.Base.Policy) &&
			slices.EqualFunc(x.Rules, y.Rules, func(r, s *netfilter.Rule) bool { return r.Text == s.Text })
	})
}

// segment is the text of one table.
type segment struct {
	table   string
	backend netfilter.Backend
	list    bool // the output of iptables -S
	items   []item
	cut     string // why its end is missing; "" where it is not
}

// item is a line of a table.
type item struct {
	kind byte // ':' a chain, 'A' a rule, '.' a place where lines are missing
	line int
	text string
	more []string // lines behind a rule that are none of themselves: it may be wrapped
	last bool     // the text ends behind it, without a line end
}

// divider divides a text into tables.
type divider struct {
	parser

	segments []segment
	open     *segment
	lines    []string // of the text, cleaned
	at       int      // number of the line being read, from 0

	command pasted.Command // the last one
	foreign bool           // something is of the other family

	skipped bool   // by headers or commands what follows is of the other family, or picked out by a filter
	listing bool   // there is output of iptables -L
	excerpt string // why more tables may have been there; "" where nothing says so
}

func (r *divider) all(text string) {
	r.lines = strings.Split(text, "\n")
	for r.at = 0; r.at < len(r.lines); r.at++ {
		if r.lines[r.at] != "" {
			r.read(r.lines[r.at])
		}
	}
	if r.open != nil && len(r.open.items) > 0 && !strings.HasSuffix(text, "\n") {
		x := &r.open.items[len(r.open.items)-1]
		if x.last = true; x.kind == 'A' && strings.HasSuffix(x.text, "-A "+chainOf(x.text)) {
			x.kind = '.' // of the chain's name there may be more
		}
	}
	r.end("the text ends within table %s")
}

// isTool tells whether a word is the name of an iptables program.
func isTool(word string) bool {
	rest, ok := strings.CutPrefix(word, "iptables")
	if !ok {
		rest, ok = strings.CutPrefix(word, "ip6tables")
	}
	return ok && slices.Contains([]string{"", "-save", "-nft", "-legacy", "-nft-save", "-legacy-save"}, rest)
}

const noCommit = "table %s has no COMMIT"

// read reads a line.
func (r *divider) read(text string) {
	switch {
	case text[0] == '*' && builtins[text[1:]] != nil:
		r.end(noCommit)
		r.begin(text[1:], false)
	case text == "COMMIT":
		r.end("")
	case text[0] == ':', strings.HasPrefix(text, "-N "), strings.HasPrefix(text, "-P "):
		r.item(':', text)
	case isRule(text):
		r.item('A', text)
	default:
		r.remark(text)
	}
}

// isRule tells whether a line is a rule, or the beginning of one.
func isRule(text string) bool {
	if text[0] == '[' {
		_, text, _ = strings.Cut(text, "] ")
	}
	return strings.HasPrefix(text, "-A ")
}

func (r *divider) begin(table string, list bool) {
	if r.command.Filtered {
		r.excerpt = "its lines were picked out by a filter"
	}
	r.open = &segment{table: table, backend: r.backend, list: list}
}

func (r *divider) end(cut string) {
	s := r.open
	r.open = nil
	if s == nil || r.skipped {
		return
	}
	if s.list && !r.command.Filtered {
		r.command = pasted.Command{} // its output has ended
	}
	if !s.list && cut != "" {
		s.cut = fmt.Sprintf(cut, s.table)
	}
	r.segments = append(r.segments, *s)
}

// item takes a line of a table. One outside of any begins the output of iptables -S, if it is a policy: that prints
// these first.
func (r *divider) item(kind byte, text string) {
	policy := strings.HasPrefix(text, "-P ")
	if policy && r.open != nil && r.open.list && r.beginsList(text) {
		r.end("")
	}
	if r.open == nil {
		table := ""
		if policy {
			table = r.listed()
		}
		if table == "" {
			r.excerpt = fmt.Sprintf("line %d is outside of any table", r.at+1)
			return
		}
		r.begin(table, true)
	}
	r.open.items = append(r.open.items, item{kind: kind, line: r.at + 1, text: text})
}

// beginsList tells whether a policy is the first one of another table than that in progress.
func (r *divider) beginsList(text string) bool {
	if len(r.open.items) >= len(hookNames) {
		return true
	}
	name, seen := policyOf(text), ""
	for i := range r.open.items {
		switch x := r.open.items[i].text; {
		case !strings.HasPrefix(x, "-P "), policyOf(x) == name:
			return true
		default:
			seen += policyOf(x) + " "
		}
	}
	return another(seen, name)
}

// another tells whether a builtin chain is of another table than those before it: FORWARD without PREROUTING is of
// filter.
func another(seen, name string) bool {
	return strings.Contains(seen, name+" ") ||
		strings.HasSuffix(name, "ROUTING") && strings.Contains(seen, "FORWARD ") && !strings.Contains(seen, "PREROUTING ")
}

// policyOf returns the chain of "-P CHAIN POLICY".
func policyOf(text string) string {
	name, _, _ := strings.Cut(text[len("-P "):], " ")
	return name
}

// listed returns the table of an output of iptables -S that begins here: that of its command line, or the one that has
// such builtin chains; "" where neither tells. INPUT, FORWARD and OUTPUT are those of filter: of security hardly
// anybody asks.
func (r *divider) listed() string {
	if c := &r.command; c.Tool != "" && !strings.HasSuffix(c.Tool, "-save") {
		for i, a := range c.Args {
			switch {
			case (a == "-t" || a == "--table") && i+1 < len(c.Args) && builtins[c.Args[i+1]] != nil:
				return c.Args[i+1]
			case strings.HasPrefix(a, "-t") && builtins[a[2:]] != nil:
				return a[2:]
			}
		}
		if slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "-") }) {
			return "filter"
		}
	}
	names := ""
	for _, text := range r.lines[r.at:] {
		if !strings.HasPrefix(text, "-P ") || another(names, policyOf(text)) ||
			strings.Count(names, " ") == len(hookNames) {
			break
		}
		names += policyOf(text) + " "
	}
	pre, in, forward := strings.Contains(names, "PREROUTING "), strings.Contains(names, "INPUT "),
		strings.Contains(names, "FORWARD ")
	switch {
	case pre && forward:
		return "mangle"
	case pre && (in || strings.Contains(names, "POSTROUTING ")):
		return "nat"
	case pre:
		return "raw"
	case in && forward:
		return "filter"
	}
	return ""
}

// remark reads a comment, a command line, or anything else.
func (r *divider) remark(text string) {
	if _, b, ok := header(text); ok {
		r.end(noCommit)
		if !r.command.Filtered {
			r.command = pasted.Command{}
		}
		r.belongs(familyOf(text) == netfilter.Inet&^r.family)
		r.told(b)
		return
	}
	if strings.HasPrefix(text, "# Completed on") {
		return
	}
	if c, ok := pasted.CommandOf(text, isTool); ok && !strings.HasPrefix(text, "# Warning") {
		r.end(noCommit)
		r.command = c
		r.belongs(strings.HasPrefix(c.Tool, "ip6") != (r.family == netfilter.IPv6))
		switch {
		case strings.Contains(c.Tool, "-nft"):
			r.told(netfilter.BackendNFT)
		case strings.Contains(c.Tool, "-legacy"):
			r.told(netfilter.BackendLegacy)
		}
		return
	}
	if text[0] == '#' && !pasted.Elided(text) {
		r.note(text)
		return
	}
	if strings.HasPrefix(text, "Chain ") && strings.HasSuffix(text, ")") {
		r.listing = true
	}
	if r.open == nil {
		return
	}
	if r.open.list && pasted.Prompt(text) {
		r.end("")
		return
	}
	if n := len(r.open.items); !pasted.Elided(text) && n > 0 && r.open.items[n-1].kind == 'A' && r.lines[r.at-1] != "" {
		const most = 6
		if last := &r.open.items[n-1]; len(last.more) < most {
			last.more = append(last.more, text)
			return
		}
	}
	r.open.items = append(r.open.items, item{kind: '.', line: r.at + 1, text: text})
}

// note reads a comment of iptables-nft-save about tables.
func (r *divider) note(text string) {
	n := len(r.tables)
	if r.comment(text) == nil && !r.skipped {
		for _, t := range r.tables[n:] {
			r.segments = append(r.segments, segment{table: t.Name, backend: t.Backend, cut: t.Chains[0].Unread})
		}
	}
}

// belongs notes whether what follows is of the other family.
func (r *divider) belongs(other bool) {
	r.skipped, r.foreign = other, r.foreign || other
}

// told notes the backend that a header or a command names.
func (r *divider) told(b netfilter.Backend) {
	if r.first == "" {
		r.first = b
	}
	if r.backend = r.wanted; b != r.first {
		r.backend = b
	}
}
