// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// maxFields is how many fields a concatenation may have here. kube-proxy's longest has four.
const maxFields = 5

// tuple is the key of an element, one word for each of its fields.
type tuple [maxFields]word

// element is an element of a set or map. Where its key is one tuple, last is that, too.
type element struct {
	first, last tuple
	data        []span           // of a data map, one for each field
	effect      netfilter.Effect // of a verdict map
	target      string           // the chain that the effect jumps to
}

// span is a value of a data map: most begin where they end.
type span struct{ lo, hi word }

// set is a set, a map or a verdict map, with a name or without one.
type set struct {
	name     string // "" for an anonymous one
	list     string // how Packet.Recent calls it
	fields   []*datatype
	data     []*datatype // nil: a set
	seconds  uint32      // the timeout of its elements, 0 for none
	vague    bool        // what it gives is of a type that is not known: only whether it has a key is
	unread   string      // why its elements are not known
	elements []element
	size     int  // how many elements it may have
	count    int  // how many it has, whether they can be read or not; -1: it is not known
	timed    bool // elements may expire

	standing map[*element]standing // the elements on which statements stand that do something
	added    standing              // of those that rules add

	exact    map[tuple]int32 // by key; nil for a few elements, such as a Service's, which are gone through
	ranges   []int32         // elements that are ranges; of one field ascending, for nft keeps them apart then
	wildcard int32           // the element that stands for all other keys, or -1
}

func (s *set) isVerdictMap() bool { return len(s.data) == 1 && s.data[0] == typeVerdict }

// few is how many elements are found as fast without an index.
const few = 8

// index prepares the look-ups.
func (s *set) index() {
	s.exact, s.ranges = nil, nil
	if len(s.elements) > few {
		s.exact = make(map[tuple]int32, len(s.elements))
	}
	for i := range s.elements {
		e, n := &s.elements[i], int32(i)
		switch {
		case n == s.wildcard:
		case e.first != e.last:
			s.ranges = append(s.ranges, n)
		case s.exact != nil:
			if _, has := s.exact[e.first]; !has {
				s.exact[e.first] = n
			}
		}
	}
	if len(s.fields) == 1 {
		slices.SortStableFunc(s.ranges, func(a, b int32) int {
			return s.elements[a].first[0].compare(s.elements[b].first[0])
		})
	}
}

// find looks a key up. The answer is Maybe where it depends on what is not known of the key.
func (s *set) find(key []value) (e *element, t op.Truth) {
	if s.unread != "" {
		return nil, op.Maybe
	}
	if slices.ContainsFunc(key, func(v value) bool { return !v.exact() }) {
		return s.mayHave(key)
	}
	var k tuple
	for i := range key {
		k[i] = key[i].word
	}
	if n, ok := s.isElement(&k); ok {
		return &s.elements[n], op.Yes
	}
	if n, ok := s.inRange(&k); ok {
		return &s.elements[n], op.Yes
	}
	if s.wildcard >= 0 {
		return &s.elements[s.wildcard], op.Yes
	}
	return nil, op.No
}

// costOfElement is how many elements take as long to go through as a rule.
const costOfElement = 16

// cost is what it takes to look a key up, in rules.
func (s *set) cost(key []value) int {
	switch {
	case len(s.elements) <= few:
		return 0
	case slices.ContainsFunc(key, func(v value) bool { return !v.exact() }):
		return len(s.elements) / costOfElement
	case len(s.fields) > 1:
		return len(s.ranges) / costOfElement
	}
	return 0
}

// isElement finds the element that is a key and no range.
func (s *set) isElement(k *tuple) (n int32, ok bool) {
	if s.exact != nil {
		n, ok = s.exact[*k]
		return n, ok
	}
	for i := range s.elements {
		if e := &s.elements[i]; e.first == *k && e.last == *k && int32(i) != s.wildcard {
			return int32(i), true
		}
	}
	return 0, false
}

// inRange finds the range that a key is in.
func (s *set) inRange(k *tuple) (n int32, ok bool) {
	if len(s.fields) != 1 {
		for _, n := range s.ranges {
			if s.elements[n].has(k, len(s.fields)) {
				return n, true
			}
		}
		return 0, false
	}
	at, found := slices.BinarySearchFunc(s.ranges, k[0], func(n int32, w word) int {
		return s.elements[n].first[0].compare(w)
	})
	if !found {
		at--
	}
	if at < 0 || s.elements[s.ranges[at]].last[0].compare(k[0]) < 0 {
		return 0, false
	}
	return s.ranges[at], true
}

func (e *element) has(k *tuple, fields int) bool {
	for i := range fields {
		if e.first[i].compare(k[i]) > 0 || e.last[i].compare(k[i]) < 0 {
			return false
		}
	}
	return true
}

// mayHave is find for a key of which not everything is known. It is certain where all that the key may be has one
// answer.
func (s *set) mayHave(key []value) (*element, op.Truth) {
	possible := false
	for i := range s.elements {
		if int32(i) == s.wildcard {
			continue
		}
		e, all := &s.elements[i], op.Yes
		for f := range key {
			all = both(all, key[f].within(e.first[f], e.last[f]))
		}
		if all == op.Yes {
			return e, op.Yes
		}
		possible = possible || all == op.Maybe
	}
	switch {
	case possible:
		return nil, op.Maybe
	case s.wildcard >= 0:
		return &s.elements[s.wildcard], op.Yes
	}
	return nil, op.No
}

// both is the truth of "t and u".
func both(t, u op.Truth) op.Truth { return t.Not().Or(u.Not()).Not() }

