// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
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
	target      string           // the chain that the effect leads to
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
	unread   string      // why its elements are not known
	elements []element

	exact    map[tuple]int32 // by key; nil for a few elements, such as a Service's, which are gone through
	ranges   []int32         // elements that are ranges; in ascending order where there is one field, for nft keeps them apart then
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
		slices.SortStableFunc(s.ranges, func(a, b int32) int { return s.elements[a].first[0].compare(s.elements[b].first[0]) })
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
	at, found := slices.BinarySearchFunc(s.ranges, k[0], func(n int32, w word) int { return s.elements[n].first[0].compare(w) })
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

// mayHave is find for a key of which not everything is known. It is certain where all that the key may be has one answer.
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
func (in *scope) declare(o *setObject) *set {
	s := &set{name: o.Name, list: in.table + "@" + o.Name, wildcard: -1, seconds: uint32(min(max(o.Timeout, 0), math.MaxUint32))}
	var ok bool
	if s.fields, ok = in.typesOf(o.Type); !ok {
		s.unread = "the type of the set " + o.Name + " is not known"
		return s
	}
	if o.Map != nil {
		if s.data, ok = in.typesOf(o.Map); !ok {
			s.unread = "the type of the map's values is not known: " + o.Name
			return s
		}
	}
	s.fill(o.Elem)
	return s
}

// anonymous makes a set of the elements that stand in a rule. Its keys are of the types of what is looked up.
func (in *scope) anonymous(key []*expr, data []*datatype, elements []any) *set {
	s := &set{wildcard: -1, data: data}
	for _, x := range key {
		s.fields = append(s.fields, x.typ)
	}
	s.fill(elements)
	return s
}

// typesOf reads a type: a name, a list of names, names with dots between, or an expression that is of the type ("typeof").
func (in *scope) typesOf(v any) ([]*datatype, bool) {
	var names []string
	switch v := v.(type) {
	case string:
		names = strings.Split(v, " . ")
	case []any:
		for _, x := range v {
			name, _ := x.(string)
			names = append(names, name)
		}
	default:
		key, arg, ok := one(v)
		if !ok || key != "typeof" {
			return nil, false
		}
		return in.typesOfExpr(arg)
	}
	if len(names) > maxFields {
		return nil, false
	}
	out := make([]*datatype, len(names))
	for i, name := range names {
		if out[i] = types[name]; out[i] == nil {
			return nil, false
		}
	}
	return out, true
}

func (in *scope) typesOfExpr(arg any) ([]*datatype, bool) {
	b := &builder{scope: in}
	key, ok := b.exprs(arg)
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
func (s *set) fill(list []any) {
	s.elements = make([]element, 0, len(list))
	for _, x := range list {
		e, rest, ok := s.element(x)
		if !ok {
			s.unread = "an element cannot be read: " + exprText(x)
			return
		}
		if rest {
			s.wildcard = int32(len(s.elements)) //nolint:gosec // no dump has 2^31 elements
		}
		s.elements = append(s.elements, e)
	}
	s.index()
}

// element reads an element; rest tells that it stands for every key that no other has.
func (s *set) element(v any) (e element, rest, ok bool) {
	if s.data != nil {
		pair, _ := v.([]any)
		if len(pair) != 2 {
			return e, false, false
		}
		if v, ok = pair[0], s.value(&e, pair[1]); !ok {
			return e, false, false
		}
	}
	if key, arg, ok := one(v); ok && key == "elem" { // one with a timeout, a comment, a counter
		v = member(arg, "val")
	}
	if v == "*" {
		return e, true, true
	}
	parts := []any{v}
	if key, arg, ok := one(v); ok && key == "concat" {
		parts, _ = arg.([]any)
	}
	if len(parts) != len(s.fields) || len(parts) > maxFields {
		return e, false, false
	}
	for i, p := range parts {
		if e.first[i], e.last[i], ok = s.fields[i].constant(p); !ok {
			return e, false, false
		}
	}
	return e, false, true
}

// value reads what a map gives for a key.
func (s *set) value(e *element, v any) bool {
	if s.isVerdictMap() {
		key, arg, ok := one(v)
		kind, isVerdict := verdicts[key]
		if !ok || !isVerdict {
			return false
		}
		e.effect.Kind = kind
		if kind == netfilter.Jump || kind == netfilter.Goto {
			e.target, _ = member(arg, "target").(string)
			return e.target != ""
		}
		return true
	}
	if key, arg, ok := one(v); ok && key == "elem" {
		v = member(arg, "val")
	}
	parts := []any{v}
	if key, arg, ok := one(v); ok && key == "concat" {
		parts, _ = arg.([]any)
	}
	if len(parts) != len(s.data) {
		return false
	}
	for i, p := range parts {
		lo, hi, ok := s.data[i].constant(p)
		if !ok {
			return false
		}
		e.data = append(e.data, span{lo, hi})
	}
	return true
}

// verdicts are the verdicts of rules and of maps. "continue" goes on with the rule.
var verdicts = map[string]netfilter.Kind{
	"accept": netfilter.Accept, "drop": netfilter.Drop, "return": netfilter.Return, "continue": netfilter.Next,
	"jump": netfilter.Jump, "goto": netfilter.Goto,
}
