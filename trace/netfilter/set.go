// SPDX-License-Identifier: Apache-2.0

package netfilter

import "net/netip"

// Set is a set or a map of a native table, for reading its elements. Rules that look something up in it are ops of
// their own.
type Set interface {
	Name() string
	// Each calls f with every element, in the order of the dump.
	Each(f func(SetElement))
	// Texts calls f with the text of every element, of a map with what it has for it, in the order of the dump.
	Texts(f func(text string))
	// Declaration writes what a set is, beside its elements, that decides what looking up in it and adding to it do: its
	// types, its timeout, how many elements it may have, and the statements that stand on it.
	Declaration() string
	// Expires tells whether elements are removed after a time: then the set is a memory of packets.
	Expires() bool
	// Unread says why not all elements are known; "" where they are.
	Unread() string
}

// SetElement is an element of a Set. Of its key the fields are told that an address, a protocol and a port are; zero
// where the key has no such field, or where it is a range.
type SetElement struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
	// Kind is the verdict of an element of a verdict map, with the chain that it jumps to; Next for every other.
	Kind  Kind
	Chain string
}

// Lookup is an element of a set or map that decided about a packet.
type Lookup struct {
	Set     string // its name; "" for one that stands in the rule itself
	Element SetElement
}

// Set returns the table's set of that name, nil when there is none.
func (t *Table) Set(name string) Set {
	for _, s := range t.Sets {
		if s.Name() == name {
			return s
		}
	}
	return nil
}
