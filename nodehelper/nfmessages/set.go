// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// The attributes of sets and of their elements (enum nft_set_attributes, nft_set_elem_attributes,
// nft_set_elem_list_attributes).
const (
	setTable    = 1
	setName     = 2
	setFlags    = 3
	setKeyType  = 4
	setKeyLen   = 5
	setDataType = 6
	setDataLen  = 7
	setDesc     = 9
	setTimeout  = 11
	setUserData = 13
	setObjType  = 15
	setHandle   = 16
	setExpr     = 17
	setExprs    = 18
	setCount    = 20

	descSize = 1 // in setDesc

	elementKey     = 1
	elementData    = 2
	elementFlags   = 3
	elementTimeout = 4
	elementUser    = 6
	elementExpr    = 7
	elementObject  = 9
	elementKeyEnd  = 10
	elementExprs   = 11
)

// The flags of sets (enum nft_set_flags) and of elements (enum nft_set_elem_flags).
const (
	setAnonymous = 0x1
	setConstant  = 0x2
	setInterval  = 0x4
	setMap       = 0x8
	setTimed     = 0x10
	setObjects   = 0x40

	elementEnd      = 0x1
	elementCatchall = 0x2
)

// dumpSet is a set of a dump.
type dumpSet struct {
	table                syntax.TableName
	name                 string
	flags                uint64
	keys, data           []*wireType // nil: not known
	lengths, dataLengths []int       // of the parts of keys and data, in bytes
	dataLength           int
	object               uint64   // of a map of objects, their kind
	lists                [][]byte // its elements as they came, until they are read
	count                int      // how many they are
	elements             []dumpElement
	declared             *syntax.Set // nil: it has no name of its own
	alien                string      // what of it, or of its elements, is not known
}

// dumpElement is an element: the attributes that count.
type dumpElement struct {
	key, end, data, user []byte
	object               string
	flags                uint64
	timeout              uint64 // ms
	statements           []syntax.Statement
}

// readSet reads a set without its elements.
func (d *dump) readSet(family string, data []byte) (*dumpSet, *syntax.Set, error) {
	var a attrs
	if err := parseAttrs(data, d.Order, &a); err != nil {
		return nil, nil, err
	}
	s := &dumpSet{
		table: syntax.TableName{Family: family, Name: a.text(setTable)}, name: a.text(setName),
		flags: a.num(setFlags), object: a.num(setObjType), dataLength: a.size(setDataLen),
	}
	o := &syntax.Set{
		Name: s.name, Timeout: int64(a.num(setTimeout) / 1000), Flags: setFlagsOf(s.flags), //nolint:gosec // ms
	}
	if n, more := a.beyond(upTo(setCount)); more {
		s.alien = "a set " + attributeName(n, more)
	}
	var desc attrs
	if parseAttrs(a[setDesc], d.Order, &desc) == nil {
		o.Size = int(min(desc.num(descSize), math.MaxInt32))
	}
	if s.name == "" || s.table.Name == "" {
		return nil, nil, errAttrs
	}
	var err error
	if o.Statements, err = d.statements(s.table.Family, a[setExpr], a[setExprs]); err != nil {
		return nil, nil, err
	}
	var keyHost, dataHost, interval bool
	for _, u := range [...]struct {
		kind uint8
		to   *bool
	}{{userKeyOrder, &keyHost}, {userDataOrder, &dataHost}, {userDataInterval, &interval}} {
		v, err := userData(a[setUserData], u.kind)
		if err != nil {
			return nil, nil, err
		}
		*u.to = d.hostNumber(v) == 1 // BYTEORDER_HOST_ENDIAN, or true
	}
	keyLen := a.size(setKeyLen)
	s.keys, s.lengths = typedLengths(a.num(setKeyType), keyLen, keyHost, s.fieldLengths(d, a[setDesc]))
	o.Keys = *typeNames(s.keys)
	switch {
	case s.flags&setObjects != 0:
		o.Data = &syntax.Type{Names: []string{objectNames[s.object]}}
	case s.flags&setMap != 0:
		length := s.dataLength
		if interval {
			length /= 2
		}
		s.data, s.dataLengths = typedLengths(a.num(setDataType), length, dataHost, nil)
		o.Data = typeNames(s.data)
	}
	return s, o, nil
}

