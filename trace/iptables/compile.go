// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// slabSize is the number of values of a type that are allocated at once: a dump may have 100,000 rules.
const slabSize = 512

// slab allocates values of a type.
type slab[T any] []T

func (s *slab[T]) make(v T) *T {
	if len(*s) == 0 {
		*s = make([]T, slabSize)
	}
	p := &(*s)[0]
	*s = (*s)[1:]
	*p = v
	return p
}

// compiler turns the words of a rule into ops.
type compiler struct {
	rules     slab[netfilter.Rule]
	chainMem  slab[netfilter.Chain]
	targets   slab[target]
	selectors slab[selector]
	nats      slab[op.DNAT]
	ops       []netfilter.Op
	shared    map[string]netfilter.Op // the ops of a table by their text: most occur many times
	spec      ruleSpec                // of the rule being compiled; its buffers are kept
}

// target is a chain of the table in progress, with the ops that jump to it.
type target struct {
	chain      *netfilter.Chain
	jump, goTo op.Jump
}

func (c *compiler) targetOf(chain *netfilter.Chain) *target {
	return c.targets.make(target{
		chain: chain,
		jump:  op.Jump{Name: chain.Name, Kind: netfilter.Jump}, goTo: op.Jump{Name: chain.Name, Kind: netfilter.Goto},
	})
}

// keep copies a rule's ops out of the buffer.
func (c *compiler) keep(ops []netfilter.Op) []netfilter.Op {
	if len(c.ops) < len(ops) {
		c.ops = make([]netfilter.Op, 4*slabSize+len(ops))
	}
	kept := c.ops[:len(ops):len(ops)]
	c.ops = c.ops[len(ops):]
	copy(kept, ops)
	return kept
}

// scope is the table that a rule belongs to.
type scope struct {
	family netfilter.Family
	table  string
	chains map[string]*target
}

// compile compiles a rule. text is the whole rule, from "-A" on; words are those of text from offset on.
func (c *compiler) compile(in *scope, num int, text string, offset int, words []word) (*netfilter.Rule, error) {
	r := c.rules.make(netfilter.Rule{Num: num, Text: text})
	s := &c.spec
	*s = ruleSpec{
		compiler: c, scope: in, rule: r, offset: offset, words: words, buf: append(s.buf[:0], nil), opts: s.opts[:0],
	}
	s.run()
	if s.foreign != "" {
		return nil, fmt.Errorf("%s %w%s address", s.foreign, errFamily, in.family)
	}
	if s.masked {
		r.Key, r.Masked = netfilter.Key{}, true
	}
	ops := s.buf
	if s.sel.has == 0 {
		ops = ops[1:]
	} else {
		ops[0] = c.selectors.make(s.sel)
	}
	r.Ops = c.keep(ops)
	return r, nil
}

// errFamily is in the error of a rule with an address of another family.
var errFamily = errors.New("is not an ")

// ruleSpec is a rule being compiled.
type ruleSpec struct {
	*compiler
	*scope
	rule   *netfilter.Rule
	offset int // of the words in the rule's text
	words  []word

	sel   selector
	proto uint8          // of -p, 0 for any
	acts  bool           // a match before this one has an effect: later conditions must not be evaluated earlier
	buf   []netfilter.Op // the first is for the selector
	opts  []option       // a buffer

	foreign string // an address of another family
	strange bool   // a part of the rule is not known
	masked  bool   // that part is a condition
	nowhere bool   // the target is neither a chain of the table nor known
}

func (s *ruleSpec) add(o netfilter.Op) {
	if o != nil {
		s.buf = append(s.buf, o)
	}
}

// isVerdict tells whether a word begins the target.
func isVerdict(w word) bool { return !w.quoted && (w.text == "-j" || w.text == "-g") }

// isStart tells whether a word begins a match or the target.
func isStart(w word) bool { return !w.quoted && w.text == "-m" || isVerdict(w) }

// isSelector tells whether a word is an option that needs no -m. iptables-save writes those first; rules written by
// hand may not.
func isSelector(w word) bool {
	return len(w.text) == 2 && w.text[0] == '-' && !w.quoted && (w.text == "-f" || selectors[w.text] != nil)
}

