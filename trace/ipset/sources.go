// SPDX-License-Identifier: Apache-2.0

package ipset

import "net/netip"

// Prefixes calls f with the addresses and networks of a set's elements, those of the sets of a list included. What the
// set does not hold as an address is left out; of a set that is not known nothing is.
func (s *Sets) Prefixes(name string, f func(netip.Prefix)) {
	if s == nil || s.byName[name] == nil {
		return
	}
	x := s.byName[name]
	each := func(k key) {
		for _, p := range []netip.Prefix{k.a, k.b} {
			if p.IsValid() {
				f(p)
			}
		}
	}
	for k := range x.exact {
		each(k)
	}
	for k := range x.spans {
		each(k)
	}
	for k := range x.some {
		each(k)
	}
	for k := range x.ifaces {
		each(k)
	}
	for _, member := range x.lists {
		if m := s.byName[member]; m != nil && len(m.lists) == 0 {
			s.Prefixes(member, f)
		}
	}
}
