// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// relation compares a value with a constant, or with a range of them.
type relation func(v value, r span) op.Truth

// relations are the operators of a match.
var relations = map[string]relation{
	"==": func(v value, r span) op.Truth { return v.within(r.lo, r.hi) },
	"!=": func(v value, r span) op.Truth { return v.within(r.lo, r.hi).Not() },
	"<":  func(v value, r span) op.Truth { return v.within(r.lo, ones).Not() },
	">":  func(v value, r span) op.Truth { return v.within(word{}, r.lo).Not() },
	"<=": func(v value, r span) op.Truth { return v.within(word{}, r.lo) },
	">=": func(v value, r span) op.Truth { return v.within(r.lo, ones) },
	"in": func(v value, r span) op.Truth { return v.anyOf(r.lo) }, // flags: one of them is set
	"!":  func(v value, r span) op.Truth { return v.anyOf(r.lo).Not() },
}

// match compiles a comparison, or a look-up in a set; false for one that is not understood.
func (b *builder) match(m *syntax.Match) bool {
	left, ok := b.exprs(m.Left)
	if !ok {
		return false
	}
	if s, isSet := b.setOf(m.Right, left); isSet {
		return s != nil && b.member(left, s, m.Op)
	}
	sign := m.Op
	compare := relations[sign]
	if sign == "" {
		compare = relations["=="]
	}
	if compare == nil {
		return false
	}
	if unknowable(left) {
		b.add(&comparison{left: left, why: dependsOn(left)})
		return true
	}
	_, isRange := m.Right.(*syntax.Range)
	if byOrder := strings.ContainsAny(sign, "<>"); (isRange || byOrder) && left[0].typ != typePort {
		b.apart = true // iptables writes ranges of ports, and no others
	}
	spans, ok := constants(left, m.Right)
	if !ok || len(left) > 1 && sign != "==" && sign != "!=" {
		return false
	}
	if _, isList := m.Right.(syntax.List); isList && (sign == "!=" || sign == "==") && !b.readsOneWay(m) {
		compare = eitherReading(sign)
	}
	if len(left) == 1 && left[0].typ.beyond(m.Right) {
		if sign != "==" && sign != "!=" {
			return false
		}
		b.add(&comparison{left: left, right: spans, compare: fixed(op.Is(sign == "!=")), why: dependsOn(left)})
		return true
	}
	if len(left) == 1 && left[0].bounds != nil {
		b.add(&numberIs{left[0], spans[0], sign, dependsOn(left)})
		return true
	}
	if left[0].draw != nil && len(left) == 1 {
		return b.chance(left[0].draw, func(v value) bool { return compare(v, spans[0]) == op.Yes })
	}
	if b.hidesFamily(m) {
		b.add(op.UnknownMatch("nft does not print of a connection's protocol in a table inet whether the rule is for one " +
			"IP family only"))
	}
	if sign == "==" && len(left) == 1 && !b.acted {
		b.key(left[0], spans[0])
	}
	not := len(left) > 1 && sign == "!="
	b.add(&comparison{left: left, right: spans, sign: sign, compare: compare, not: not, why: dependsOn(left)})
	return true
}

// readsOneWay tells whether a list of flags on the right is one value: what is read from the kernel says so, and so
// does a mask on the left.
func (b *builder) readsOneWay(m *syntax.Match) bool {
	left, isBinary := m.Left.(*syntax.Binary)
	return b.ruleset.Complete || isBinary && left.Op == "&"
}

// hidesFamily tells whether nft may have left out a condition on the IP family before a comparison: it takes one before
// "ct protocol tcp" for its own, made for that, and leaves it out (ct_meta_common_postprocess in
// src/netlink_delinearize.c of nft 1.0.6). It does not before another operator or a set.
func (b *builder) hidesFamily(m *syntax.Match) bool {
	ct, ok := m.Left.(*syntax.CT)
	return ok && ct.Key == "protocol" && (m.Op == "" || m.Op == "==") &&
		b.table.Family == "inet" && !b.ruleset.Complete && !b.tellsFamily()
}

// fixed gives the same answer for every value.
func fixed(t op.Truth) relation { return func(value, span) op.Truth { return t } }

