// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
)

// Table holds all entries, indexed by the destination of their first packets.
type Table struct {
	entries []Entry
	byDst   map[destination][]int32
}

type destination struct {
	proto uint8
	addr  netip.Addr
	port  uint16
}

// NewTable makes a table of entries.
func NewTable(entries []Entry) *Table {
	t := &Table{entries: entries, byDst: make(map[destination][]int32, len(entries))}
	for i := range entries {
		o := &entries[i].Original
		k := destination{entries[i].Proto, o.Dst, o.DstPort}
		t.byDst[k] = append(t.byDst[k], int32(i))
	}
	return t
}

// To calls f with every entry whose first packet was sent to an address and port. Entries must not be changed.
func (t *Table) To(proto uint8, to netip.AddrPort, f func(*Entry)) {
	for _, i := range t.byDst[destination{proto, to.Addr(), to.Port()}] {
		f(&t.entries[i])
	}
}

// Len returns the number of entries.
func (t *Table) Len() int { return len(t.entries) }