// ends tells whether the options of a match end before word i.
func (s *ruleSpec) ends(i int) bool {
	if s.words[i].is("!") {
		return i+1 < len(s.words) && isSelector(s.words[i+1])
	}
	return isStart(s.words[i]) || isSelector(s.words[i])
}

func (s *ruleSpec) run() {
	defer s.maybeTarget()
	for i := 0; i < len(s.words); {
		from, not := i, false
		if s.words[i].is("!") && i+1 < len(s.words) && !isStart(s.words[i+1]) {
			not = true
			i++
		}
		switch w := s.words[i]; {
		case isVerdict(w):
			s.target(i)
			return
		case isStart(w):
			i = s.match(i)
		default:
			i = s.selector(from, i, not)
		}
	}
}

// maybeTarget makes the target of a rule unknown that has none by itself, where one is in a part that is not known:
// "-jKUBE-SEP-…" and "--jump", which iptables takes and its save command never prints.
func (s *ruleSpec) maybeTarget() {
	if s.masked && s.rule.Target == "" && slices.ContainsFunc(s.words, func(w word) bool {
		return !w.quoted && (strings.HasPrefix(w.text, "-j") || strings.HasPrefix(w.text, "-g") ||
			w.text == "--jump" || w.text == "--goto")
	}) {
		s.add(op.OpaqueTarget("an unknown target: " + s.quote(0, len(s.words))))
	}
}

// quote returns the text of words [i, j) as in the dump.
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

// address reads the argument of -s or -d.
func (s *ruleSpec) address(arg string) (n network, a netip.Addr, ok bool) {
	if n, a, ok = readNetwork(arg); ok && netfilter.FamilyOf(a)&s.family == 0 {
		s.foreign = arg
	}
	return n, a, ok
}

func (s *ruleSpec) unknown(i, j int) {
	s.strange, s.masked = true, true
	s.add(op.UnknownMatch("unknown match " + s.quote(i, j)))
}

// selector reads one of the options that need no -m: word i, with "!" from word from on.
func (s *ruleSpec) selector(from, i int, not bool) int {
	if s.words[i].is("-f") {
		// A first packet is never a later fragment: connection tracking has reassembled it.
		if !not {
			s.add(never)
		}
		return i + 1
	}
	if read := selectors[s.words[i].text]; read != nil && !s.words[i].quoted && i+1 < len(s.words) &&
		read(s, s.words[i+1].text, not) {
		return i + 2
	}
	end := i + 1
	for end < len(s.words) && !s.ends(end) && !s.words[end].is("!") {
		end++
	}
	s.unknown(from, end)
	return end
}

