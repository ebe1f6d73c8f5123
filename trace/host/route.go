// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The tables of the kernel's default rules.
const (
	tableLocal   = "local"
	tableMain    = "main"
	tableDefault = "default"
)

// routeThrow is the type of a route by which the next rule is asked.
const routeThrow RouteType = "throw"

// entry is one route of a table.
type entry struct {
	typ     RouteType
	unknown string // why it cannot be followed; "" where it can
	table   string
	prefix  netip.Prefix
	from    netip.Prefix // of the sources that it is for; invalid: all. IPv6 alone has such routes
	tos     uint8        // that it is for; 0: any
	metric  uint32
	scope   uint8
	prefSrc netip.Addr
	mtu     int // the largest packet that the route takes; 0: it has none of its own
	advMSS  int // the segments that TCP announces by it; 0: as the largest packet allows
	// hopLimit is the TTL or hop limit of packets that the namespace itself sends; 0: the route has none of its own.
	hopLimit int
	hops     []Hop  // those that are used; none for a route that refuses
	anycast  bool   // ip prints anycast for local: many hosts have the address, this one among them
	byObject bool   // it refuses as its next hop object does: the type of the route itself is unicast
	nhid     uint32 // the next hop object that it leads by, where that was not resolved; 0 for all others
	agents   bool   // the kernel or a program that names itself (proto kernel, bird, dhcp, …) has made it
}

// anycast is the type that ip prints for such a route.
const anycast = "anycast"

// refuses tells whether a route ends the lookup with an error.
func (e *entry) refuses() bool {
	return e.typ == RouteBlackhole || e.typ == RouteUnreachable || e.typ == RouteProhibit
}

// route returns what the next hops have in common.
func (e *entry) route() Route {
	r := Route{Type: e.typ, PrefSrc: e.prefSrc}
	switch {
	case e.refuses():
		return Route{Type: e.typ}
	case e.typ == RouteLocal:
		r.Dev = "lo"
		return r
	case len(e.hops) == 0:
		return r
	}
	first := &e.hops[0]
	r.Dev, r.Gateway = first.Dev, first.Gateway
	if !r.PrefSrc.IsValid() {
		r.PrefSrc = first.PrefSrc
	}
	for i := range e.hops[1:] {
		h := &e.hops[i+1]
		if h.Dev != r.Dev {
			r.Dev, r.Gateway = "", netip.Addr{}
		} else if h.Gateway != r.Gateway {
			r.Gateway = netip.Addr{}
		}
		if !e.prefSrc.IsValid() && h.PrefSrc != r.PrefSrc {
			r.PrefSrc = netip.Addr{}
		}
	}
	return r
}

// dev returns the interface of the first next hop, which is the one whose group counts (fib4_rule_suppress in
// net/ipv4/fib_rules.c).
func (e *entry) dev() string {
	if len(e.hops) == 0 {
		return ""
	}
	return e.hops[0].Dev
}

// text formats a route as ip route does.
func (e *entry) text() string { return strings.Join(e.words(), " ") }

// words are the route as ip route prints it, and takes it, but for its table.
func (e *entry) words() []string {
	var out []string
	switch {
	case e.anycast:
		out = append(out, anycast)
	case e.typ != RouteUnicast:
		out = append(out, string(e.typ))
	}
	switch {
	case e.prefix.Bits() == 0:
		out = append(out, "default")
	case e.prefix.IsSingleIP():
		out = append(out, e.prefix.Addr().String())
	default:
		out = append(out, e.prefix.String())
	}
	if e.from.IsValid() {
		out = append(out, "from", e.from.String())
	}
	if e.tos != 0 {
		out = append(out, "tos", fmt.Sprintf("%#x", e.tos))
	}
	hop := func(h *Hop) {
		if h.Gateway.IsValid() {
			if via := "via"; h.Gateway.Is4() != e.prefix.Addr().Is4() {
				out = append(out, via, "inet6", h.Gateway.String())
			} else {
				out = append(out, via, h.Gateway.String())
			}
		}
		if h.Dev != "" {
			out = append(out, "dev", h.Dev)
		}
	}
	switch {
	case e.refuses() || e.typ == routeThrow:
	case e.nhid != 0:
		out = append(out, "nhid", strconv.FormatUint(uint64(e.nhid), 10))
	case len(e.hops) == 1:
		hop(&e.hops[0])
	default:
		for i := range e.hops {
			out = append(out, "nexthop")
			hop(&e.hops[i])
			out = append(out, "weight", strconv.Itoa(e.hops[i].Weight))
		}
	}
	if e.metric != 0 {
		out = append(out, "metric", strconv.FormatUint(uint64(e.metric), 10))
	}
	return out
}

// table is one routing table, ready for lookups.
type table struct {
	bits []int // the prefix lengths that occur, longest first
	at   map[netip.Prefix][]entry
}

// each calls f with the routes of a table that a packet may get, in the order in which the kernel prefers them: the
// longest prefix first, of IPv6 then the longest prefix of the source, then the TOS, then the lowest metric
// (fib_table_lookup in net/ipv4/fib_trie.c, fib6_node_lookup in net/ipv6/ip6_fib.c). certain: the packet gets it if it
// has got none before. It ends where f returns true.
func (t *table) each(q *Query, f func(e *entry, certain bool) bool) {
	if t == nil {
		return
	}
	for _, bits := range t.bits {
		p, err := q.Dst.Prefix(bits)
		if err != nil {
			continue
		}
		es := t.at[p]
		// A route for some sources hides those to the same destination that are for all, but for the default route
		// (fib6_node_lookup_1 in net/ipv6/ip6_fib.c).
		hidden := bits > 0 && len(es) > 0 && es[0].from.Bits() > 0
		for len(es) > 0 {
			fits, certain := es[0].fits(q)
			if hidden && es[0].from.Bits() <= 0 { // of a bound socket that depends on the routes before (fib6_backtrack)
				fits, certain = fits && q.bound(), false
			}
			as := asGood(q, es)
			for i := range es[:as] {
				if fits && f(&es[i], certain && i == as-1) {
					return
				}
			}
			es = es[as:]
		}
	}
}