// eitherReading compares with a list of flags by an operator that versions of nft read differently, as one value and as
// any of the flags: certain is only what both agree on.
func eitherReading(sign string) relation {
	one, other := relations["=="], relations["in"]
	if sign == "!=" {
		one, other = relations["!="], relations["!"]
	}
	return func(v value, r span) op.Truth {
		if t := one(v, r); t == other(v, r) {
			return t
		}
		return op.Maybe
	}
}

// unknowable tells whether nothing is known of any of the values.
func unknowable(xs []*expr) bool {
	for _, x := range xs {
		if x.typ != typeOther || x.draw != nil {
			return false
		}
	}
	return true
}

func dependsOn(xs []*expr) string {
	if d := depends(xs); d != "" {
		return "it depends on " + d
	}
	return "the snapshot does not tell"
}

// key adds what a comparison requires to the key of the chain's index.
func (b *builder) key(x *expr, r span) {
	if r.lo != r.hi {
		return
	}
	k := &b.rule.Key
	switch x.index {
	case bySource:
		k.Src = r.lo.addr(x.typ == typeIPv4)
	case byDestination:
		k.Dst = r.lo.addr(x.typ == typeIPv4)
	case byPort:
		for _, p := range []uint8{netfilter.TCP, netfilter.UDP, netfilter.SCTP} {
			probe := netfilter.Context{Packet: &netfilter.Packet{Proto: p}}
			if x.need(&probe) == op.Yes {
				k.Proto, k.DstPort = p, uint16(r.lo.lo) //nolint:gosec // a port
			}
		}
	case noIndex, byIncoming:
	}
}

// setOf returns the set that stands on the right of a match; nil for one that cannot be used. isSet is false where
// there is none.
func (b *builder) setOf(right syntax.Expr, left []*expr) (s *set, isSet bool) {
	defer func() { b.apart = b.apart || isSet }()
	switch right := right.(type) {
	case syntax.String:
		name, ok := strings.CutPrefix(string(right), "@")
		if !ok {
			return nil, false
		}
		s = b.sets[name]
	case syntax.AnonymousSet:
		s = b.anonymous(left, nil, right)
	default:
		return nil, false
	}
	if s == nil || s.unread == "" && len(s.fields) != len(left) {
		return nil, true
	}
	return s, true
}

// constants reads what values are compared with.
func constants(left []*expr, right syntax.Expr) ([]span, bool) {
	var one [1]syntax.Expr
	parts := fieldsOf(right, &one)
	if len(parts) != len(left) {
		return nil, false
	}
	out := make([]span, len(parts))
	for i, p := range parts {
		var ok bool
		if out[i].lo, out[i].hi, ok = left[i].typ.constant(p); !ok {
			return nil, false
		}
	}
	return out, true
}

// comparison is a match with constants.
type comparison struct {
	left    []*expr
	right   []span // nil: no answer is known
	sign    string // "==" and "!=", also where compare is another reading of it; "" for one that cannot be told
	compare relation
	not     bool // of a concatenation: not all of them are equal
	why     string
}

// Run implements [netfilter.Op].
func (m *comparison) Run(c *netfilter.Context) netfilter.Effect {
	if oneOfSeveral(c.Packet) {
		return forEach(c, m)
	}
	var buf [maxFields]value
	vals, t := values(c, m.left, buf[:0])
	if t == op.No {
		return breakOff
	}
	if m.right == nil {
		return netfilter.Effect{Kind: netfilter.Unknown, Why: m.why}
	}
	if m.not { // != of a concatenation: nft makes it one comparison of all bytes
		equal := op.Yes
		for i, v := range vals {
			equal = both(equal, relations["=="](v, m.right[i]))
		}
		return answer(both(t, equal.Not()), m.why)
	}
	for i, v := range vals {
		t = both(t, m.compare(v, m.right[i]))
	}
	return answer(t, m.why)
}

// numberIs is a match with constants of a number of which bounds are known.
type numberIs struct {
	left  *expr
	right span
	sign  string
	why   string
}

