// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

var (
	_ netfilter.SourceNamer = (*comparison)(nil)
	_ netfilter.SourceNamer = (*membership)(nil)
)

// NamesSources implements [netfilter.SourceNamer].
func (m *comparison) NamesSources(f func(first, last netip.Addr)) {
	for i, x := range m.left {
		if x.index == bySource && i < len(m.right) {
			v4 := x.typ == typeIPv4
			f(m.right[i].lo.addr(v4), m.right[i].hi.addr(v4))
		}
	}
}

// NamesSources calls f for the elements of a set or map whose key has the source.
func (l *lookup) NamesSources(f func(first, last netip.Addr)) {
	for i, x := range l.key {
		if x.index != bySource || i >= len(l.in.fields) {
			continue
		}
		v4 := x.typ == typeIPv4
		for k := range l.in.elements {
			if e := &l.in.elements[k]; int32(k) != l.in.wildcard {
				f(e.first[i].addr(v4), e.last[i].addr(v4))
			}
		}
	}
}