// fits tells whether a route is for a packet, and whether that is certain.
func (e *entry) fits(q *Query) (fits, certain bool) {
	certain = true
	if e.tos != 0 {
		mask := uint8(legacyTOS)
		if e.tos != q.TOS&mask && !q.AnyTOS {
			return false, true
		}
		certain = certain && !q.AnyTOS
	}
	if e.from.IsValid() && e.from.Bits() > 0 {
		if q.Src.IsValid() && !e.from.Contains(q.Src) {
			return false, true
		}
		certain = certain && q.Src.IsValid()
	}
	return true, certain
}

func (e *entry) asGood(o *entry) bool {
	return e.metric == o.metric && e.tos == o.tos && e.from == o.from
}

// asGood returns how many of the first of some routes are as good as each other, so that more decides than a packet
// has: IPv6 balances over them (find_rr_leaf in net/ipv6/route.c), and of IPv4's default routes a local process's
// packet gets one whose gateway answers (fib_select_default in net/ipv4/fib_semantics.c). Of all others the first is
// taken.
func asGood(q *Query, es []entry) int {
	one := &es[0]
	if q.Dst.Is4() && (!q.Local || one.prefix.Bits() > 0 || one.typ != RouteUnicast) {
		return 1
	}
	n := 1
	for n < len(es) && one.asGood(&es[n]) {
		n++
	}
	return n
}

// first returns the first route to an address, for packets without a TOS and of any source; nil where there is none.
// What several as good ones have in common is one route.
func (t *table) first(a netip.Addr) *entry {
	var got *entry
	t.each(&Query{Dst: a, Src: anyAddr(a.Is4())}, func(e *entry, certain bool) bool {
		if got == nil {
			got = e
			if !certain {
				merged := *e
				got = &merged
			}
			return certain
		}
		got.hops = append(slices.Clone(got.hops), e.hops...)
		return certain
	})
	return got
}

func (f *family) setTables(tables map[string]*table, all bool) {
	f.routesKnown, f.allTables, f.tables = true, all, tables
	f.makeLocal()
	if all && tables[tableLocal] != nil {
		f.addrsKnown = true
	}
	for _, name := range []string{tableLocal, tableMain} {
		if t := tables[name]; t != nil {
			f.addLocalRoutes(t)
		}
	}
}

// addLocalRoutes adds the local and broadcast routes of a table to the maps that also hold the addresses of
// ip-addr.json. The kernel has them in the table local; one added to main by hand has the same effect, at a lower
// priority.
func (f *family) addLocalRoutes(t *table) {
	for p, es := range t.at {
		for i := range es {
			e := &es[i]
			switch {
			case e.typ == RouteBroadcast && p.IsSingleIP():
				f.broadcast[p.Addr()] = e.dev()
			case e.typ != RouteLocal:
			case p.IsSingleIP():
				f.local[p.Addr()] = e.prefSrc
			default:
				f.localNets = append(f.localNets, localNet{p, e.prefSrc})
			}
		}
	}
}

// build prepares the table for lookups: it orders the routes of each prefix.
func (t *table) build(v6 bool) {
	seen := map[int]bool{}
	for p, es := range t.at {
		seen[p.Bits()] = true
		if len(es) > 1 {
			slices.SortStableFunc(es, func(a, b entry) int {
				return cmp.Or(
					cmp.Compare(b.from.Bits(), a.from.Bits()),
					cmp.Compare(b.tos, a.tos),
					cmp.Compare(a.metric, b.metric),
				)
			})
		}
		if v6 {
			t.at[p] = balanced(es)
		}
	}
	for bits := range seen {
		t.bits = append(t.bits, bits)
	}
	slices.SortFunc(t.bits, func(a, b int) int { return b - a })
}

// balanced makes one route of several that IPv6 balances over (find_rr_leaf in net/ipv6/route.c).
func balanced(es []entry) []entry {
	kept := es[:0]
	for i := range es {
		e := &es[i]
		if len(kept) > 0 && e.typ == RouteUnicast && e.unknown == "" {
			if o := &kept[len(kept)-1]; o.typ == RouteUnicast && o.unknown == "" && o.asGood(e) {
				o.hops = append(o.hops, e.hops...)
				continue
			}
		}
		kept = append(kept, *e)
	}
	return kept
}

// ByGateway tells whether a route of any table leads to an address by a gateway, but for default routes.
func (n *Network) ByGateway(a netip.Addr) bool {
	for _, t := range n.family(a).tables {
		for _, bits := range t.bits {
			p, err := a.Prefix(bits)
			if bits == 0 || err != nil {
				continue
			}
			es := t.at[p]
			for i := range es {
				if slices.ContainsFunc(es[i].hops, func(h Hop) bool { return h.Gateway.IsValid() }) {
					return true
				}
			}
		}
	}
	return false
}

// LimitsRoutes tells whether any route has a largest packet or segment of its own.
func (n *Network) LimitsRoutes() bool { return n.limits }