// Run implements [netfilter.Op].
func (m *numberIs) Run(c *netfilter.Context) netfilter.Effect {
	t := op.Yes
	if m.left.need != nil {
		if t = m.left.need(c); t == op.No {
			return breakOff
		}
	}
	b, low, high := m.left.bounds(c), m.right.lo.lo, m.right.hi.lo
	switch m.sign {
	case "!=":
		return answer(both(t, b.Within(low, high).Not()), m.why)
	case "<":
		return answer(both(t, b.Within(low, math.MaxUint64).Not()), m.why)
	case "<=":
		return answer(both(t, b.Within(0, low)), m.why)
	case ">":
		return answer(both(t, b.Within(0, low).Not()), m.why)
	case ">=":
		return answer(both(t, b.Within(low, math.MaxUint64)), m.why)
	case "", "==":
		return answer(both(t, b.Within(low, high)), m.why)
	}
	return answer(op.Maybe, m.why)
}

var breakOff = netfilter.Effect{Kind: netfilter.Break}

func answer(t op.Truth, why string) netfilter.Effect {
	switch t {
	case op.No:
		return breakOff
	case op.Maybe:
		return netfilter.Effect{Kind: netfilter.Unknown, Why: why}
	case op.Yes:
	}
	return netfilter.Effect{}
}

// member asks whether a key is in a set.
func (b *builder) member(left []*expr, s *set, sign string) bool {
	if sign != "==" && sign != "!=" && sign != "in" && sign != "" {
		return false
	}
	not := sign == "!="
	if !not && !b.runs(&lookup{left, s}) {
		return false
	}
	if len(left) == 1 && left[0].draw != nil {
		return s.unread == "" && b.chance(left[0].draw, func(v value) bool {
			_, t := s.find([]value{v})
			return t == op.Yes != not
		})
	}
	b.add(&membership{lookup: lookup{left, s}, not: not, why: dependsOn(left)})
	return true
}

// membership is a match with a set.
type membership struct {
	lookup
	not bool
	why string
}

// Run implements [netfilter.Op].
func (m *membership) Run(c *netfilter.Context) netfilter.Effect {
	if oneOfSeveral(c.Packet) {
		return forEach(c, m)
	}
	var buf [maxFields]value
	key, t := values(c, m.key, buf[:0])
	if t == op.No {
		return breakOff
	}
	in, why := m.has(c, key)
	if m.not {
		in = in.Not()
	}
	return answer(both(t, in), why)
}

// has looks up the set, including elements that rules on the packet's path have added, or may have.
func (m *membership) has(c *netfilter.Context, key []value) (in op.Truth, why string) {
	s := m.in
	changed := op.Changed(c.Packet, s.list)
	if !changed && s.remembers() && isClient(m.key) && c.Recent != nil {
		if listed, known := c.Recent(s.list); known {
			return op.Is(listed), ""
		}
	}
	if changed || op.Noted(c.Packet, s.list) {
		return op.Maybe, "a rule for packets of the connection changes the set " + s.name
	}
	c.Work += s.cost(key)
	_, in = s.find(key)
	if s.unread != "" {
		return in, s.unread
	}
	return in, m.why
}

// remembers tells whether a set is one of clients whose entries expire.
func (s *set) remembers() bool {
	return s.seconds > 0 && len(s.fields) == 1 && s.data == nil && (s.fields[0] == typeIPv4 || s.fields[0] == typeIPv6)
}

// isClient tells whether a key is the packet's source address alone.
func isClient(key []*expr) bool { return len(key) == 1 && key[0].index == bySource }

// Remembers implements [netfilter.Rememberer].
func (m *membership) Remembers() (list string, seconds uint32) {
	if m.not || !m.in.remembers() {
		return "", 0
	}
	return m.in.list, m.in.seconds
}

// maxDrawn bounds how many numbers are tried one by one.
const maxDrawn = 1 << 16

// chance is a match of a random number. The result for a hash is not known: two rules with the same hash of a packet
// get the same value.
func (b *builder) chance(d *drawn, holds func(value) bool) bool {
	if d.hash || d.mod > maxDrawn {
		b.add(&comparison{why: "it depends on a hash of the packet, or on chance"})
		return true
	}
	n := 0
	for i := range d.mod {
		if holds(knownNumber(d.first + i)) {
			n++
		}
	}
	b.add(draw(float64(n) / float64(d.mod)))
	return true
}

// draw is a match that holds with a probability.
type draw float64

// Run implements [netfilter.Op].
func (p draw) Run(*netfilter.Context) netfilter.Effect {
	return netfilter.Effect{Kind: netfilter.Chance, P: float64(p)}
}