// setFlagsOf are the flags that nft prints.
func setFlagsOf(flags uint64) (out []string) {
	for _, f := range [...]struct {
		bit  uint64
		name string
	}{{setConstant, "constant"}, {setInterval, "interval"}, {setTimed, "timeout"}} {
		if flags&f.bit != 0 {
			out = append(out, f.name)
		}
	}
	return out
}

// The parts of a set's user data (enum nftnl_udata_set_types of libnftnl).
const (
	userKeyOrder     = 0
	userDataOrder    = 1
	userDataInterval = 6
)

// fieldLengths reads how long the parts of a concatenation are, where the kernel was told.
func (s *dumpSet) fieldLengths(d *dump, desc []byte) []int {
	const concat, element, length = 2, 1, 1
	var a attrs
	if parseAttrs(desc, d.Order, &a) != nil {
		return nil
	}
	var out []int
	for kind, e := range eachAttr(a[concat], d.Order) {
		var f attrs
		if kind != element || e == nil || parseAttrs(e, d.Order, &f) != nil {
			return nil
		}
		out = append(out, f.size(length))
	}
	return out
}

// typedLengths finds the types of a key or of data, and where its parts begin: in registers, of 4 bytes each. Where the
// types do not fill the length, they are not known.
func typedLengths(number uint64, total int, host bool, lengths []int) ([]*wireType, []int) {
	if total <= 0 || total > len(registers{})*registerBytes {
		return nil, nil
	}
	list, ok := typesOfNumber(number)
	switch {
	case !ok:
		return nil, []int{total}
	case list[0] == wireVerdict:
		return list, nil
	}
	if len(list) == 1 {
		if list[0] == wireInteger && host {
			list = wireHostInt.alone()
		}
		return list, []int{total}
	}
	if len(lengths) != len(list) {
		lengths = make([]int, len(list))
		for i, t := range list {
			lengths[i] = t.size
			if t.size == 0 {
				lengths[i] = registerBytes
			}
		}
	}
	sum := 0
	for _, n := range lengths {
		sum += align(n)
	}
	if sum != align(total) {
		return nil, []int{total}
	}
	return list, lengths
}

// typeNames are the types as nft prints them; of types that are not known a word that no type has.
func typeNames(list []*wireType) *syntax.Type {
	if len(list) == 0 {
		return &syntax.Type{Names: []string{"a type that is not known"}}
	}
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.name
	}
	return &syntax.Type{Names: names}
}

// readElements reads elements of a set from one message.
func (d *dump) readElements(s *dumpSet, list []byte) error {
	for _, e := range eachAttr(list, d.Order) {
		var a attrs
		if e == nil {
			return errAttrs
		}
		if err := parseAttrs(e, d.Order, &a); err != nil {
			return err
		}
		if n, more := a.beyond(upTo(elementExprs)); more {
			s.alien = "an element of a set " + attributeName(n, more)
		}
		if a.num(elementFlags)&^(elementEnd|elementCatchall) != 0 {
			s.alien = fmt.Sprintf("an element of a set with the flags %#x", a.num(elementFlags))
		}
		out := dumpElement{
			flags: a.num(elementFlags), timeout: a.num(elementTimeout), data: a[elementData], user: a[elementUser],
			object: a.text(elementObject),
		}
		var err error
		if out.statements, err = d.statements(s.table.Family, a[elementExpr], a[elementExprs]); err != nil {
			return err
		}
		for _, part := range [...]struct {
			from int
			to   *[]byte
		}{{elementKey, &out.key}, {elementKeyEnd, &out.end}} {
			for kind, v := range eachAttr(a[part.from], d.Order) {
				if v == nil {
					return errAttrs
				}
				if kind != dataValue {
					s.alien = "an element of a set with a key that is no value"
				}
				*part.to = v
			}
		}
		if out.key == nil && out.flags&elementCatchall == 0 {
			return fmt.Errorf("an element of the set %s has no key", s.name)
		}
		s.elements = append(s.elements, out)
	}
	return nil
}