// iface adds a condition on an interface.
func (s *ruleSpec) iface(o ifaceOp) bool {
	key := [...]string{"i", "i!", "o", "o!"}[btoi(o.out)*2+btoi(o.not)] + o.pattern
	made, ok := s.shared[key]
	if !ok {
		made = &o
		s.shared[key] = made
	}
	s.add(made)
	return true
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// options reads the options of a match from word i on, up to the next match or the target; those of a target up to
// the end.
func (s *ruleSpec) options(i int, args map[string]int, inTarget bool) (opts []option, end int) {
	opts = s.opts[:0]
	defer func() { s.opts = opts }()
	not := false
	for i < len(s.words) && (inTarget || !s.ends(i)) {
		w := s.words[i]
		i++
		if w.is("!") && !not {
			not = true
			continue
		}
		o := option{name: w.text, not: not}
		not = false
		if w.quoted || !strings.HasPrefix(w.text, "--") {
			o.name = "stray " + w.text
		}
		first := i
		if n, ok := args[o.name]; ok {
			i = min(i+n, len(s.words))
		} else {
			for i < len(s.words) && !s.words[i].begins() && (inTarget || !s.ends(i)) {
				i++
			}
		}
		o.args = s.words[first:i]
		opts = append(opts, o)
	}
	if not {
		opts = append(opts, option{name: "stray !"})
	}
	return opts, i
}

// match reads "-m NAME options…".
func (s *ruleSpec) match(i int) int {
	name := ""
	if i+1 < len(s.words) {
		name = s.words[i+1].text
	}
	spec := matches[name]
	if spec == nil {
		_, end := s.options(min(i+2, len(s.words)), nil, false)
		s.unknown(i, end)
		return end
	}
	opts, end := s.options(i+2, spec.args, false)
	if spec.always && spec.understands(opts) {
		if name == "comment" && len(opts) > 0 && s.rule.Comment == "" {
			s.rule.Comment = opts[0].args[0].text
		}
		return end
	}
	if spec.ports && !s.acts && s.proto != 0 {
		s.key(opts)
		if s.proto == spec.proto {
			if opts = s.movePorts(opts); len(opts) == 0 {
				return end
			}
		}
	}
	key := s.quote(i, end)
	made, ok := s.shared[key]
	if !ok || spec.ports {
		if made, ok = spec.compile(s, opts, key); !ok {
			made = op.UnknownMatch("unknown match " + key)
			s.strange, s.masked = true, true
			delete(s.shared, key)
		} else {
			s.shared[key] = made
		}
	}
	if r, ok := made.(*recentOp); ok && r.acts() {
		s.acts = true
	}
	s.add(made)
	return end
}

// key sets the single port that a match requires in the key of the rule's index.
func (s *ruleSpec) key(opts []option) {
	for i := range opts {
		if o := &opts[i]; o.name == "--dport" && !o.not {
			if r, ok := o.ports(); ok && r.lo == r.hi {
				s.rule.Key.Proto, s.rule.Key.DstPort = s.proto, r.lo
			}
		}
	}
}

// movePorts moves conditions on ports from a match to the selector, which is evaluated first. It returns the other
// options.
func (s *ruleSpec) movePorts(opts []option) []option {
	left := opts[:0]
	for _, o := range opts {
		to, bit := &s.sel.dport, byDport
		if o.name == "--sport" {
			to, bit = &s.sel.sport, bySport
		}
		r, ok := o.ports()
		if o.name != "--sport" && o.name != "--dport" || !ok || !s.sel.claim(bit, o.not) {
			left = append(left, o)
			continue
		}
		*to = r
	}
	return left
}

// target reads "-j NAME options…" or "-g CHAIN".
func (s *ruleSpec) target(i int) {
	made, ok := s.targetOp(i)
	if !ok {
		made = op.OpaqueTarget("unknown target " + s.quote(i, len(s.words)))
		s.strange = true
	}
	s.add(made)
}

func (s *ruleSpec) targetOp(i int) (netfilter.Op, bool) {
	if i+1 >= len(s.words) {
		return nil, false
	}
	name, goTo := s.words[i+1].text, s.words[i].text == "-g"
	s.rule.Target = name
	if to := s.chains[name]; to != nil || goTo {
		return s.jump(to, name, goTo), i+2 == len(s.words)
	}
	spec := targets[name]
	if spec == nil {
		s.nowhere = true
		return nil, false
	}
	key := s.quote(i, len(s.words))
	if made, ok := s.shared[key]; ok {
		return made, true
	}
	opts, _ := s.options(i+2, nil, true)
	made, ok := spec(s, opts)
	if !ok || slices.ContainsFunc(opts, func(o option) bool { return strayIn(name, &o) }) {
		return nil, false
	}
	if _, isNAT := made.(*op.DNAT); !isNAT { // there are many of those, and hardly two equal ones
		s.shared[key] = made
	}
	return made, true
}

// strayIn reports whether a word after a target is not one of its options: iptables does not take it.
func strayIn(target string, o *option) bool {
	most := 1
	if target == "SET" {
		most = 2 // the set, and what of the packet is its element
	}
	return strings.HasPrefix(o.name, "stray ") || len(o.args) > most ||
		target == "ACCEPT" || target == "DROP" || target == "RETURN"
}

// jump returns the op that jumps to a chain: all rules of a table share one.
func (s *ruleSpec) jump(to *target, name string, goTo bool) *op.Jump {
	switch {
	case to == nil:
		return &op.Jump{Name: name, Kind: netfilter.Goto}
	case goTo:
		return &to.goTo
	}
	return &to.jump
}
