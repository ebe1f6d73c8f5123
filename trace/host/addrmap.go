// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"net/netip"
)

// AddrMap says yes or no of addresses. Those of IPv4, of which there are tens of thousands, are found by four bytes:
// that takes a third of the time of a netip.Addr.
type AddrMap struct {
	v4 map[[4]byte]bool
	v6 map[netip.Addr]bool
}

// NewAddrMap makes an AddrMap with room for so many addresses of IPv4.
func NewAddrMap(room int) *AddrMap {
	return &AddrMap{make(map[[4]byte]bool, room), map[netip.Addr]bool{}}
}

// Set says it of an address, which has to be unmapped (netip.Addr.Unmap).
func (m *AddrMap) Set(a netip.Addr, yes bool) {
	if a.Is4() {
		m.v4[a.As4()] = yes
	} else {
		m.v6[a] = yes
	}
}

// Get returns what was said of an address, which has to be unmapped, and whether anything was. A nil AddrMap has none.
func (m *AddrMap) Get(a netip.Addr) (yes, has bool) {
	switch {
	case m == nil:
	case a.Is4():
		yes, has = m.v4[a.As4()]
	default:
		yes, has = m.v6[a]
	}
	return yes, has
}

// Equal tells whether both say the same of the same addresses. Neither may be nil.
func (m *AddrMap) Equal(o *AddrMap) bool { return maps.Equal(m.v4, o.v4) && maps.Equal(m.v6, o.v6) }
