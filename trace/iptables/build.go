// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/pasted"
)

// builder makes a table of a segment.
type builder struct {
	*parser

	number map[*target]int // of the chains, in the order of their declaration
	last   *target         // the chain of the last rule
	order  bool            // chains had their rules in the order of their declaration so far
	gap    string          // why lines are missing behind the last rule; "" for none
	alien  string          // a line that is not understood: nothing is claimed of the table; "" for none
	doubts []doubt
}

// doubt is a place where rules are missing: if chains between two numbers have none, these may be missing.
type doubt struct {
	from, to int
	why      string
}

// build makes a table of a segment. The error is for rules of the other family.
func (r *divider) build(s *segment) (*netfilter.Table, error) {
	p := &r.parser
	p.table, p.backend = nil, s.backend
	if err := p.begin(s.table); err != nil {
		return nil, err
	}
	b := &builder{parser: p, number: map[*target]int{}, order: true}
	b.declare(s)
	for i := range s.items {
		x := &s.items[i]
		if x.kind == '.' && isElided(x.text) && i+1 < len(s.items) && s.items[i+1].kind == ':' {
			continue // chains were left out, which the rules name
		}
		if err := b.item(x, s.list); err != nil {
			return nil, err
		}
	}
	if s.cut != "" {
		b.missing(s.cut, s.cut)
	}
	b.close(len(p.table.Chains))
	t := p.table
	if b.last == nil && t.Holes != "" {
		b.doubts = append(b.doubts, doubt{0, len(t.Chains), t.Holes})
	}
	if !b.order && len(b.doubts) > 0 {
		b.doubts = []doubt{{0, len(t.Chains), b.doubts[0].why}}
	}
	for _, d := range b.doubts {
		for _, c := range t.Chains[d.from:d.to] {
			if len(c.Rules) == 0 {
				b.hole(c, "", d.why)
			}
		}
	}
	if b.alien != "" {
		unread(t, b.alien)
	} else if s.list || t.Holes != "" {
		addBases(t, "the text does not have this chain of table "+t.Name)
	}
	p.table = nil
	return t, nil
}

// declare declares the chains of a segment, also those of which it has only rules.
func (b *builder) declare(s *segment) {
	for i := range s.items {
		if x := &s.items[i]; x.kind == ':' {
			b.declared(x)
		}
	}
	for i := range s.items {
		name := chainOf(s.items[i].text)
		if s.items[i].kind != 'A' || name == "" || b.chains[name] != nil {
			continue
		}
		why := fmt.Sprintf("line %d: chain %s is not declared", s.items[i].line, excerpt(name))
		c := &netfilter.Chain{Name: name}
		if h, ok := hookNames[name]; ok {
			if c.Base = baseOf(b.backend, b.table.Name, h); c.Base != nil {
				c.Unread = why + ": its policy is not known"
			} else {
				b.strange(&s.items[i])
			}
		}
		b.table.Holes, b.order = why, false
		b.addChain(c)
	}
}

func (b *builder) addChain(c *netfilter.Chain) {
	t := b.targetOf(c)
	b.number[t] = len(b.table.Chains)
	b.chains[c.Name] = t
	b.table.Chains = append(b.table.Chains, c)
}

// declared reads ":NAME POLICY [packets:bytes]", "-P NAME POLICY" or "-N NAME".
func (b *builder) declared(x *item) {
	text, ok := strings.CutPrefix(x.text, ":")
	if !ok {
		text = x.text[len("-N "):]
		if x.text[1] == 'N' {
			text += " -"
		}
	}
	name, _, _ := strings.Cut(text, " ")
	if old := b.chains[name]; old != nil {
		why := fmt.Sprintf("line %d: chain %s is declared twice", x.line, excerpt(name))
		b.table.Holes, old.chain.Unread = why, why
		b.hole(old.chain, x.text, why)
		return
	}
	if err := b.chain(text); err != nil {
		b.strange(x)
		return
	}
	b.number[b.chains[name]] = len(b.table.Chains) - 1
}

// chainOf returns the chain of a rule.
func chainOf(text string) string {
	_, rest, _ := strings.Cut(text, "-A ")
	name, _, _ := strings.Cut(rest, " ")
	return name
}

func (b *builder) item(x *item, list bool) error {
	switch x.kind {
	case '.':
		b.notARule(x.line, x.text)
	case 'A':
		to := b.chains[chainOf(x.text)]
		if to == nil {
			b.strange(x)
			return nil
		}
		return b.ruleOf(to, x, list)
	}
	return nil
}

