// SPDX-License-Identifier: Apache-2.0

package netfilter

import "net/netip"

// BoundField is the property of a packet that a Bound compares.
type BoundField uint8

// The fields.
const (
	BoundSource      BoundField = iota // the source address
	BoundDestination                   // the destination address
	BoundIncoming                      // the interface that the packet came in by
)

// Bound is a condition of a rule on a packet's addresses or on its incoming interface, as it is written in the rule:
// for who wants to know what a rule asks for, and not what it does with a packet.
type Bound struct {
	Field  BoundField
	Prefix netip.Prefix // of an address; masked
	Iface  string       // of an interface
	Wild   bool         // Iface is a prefix of the interface's name
	Not    bool         // the condition is negated
}

// Bounder is an Op that has conditions of this kind.
type Bounder interface {
	Op
	// Bounds calls f with each of them. A condition that is no Bound (a mask that is no prefix, a set) is left out.
	Bounds(f func(Bound))
}

// Bounds returns the rule's conditions on addresses and on the incoming interface, in the order of the rule.
func (r *Rule) Bounds() []Bound {
	var out []Bound
	for _, o := range r.Ops {
		if b, ok := o.(Bounder); ok {
			b.Bounds(func(x Bound) { out = append(out, x) })
		}
	}
	return out
}
