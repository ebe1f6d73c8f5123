// SPDX-License-Identifier: Apache-2.0

package host

import "net/netip"

// bound tells whether a lookup is for a socket that is bound to an interface: routes by others are passed over then.
func (q *Query) bound() bool { return q.Local && q.Out != "" }

// leavingBy returns a route as a socket that is bound to an interface has it, with the next hops by that alone; ok is
// false where it is passed over. For IPv4 it is one hop (fib_lookup_good_nhc in net/ipv4/fib_trie.c, fib_select_path in
// net/ipv4/fib_semantics.c); for IPv6 routes that refuse have another interface, too, and are passed over (find_match
// in net/ipv6/route.c).
func (e *entry) leavingBy(q *Query) (left *entry, ok bool) {
	v6 := !q.Dst.Is4()
	switch {
	case !q.bound(), e.typ == RouteLocal && len(e.hops) == 0, e.unknown != "", e.typ == routeThrow && !v6:
		return e, true
	case e.refuses() || e.typ == routeThrow:
		return e, !v6
	}
	one := *e
	one.hops = nil
	for i := range e.hops {
		if dev := e.hops[i].Dev; (dev == q.Out || dev == "") && (v6 || len(one.hops) == 0) {
			one.hops = append(one.hops, e.hops[i])
		}
	}
	return &one, len(one.hops) > 0
}

// onLink makes of answers by which an IPv4 packet goes nowhere that it goes to its destination on the link, where its
// socket is bound to an interface: the kernel takes the tables to be wrong (ip_route_output_key_hash_rcu in
// net/ipv4/route.c).
func (s *search) onLink() {
	dev := s.q.Out
	if !s.q.bound() || !s.q.Dst.Is4() || s.n.vrfOf(dev) != "" {
		return
	}
	for i := range s.got {
		if c := &s.got[i]; !c.unknown && c.route.Unusable() {
			c.route = Route{Type: RouteUnicast, Dev: dev, PrefSrc: s.n.selectAddress(dev, netip.Addr{}, scopeLink)}
			c.by = Decision{}
		}
	}
}
