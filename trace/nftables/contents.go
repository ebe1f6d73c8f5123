// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// contents shows the elements of a set to other packages.
type contents struct{ *set }

// Name implements [netfilter.Set].
func (c contents) Name() string { return c.name }

// Each implements [netfilter.Set].
func (c contents) Each(f func(netfilter.SetElement)) {
	for i := range c.elements {
		f(c.show(&c.elements[i]))
	}
}

// show is an element as others see it.
func (s *set) show(e *element) netfilter.SetElement {
	out := netfilter.SetElement{Kind: e.effect.Kind, Chain: e.target}
	for at, t := range s.fields {
		if e.first[at] != e.last[at] {
			continue
		}
		switch w := e.first[at]; {
		case t == typeProto:
			out.Proto = uint8(w.lo) //nolint:gosec // has 8 bits
		case t == typePort:
			out.Port = uint16(w.lo) //nolint:gosec // has 16 bits
		case out.Addr.IsValid(): // the first one counts
		case t == typeIPv4, t == typeIPv6:
			out.Addr = w.addr(t == typeIPv4)
		}
	}
	return out
}

// decided is the effect of an element of a verdict map, with the element where the walk requests it.
func (s *set) decided(c *netfilter.Context, e *element) netfilter.Effect {
	out := e.effect
	if c.Steps {
		out.Lookup = &netfilter.Lookup{Set: s.name, Element: s.show(e)}
	}
	return out
}