// resolve gives every verdict its chain.
func (s *set) resolve(chain func(name string) *netfilter.Chain) {
	for i := range s.elements {
		if e := &s.elements[i]; e.target != "" {
			e.effect.Chain = chain(e.target)
		}
	}
}

// declare makes a set of its declaration; what cannot be read makes it one whose elements are not known.
func (in *scope) declare(d *syntax.Set) *set {
	s := &set{
		name: d.Name, list: in.table.Name + "@" + d.Name, wildcard: -1,
		seconds: uint32(min(max(d.Timeout, 0), math.MaxUint32)),
		size:    d.Size, count: max(d.Count, len(d.Elements)), timed: d.Timed() || d.Timeout > 0,
	}
	if s.size <= 0 {
		s.size = mostElements
	}
	var ok bool
	if s.fields, ok = in.typesOf(&d.Keys); !ok {
		s.unread = "the type of the set " + d.Name + " is not known"
		return s
	}
	if d.Data != nil {
		if s.data, ok = in.typesOf(d.Data); !ok { // such as objects
			s.data, s.vague = []*datatype{typeOther}, true
		}
	}
	s.added = stands(d.Statements)
	s.fill(d.Elements)
	return s
}

// anonymous makes a set of the elements that stand in a rule. Its keys are of the types of what is looked up.
func (in *scope) anonymous(key []*expr, data []*datatype, elements []syntax.Element) *set {
	s := &set{wildcard: -1, data: data, vague: slices.Contains(data, typeOther)}
	for _, x := range key {
		s.fields = append(s.fields, x.typ)
	}
	s.fill(elements)
	return s
}

// typesOf finds the types of a set's keys or values.
func (in *scope) typesOf(t *syntax.Type) ([]*datatype, bool) {
	if t.Of != nil {
		return in.typesOfExpr(t.Of)
	}
	if len(t.Names) == 0 || len(t.Names) > maxFields {
		return nil, false
	}
	out := make([]*datatype, len(t.Names))
	for i, name := range t.Names {
		if out[i] = types[name]; out[i] == nil {
			return nil, false
		}
	}
	return out, true
}

func (in *scope) typesOfExpr(e syntax.Expr) ([]*datatype, bool) {
	b := &builder{scope: in}
	key, ok := b.exprs(e)
	if !ok || len(key) > maxFields {
		return nil, false
	}
	var out []*datatype
	for _, x := range key {
		if x.typ == typeOther {
			return nil, false
		}
		out = append(out, x.typ)
	}
	return out, true
}

// fill reads the elements.
func (s *set) fill(list []syntax.Element) {
	s.elements = make([]element, len(list))
	var data []span
	if s.data != nil && !s.isVerdictMap() {
		data = make([]span, 0, len(list)*len(s.data))
	}
	for i := range list {
		e := &s.elements[i]
		rest, ok := s.element(e, &list[i], &data)
		if !ok {
			s.elements = s.elements[:i]
			s.unread = "an element cannot be read: " + syntax.ElementText(&list[i])
			return
		}
		if rest {
			s.wildcard = int32(i)
		}
	}
	s.index()
}

// element reads an element; rest tells that it stands for every key that no other has. Its data are appended to those
// of the others.
func (s *set) element(e *element, from *syntax.Element, data *[]span) (rest, ok bool) {
	if s.data == nil && from.Value != nil || s.data != nil && !s.value(e, from.Value, data) {
		return false, false
	}
	key := from.Key
	if with, ok := key.(*syntax.Elem); ok { // one with a timeout, a comment, a counter
		key = with.Val
		s.state(e, with.Statements)
	}
	if key == syntax.String("*") {
		return true, true
	}
	var one [1]syntax.Expr
	parts := fieldsOf(key, &one)
	if len(parts) != len(s.fields) || len(parts) > maxFields {
		return false, false
	}
	for i, p := range parts {
		if e.first[i], e.last[i], ok = s.fields[i].constant(p); !ok {
			return false, false
		}
	}
	return false, true
}

// fieldsOf are the fields of a concatenation, or the one of another expression, which is put into one.
func fieldsOf(e syntax.Expr, one *[1]syntax.Expr) []syntax.Expr {
	if list, ok := e.(syntax.Concat); ok {
		return list
	}
	one[0] = e
	return one[:]
}

// value reads what a map gives for a key.
func (s *set) value(e *element, v syntax.Expr, data *[]span) bool {
	if s.isVerdictMap() {
		verdict, ok := v.(*syntax.Verdict)
		if ok {
			e.effect.Kind, e.target = verdicts[verdict.Kind], verdict.Target
		}
		return ok
	}
	if s.vague {
		for range s.data {
			*data = append(*data, span{word{}, ones})
		}
		e.data = (*data)[len(*data)-len(s.data) : len(*data) : len(*data)]
		return v != nil
	}
	if with, ok := v.(*syntax.Elem); ok {
		v = with.Val
	}
	var one [1]syntax.Expr
	parts := fieldsOf(v, &one)
	if len(parts) != len(s.data) {
		return false
	}
	from := len(*data)
	for i, p := range parts {
		lo, hi, ok := s.data[i].constant(p)
		if !ok {
			return false
		}
		*data = append(*data, span{lo, hi})
	}
	e.data = (*data)[from:len(*data):len(*data)]
	return true
}

// verdicts are the verdicts of rules and of maps. "continue" goes on with the rule.
var verdicts = map[string]netfilter.Kind{
	"accept": netfilter.Accept, "drop": netfilter.Drop, "return": netfilter.Return, "continue": netfilter.Next,
	"jump": netfilter.Jump, "goto": netfilter.Goto,
}