// list makes the elements as nft -j prints them, sorted as nft does. types are those of the key; of an anonymous set
// they are those of what is looked up in it.
func (s *dumpSet) list(d *dump, types []*wireType) ([]syntax.Element, error) {
	if len(types) == 0 || len(types) != len(s.lengths) && len(s.elements) > 0 {
		if len(s.elements) == 0 {
			return nil, nil
		}
		return []syntax.Element{{Key: syntax.String("an element of a type that is not known")}}, nil
	}
	intervals := s.flags&setInterval != 0
	var rest *dumpElement
	elements := make([]*dumpElement, 0, len(s.elements))
	for i := range s.elements {
		if e := &s.elements[i]; e.flags&elementCatchall != 0 {
			rest = e
			continue
		}
		elements = append(elements, &s.elements[i])
	}
	if intervals && len(s.lengths) == 1 {
		elements = joinIntervals(elements, s.lengths[0])
	} else if !intervals {
		s.sort(d, elements, types)
	}
	out := make([]syntax.Element, 0, len(elements)+1)
	for _, e := range elements {
		v, err := s.one(d, e, s.keyOf(d, e, types, intervals))
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if rest != nil {
		v, err := s.one(d, rest, syntax.String("*"))
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// sort puts keys into the order of their values, as nft takes them: numbers and names as numbers of the machine.
func (s *dumpSet) sort(d *dump, elements []*dumpElement, types []*wireType) {
	if len(types) > 1 || !types[0].host && types[0] != wireIfname || !d.little {
		slices.SortFunc(elements, func(a, b *dumpElement) int { return bytes.Compare(a.key, b.key) })
		return
	}
	slices.SortFunc(elements, func(a, b *dumpElement) int {
		for i := min(len(a.key), len(b.key)) - 1; i >= 0; i-- {
			if a.key[i] != b.key[i] {
				return int(a.key[i]) - int(b.key[i])
			}
		}
		return len(a.key) - len(b.key)
	})
}

// joinIntervals makes ranges of the elements that begin and end them: the kernel has the first value of each, and the
// first one behind it (nft_set_rbtree.c). A range without an end reaches to the last value.
func joinIntervals(elements []*dumpElement, length int) []*dumpElement {
	slices.SortFunc(elements, func(a, b *dumpElement) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		return int(b.flags&elementEnd) - int(a.flags&elementEnd)
	})
	var out []*dumpElement
	for i, e := range elements {
		if e.flags&elementEnd != 0 {
			continue
		}
		whole := *e
		if e.end == nil {
			if i+1 < len(elements) {
				whole.end = before(elements[i+1].key)
			} else {
				whole.end = bytes.Repeat([]byte{0xff}, length)
			}
		}
		out = append(out, &whole)
	}
	return out
}

// before returns the value in front of another.
func before(v []byte) []byte {
	out := slices.Clone(v)
	for i := len(out) - 1; i >= 0; i-- {
		out[i]--
		if out[i] != 0xff {
			break
		}
	}
	return out
}

// keyOf writes the key of an element.
func (s *dumpSet) keyOf(d *dump, e *dumpElement, types []*wireType, intervals bool) syntax.Expr {
	parts := make([]syntax.Expr, 0, len(types))
	at := 0
	for i, length := range s.lengths {
		if at+length > len(e.key) || e.end != nil && at+length > len(e.end) {
			return notUnderstood("a key that is too short")
		}
		first, last := e.key[at:at+length], e.key[at:at+length]
		if e.end != nil {
			last = e.end[at : at+length]
		}
		parts = append(parts, types[i].between(d, first, last, intervals))
		at += align(length)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return syntax.Concat(parts)
}

// between writes a value, or the values from one to another: as a network where they are one. In sets with intervals
// all values are in network byte order (set_to_intervals in src/segtree.c of nft).
func (t *wireType) between(d *dump, first, last []byte, intervals bool) syntax.Expr {
	swapped := intervals && t.host
	from := t.inOrder(d, first, swapped)
	if bytes.Equal(first, last) {
		return t.constant(d, from)
	}
	to := t.inOrder(d, last, swapped)
	if t == wireIfname {
		n := bytes.IndexByte(from, 0)
		if n >= 0 && bytes.Equal(bytes.TrimRight(from, "\x00"), from[:n]) &&
			len(bytes.TrimRight(to, "\xff")) <= n && bytes.Equal(from[:n], to[:n]) {
			return syntax.String(string(from[:n]) + "*")
		}
	}
	if bits, ok := networkBits(from, to); ok && t.prefix {
		return &syntax.Prefix{Addr: t.constant(d, from), Len: float64(bits)}
	}
	return &syntax.Range{From: t.constant(d, from), To: t.constant(d, to)}
}

// networkBits tells whether the values from one to another are a network, and how long its prefix is.
func networkBits(from, to []byte) (int, bool) {
	diff := make([]byte, len(from))
	for i := range from {
		diff[i] = ^(from[i] ^ to[i])
	}
	first, bits, ok := oneRun(diff)
	if !ok {
		first, bits = 0, 0
	}
	if first != 0 {
		return 0, false
	}
	for i := bits; i < len(from)*8; i++ {
		if from[i/8]>>(7-i%8)&1 != 0 {
			return 0, false
		}
	}
	return bits, true
}

// one makes an element: the key, with its comment and timeout, and what the map has for it.
func (s *dumpSet) one(d *dump, e *dumpElement, key syntax.Expr) (out syntax.Element, err error) {
	text, err := comment(e.user)
	if err != nil {
		return out, err
	}
	if text != "" || e.timeout > 0 || len(e.statements) > 0 {
		key = &syntax.Elem{
			Val: key, Statements: e.statements, Comment: text,
			Timed: e.timeout > 0, Timeout: float64(e.timeout / 1000),
		}
	}
	out.Key = key
	if s.flags&(setMap|setObjects) != 0 {
		out.Value, err = s.value(d, e)
	}
	return out, err
}

// value makes what a map has for a key.
func (s *dumpSet) value(d *dump, e *dumpElement) (syntax.Expr, error) {
	if s.flags&setObjects != 0 {
		return syntax.String(e.object), nil
	}
	var a attrs
	if err := parseAttrs(e.data, d.Order, &a); err != nil {
		return nil, err
	}
	if a[dataVerdictAttr] != nil {
		return d.elementVerdict(a[dataVerdictAttr])
	}
	v := a[dataValue]
	var parts []syntax.Expr
	at, half := 0, 0
	for _, n := range s.dataLengths {
		half += align(n)
	}
	for i, length := range s.dataLengths {
		switch {
		case i >= len(s.data) || at+length > len(v):
			return notUnderstood("data of a type that is not known"), nil
		case len(v) >= half+at+length && len(v) > half: // the last value stands behind the first
			parts = append(parts, s.data[i].between(d, v[at:at+length], v[half+at:half+at+length], false))
		default:
			parts = append(parts, s.data[i].constant(d, s.data[i].inOrder(d, v[at:at+length], false)))
		}
		at += align(length)
	}
	switch len(parts) {
	case 0:
		return notUnderstood("data of a type that is not known"), nil
	case 1:
		return parts[0], nil
	}
	return syntax.Concat(parts), nil
}