// ruleOf adds a rule to a chain, or a hole where it cannot be read.
func (b *builder) ruleOf(to *target, x *item, list bool) error {
	b.turn(to)
	c := to.chain
	text := x.text
	if text[0] == '[' {
		_, text, _ = strings.Cut(text, "] ")
	}
	if list {
		text = withoutCounters(text)
	}
	r, left, err := b.unwrap(c, text, x.more)
	switch {
	case err != nil && errors.Is(err, errFamily):
		return fmt.Errorf("line %d: %w", x.line, err)
	case err != nil:
		b.table.Holes = fmt.Sprintf("line %d: %v", x.line, err)
		b.hole(c, text, b.table.Holes)
	case b.spec.strange && r.Target == "":
		b.table.Holes = fmt.Sprintf("line %d is not understood, and has no target", x.line)
		b.hole(c, text, b.table.Holes)
	case x.last && b.mayGoOn(r):
		b.table.Holes = fmt.Sprintf("line %d is the last one and has no end: it may be cut off", x.line)
		b.hole(c, text, b.table.Holes)
	default:
		c.Rules = append(c.Rules, r)
		if b.spec.nowhere {
			b.table.Holes = fmt.Sprintf("line %d: -j %s leads to no chain of the table", x.line, excerpt(r.Target))
		}
	}
	for i, junk := range left {
		b.notARule(x.line+i+1, junk)
	}
	return nil
}

// notARule notes a line that is neither a rule nor a part of one: where someone says that lines were left out, these
// may be missing there.
func (b *builder) notARule(line int, text string) {
	if isElided(text) {
		b.missing(fmt.Sprintf("line %d is not a rule, and rules may be missing there: %s", line, excerpt(text)), text)
		return
	}
	b.strange(&item{line: line, text: text})
}

// isElided reports whether a line stands for lines that were left out. One that begins with an option is a command of
// iptables-restore, whatever its words.
func isElided(text string) bool {
	word := strings.TrimLeft(text, "-")
	option := len(word) < len(text) && word != "" && unicode.IsLetter(rune(word[0]))
	return pasted.Elided(text) && !option
}

// strange notes a line that is not understood: iptables-restore would refuse it, or change any chain of the table by it
// (-I, -D, -F).
func (b *builder) strange(x *item) {
	if b.alien == "" {
		b.alien = fmt.Sprintf("line %d of table %s is not understood: %s", x.line, b.table.Name, excerpt(x.text))
	}
}

// mayGoOn tells whether a rule that a text ends with may be the beginning of a longer one: all but a jump to a chain.
func (b *builder) mayGoOn(r *netfilter.Rule) bool { return b.chains[r.Target] == nil }

// turn notes that the next rule is one of a chain.
func (b *builder) turn(to *target) {
	if to != b.last {
		if b.gap != "" {
			b.hole(to.chain, "", b.gap)
		}
		if b.last != nil && b.number[to] < b.number[b.last] || len(to.chain.Rules) > 0 && b.gap == "" {
			b.order = false
		}
		b.close(b.number[to])
	}
	b.gap, b.last = "", to
}

// missing notes that lines are missing behind the last rule.
func (b *builder) missing(why, text string) {
	b.table.Holes, b.gap = why, why
	if b.last != nil {
		b.hole(b.last.chain, text, why)
	}
}

// close ends a gap before the chain of a number.
func (b *builder) close(to int) {
	if b.gap == "" {
		return
	}
	from := 0
	if b.last != nil {
		from = b.number[b.last] + 1
	}
	b.doubts = append(b.doubts, doubt{min(from, to), to, b.gap})
	b.gap = ""
}

// hole adds to a chain a rule that stands for those that are missing or not understood: it may do anything.
func (b *builder) hole(c *netfilter.Chain, text, why string) {
	c.Rules = append(c.Rules, &netfilter.Rule{
		Num: len(c.Rules) + 1, Text: text, Ops: []netfilter.Op{op.OpaqueTarget(why)},
	})
}

// unwrap compiles a rule that may go on in the lines behind it, joined with a blank or without. left are the lines that
// do not belong to it.
func (b *builder) unwrap(c *netfilter.Chain, text string, more []string) (r *netfilter.Rule, left []string, err error) {
	const most = 3 // each more doubles the texts to try
	tries := []string{text}
	for n := 1; n <= min(len(more), most); n++ {
		longer := make([]string, 0, 2*len(tries))
		for _, t := range tries {
			for _, glue := range []string{" ", ""} {
				longer = append(longer, t+glue+more[n-1])
			}
		}
		tries = longer
		for _, t := range tries {
			if r, err := b.compileText(c, t); err == nil && !b.spec.strange && r.Target != "" {
				return r, more[n:], nil
			}
		}
	}
	r, err = b.compileText(c, text)
	return r, more, err
}

func (b *builder) compileText(c *netfilter.Chain, text string) (*netfilter.Rule, error) {
	_, spec, _ := strings.Cut(strings.TrimPrefix(text, "-A "), " ")
	words, err := split(spec, b.words[:0])
	if err != nil {
		return nil, err
	}
	b.words = words
	return b.compile(&b.scope, len(c.Rules)+1, text, len(text)-len(spec), words)
}

// withoutCounters removes "-c PACKETS BYTES", which iptables -S -v puts into rules.
func withoutCounters(text string) string {
	words := strings.Split(text, " ")
	for i := 0; i+2 < len(words); i++ {
		_, err1 := strconv.ParseUint(words[i+1], 10, 64)
		_, err2 := strconv.ParseUint(words[i+2], 10, 64)
		if words[i] == "-c" && err1 == nil && err2 == nil {
			return strings.Join(slices.Delete(words, i, i+3), " ")
		}
	}
	return text
}
