// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// slab is how many rules and selectors are made at once: a dump may have 100,000.
const slab = 512

// compiler turns the words of a rule into ops.
type compiler struct {
	rules     []netfilter.Rule
	selectors []selector
	ops       []netfilter.Op
	spec      ruleSpec // of the rule being compiled; its buffers are kept
}

func (c *compiler) newRule() *netfilter.Rule {
	if len(c.rules) == 0 {
		c.rules = make([]netfilter.Rule, slab)
	}
	r := &c.rules[0]
	c.rules = c.rules[1:]
	return r
}

func (c *compiler) newSelector(s selector) *selector {
	if len(c.selectors) == 0 {
		c.selectors = make([]selector, slab)
	}
	p := &c.selectors[0]
	c.selectors = c.selectors[1:]
	*p = s
	return p
}

// keep copies a rule's ops to memory of their own.
func (c *compiler) keep(ops []netfilter.Op) []netfilter.Op {
	if len(c.ops) < len(ops) {
		c.ops = make([]netfilter.Op, 4*slab+len(ops))
	}
	kept := c.ops[:len(ops):len(ops)]
	c.ops = c.ops[len(ops):]
	copy(kept, ops)
	return kept
}

// compile makes a rule of its words. text is the whole rule, from "-A" on; what was split into words begins at offset in it.
func (c *compiler) compile(num int, text string, offset int, words []word, chains map[string]*netfilter.Chain) *netfilter.Rule {
	r := c.newRule()
	r.Num, r.Text = num, text
	s := &c.spec
	*s = ruleSpec{rule: r, offset: offset, words: words, chains: chains, ops: append(s.ops[:0], nil), opts: s.opts[:0]}
	s.run()
	if s.isSel {
		s.ops[0] = c.newSelector(s.sel)
		r.Ops = c.keep(s.ops)
	} else {
		r.Ops = c.keep(s.ops[1:])
	}
	return r
}

// ruleSpec is a rule being compiled.
type ruleSpec struct {
	rule   *netfilter.Rule
	offset int // of the words in the rule's text
	words  []word
	chains map[string]*netfilter.Chain

	sel   selector
	isSel bool
	proto uint8          // of -p, 0 for any
	ops   []netfilter.Op // the first is for the selector
	opts  []option       // a buffer
}

func (s *ruleSpec) run() {
	i, not := 0, false
	for i < len(s.words) {
		w := s.words[i]
		switch {
		case w.quoted:
			s.unknown(i, i+1)
			i++
		case w.text == "!":
			not = true
			i++
			continue
		case w.text == "-m":
			i = s.match(i)
		case w.text == "-j" || w.text == "-g":
			s.target(i)
			i = len(s.words)
		default:
			i = s.selector(i, not)
		}
		not = false
	}
}

// quote gives the text of words [i, j) as the dump has it.
func (s *ruleSpec) quote(i, j int) string {
	from, to := len(s.rule.Text), len(s.rule.Text)
	if i < len(s.words) {
		from = s.offset + s.words[i].start
	}
	if j < len(s.words) {
		to = s.offset + s.words[j].start
	}
	return strings.TrimSpace(s.rule.Text[from:to])
}

func (s *ruleSpec) unknown(i, j int) {
	s.ops = append(s.ops, unknownMatch("not known: "+s.quote(i, j)))
}

// selector reads one of the options that need no -m.
func (s *ruleSpec) selector(i int, not bool) int {
	name := s.words[i].text
	if name == "-f" {
		// A first packet is never a later fragment: connection tracking has put it together.
		if !not {
			s.ops = append(s.ops, never)
		}
		return i + 1
	}
	read := selectors[name]
	if read == nil || i+1 >= len(s.words) || !read(s, s.words[i+1].text, not) {
		j := i + 1
		for j < len(s.words) && s.words[j].text != "-m" && s.words[j].text != "-j" && s.words[j].text != "-g" && s.words[j].text != "!" {
			j++
		}
		s.unknown(i, j)
		return j
	}
	s.isSel = true
	return i + 2
}

// options reads the options of a match or target from words [i, …) up to the next match or the target.
func (s *ruleSpec) options(i int, inTarget bool) (opts []option, end int) {
	opts = s.opts[:0]
	defer func() { s.opts = opts }()
	not := false
	for i < len(s.words) {
		w := s.words[i]
		switch {
		case !w.quoted && w.text == "!":
			not = true
			i++
			continue
		case !w.quoted && !inTarget && isNext(w.text):
			if not {
				return opts, i - 1 // the ! is for what comes next
			}
			return opts, i
		}
		o := option{name: w.text, not: not}
		if w.quoted || !strings.HasPrefix(w.text, "--") {
			o.name = "stray " + w.text
		}
		not = false
		first := i + 1
		i++
		for i < len(s.words) && (s.words[i].quoted || !isOption(s.words[i].text)) {
			i++
		}
		o.args = s.words[first:i]
		opts = append(opts, o)
	}
	return opts, i
}

func isOption(w string) bool {
	return w == "!" || isNext(w) || strings.HasPrefix(w, "--")
}

// isNext tells whether a word ends the options of a match: the next match, the target, or an option of the rule itself, which
// people write anywhere (iptables-save writes them first).
func isNext(w string) bool {
	return w == "-m" || w == "-j" || w == "-g" || w == "-f" || selectors[w] != nil
}

// match reads "-m NAME options…".
func (s *ruleSpec) match(i int) int {
	if i+1 >= len(s.words) {
		s.unknown(i, i+1)
		return i + 1
	}
	name := s.words[i+1].text
	spec, known := matches[name]
	if known && spec.skip != nil {
		if end, ok := spec.skip(s, i+2); ok {
			return end
		}
	}
	opts, end := s.options(i+2, false)
	if !known {
		s.unknown(i, end)
		return end
	}
	op, ok := spec.compile(s, opts, i, end)
	if !ok {
		s.unknown(i, end)
		return end
	}
	if op != nil {
		s.ops = append(s.ops, op)
	}
	return end
}

// target reads "-j NAME options…" or "-g CHAIN".
func (s *ruleSpec) target(i int) {
	op, ok := s.targetOp(i)
	if !ok {
		op = opaqueTarget("not known: " + s.quote(i, len(s.words)))
	}
	if op != nil {
		s.ops = append(s.ops, op)
	}
}

func (s *ruleSpec) targetOp(i int) (netfilter.Op, bool) {
	if i+1 >= len(s.words) {
		return nil, false
	}
	name := s.words[i+1].text
	if _, ok := s.chains[name]; ok || s.words[i].text == "-g" {
		kind := netfilter.Jump
		if s.words[i].text == "-g" {
			kind = netfilter.Goto
		}
		return &jump{name: name, kind: kind}, i+2 == len(s.words)
	}
	spec, known := targets[name]
	if !known {
		return nil, false
	}
	opts, _ := s.options(i+2, true)
	return spec(s, opts)
}

// jump leads to another chain of the table.
type jump struct {
	name string
	kind netfilter.Kind
	to   *netfilter.Chain
}

// Run implements [netfilter.Op].
func (j *jump) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: j.kind, Chain: j.to}
}

// JumpsTo implements [netfilter.Jumper].
func (j *jump) JumpsTo() string { return j.name }

// Resolve implements [netfilter.Jumper].
func (j *jump) Resolve(c *netfilter.Chain) { j.to = c }

// single returns the address of a prefix that holds only one.
func single(p netip.Prefix) netip.Addr {
	if p.IsSingleIP() {
		return p.Addr()
	}
	return netip.Addr{}
}
