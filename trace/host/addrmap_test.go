// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"testing"
)

func TestAddrMap(t *testing.T) {
	a := NewAddrMap(2)
	a.Set(ip("10.0.0.1"), true)
	a.Set(ip("10.0.0.2"), false)
	a.Set(ip("fd00::1"), true)
	for _, c := range []struct {
		m        *AddrMap
		addr     netip.Addr
		yes, has bool
	}{
		{a, ip("10.0.0.1"), true, true},
		{a, ip("10.0.0.2"), false, true},
		{a, ip("10.0.0.3"), false, false},
		{a, ip("fd00::1"), true, true},
		{a, ip("fd00::2"), false, false},
		{nil, ip("10.0.0.1"), false, false},
	} {
		if yes, has := c.m.Get(c.addr); yes != c.yes || has != c.has {
			t.Errorf("%s: %t, %t; want %t, %t", c.addr, yes, has, c.yes, c.has)
		}
	}
	b := NewAddrMap(0)
	b.Set(ip("fd00::1"), true)
	b.Set(ip("10.0.0.1"), true)
	if a.Equal(b) {
		t.Error("equal, without 10.0.0.2")
	}
	b.Set(ip("10.0.0.2"), false)
	if !a.Equal(b) || !b.Equal(a) {
		t.Error("not equal, with the same addresses")
	}
}
