// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
)

// members is a small object of JSON: what is read from JSON is a map, what is made of the kernel's messages is this, which takes a tenth of a
// map's memory. Both are read by [one], [member] and [words] only.
type members []namedValue

type namedValue struct {
	key   string
	value any
}

// object1 is an object with one member.
func object1(key string, value any) any { return members{{key, value}} }

// MarshalJSON writes the object as that of a map: sorted.
func (m members) MarshalJSON() ([]byte, error) {
	out := bytes.NewBufferString("{")
	for i, x := range slices.SortedFunc(slices.Values(m), func(a, b namedValue) int { return cmp.Compare(a.key, b.key) }) {
		if i > 0 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(x.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		out.Write(key)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// one returns the only member of an object.
func one(v any) (key string, arg any, ok bool) {
	switch m := v.(type) {
	case members:
		if len(m) == 1 {
			return m[0].key, m[0].value, true
		}
	case map[string]any:
		if len(m) == 1 {
			for key, arg = range m {
				ok = true
			}
		}
	}
	return key, arg, ok
}

// memberOf returns a member of an object, and whether it has one.
func memberOf(v any, key string) (any, bool) {
	switch m := v.(type) {
	case members:
		for i := range m {
			if m[i].key == key {
				return m[i].value, true
			}
		}
	case map[string]any:
		x, ok := m[key]
		return x, ok
	}
	return nil, false
}

// member returns a member of an object; nil where it has none.
func member(v any, key string) any {
	x, _ := memberOf(v, key)
	return x
}

// words returns the text of a member of an object.
func words(v any, key string) string {
	s, _ := member(v, key).(string)
	return s
}
