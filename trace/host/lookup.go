// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Lookup looks up the route of a packet in the kernel's rules and tables (fib_rules_lookup in net/core/fib_rules.c). It
// is not known where the routes of the family were not collected, where it is not known whether the destination is the
// node's own, and where it depends on something that the Query does not have.
func (n *Network) Lookup(q Query) Lookup {
	q.Dst, q.Src = q.Dst.Unmap(), q.Src.Unmap().WithZone("")
	zone := q.Dst.Zone()
	q.Dst = q.Dst.WithZone("")
	dst := q.Dst
	if !dst.IsValid() {
		return Lookup{Why: "there is no address", Missing: true}
	}
	if vrf := n.vrfOf(q.In); vrf != "" && !q.Local {
		return Lookup{Why: q.In + " belongs to the VRF " + vrf + ", whose routes are not followed", MayFail: true}
	}
	f := n.family(dst)
	switch {
	case dst.IsLoopback() && f.rules == nil:
		return Lookup{Route: Route{Type: RouteLocal, Dev: "lo", PrefSrc: f.localSource(dst)}, Known: true}
	case dst.IsMulticast() && !dst.Is4() && zone == "" && f.routesKnown && f.rules == nil:
		return Lookup{Route: Route{Type: RouteMulticast}, Known: true} // every interface has a route to ff00::/8
	}
	s := searches.Get().(*search) //nolint:forcetypeassert // nothing else is put there
	defer s.over()
	s.n, s.f, s.q, s.left, s.got = n, f, q, maxRules, s.few[:0]
	rules := f.rules
	if rules == nil {
		rules = defaultRules
	}
	if !s.rules(rules, 0, true, "") {
		s.add(candidate{route: Route{Type: RouteNone}})
	}
	s.onLink()
	r := s.answer()
	if dst.IsMulticast() && !dst.Is4() && zone == "" && f.routesKnown && !(r.Known && r.By.HasRule() && r.Unusable()) {
		return Lookup{Route: Route{Type: RouteMulticast}, Known: true}
	}
	if !r.Known {
		return r
	}
	if zone != "" && (dst.IsLinkLocalUnicast() || dst.IsMulticast()) && r.Type != RouteLocal {
		r.Route, r.Hops = Route{Type: RouteUnicast, Dev: zone, PrefSrc: n.source6(zone, dst)}, nil
	}
	switch {
	case r.Type != RouteUnicast:
	case dst.IsMulticast():
		r.Type = RouteMulticast
	case dst == limitedBroadcast4:
		r.Type = RouteBroadcast
	}
	f.redirect(&r, dst)
	if !r.Known {
		return r
	}
	if r.Type == RouteLocal && !r.PrefSrc.IsValid() {
		if r.PrefSrc = dst; !dst.Is4() && !n.own6(dst) {
			r.PrefSrc = netip.Addr{} // one of the node's, by rules that differ
		}
	}
	if !dst.Is4() && r.Type != RouteLocal {
		if !r.PrefSrc.IsValid() && r.Dev != "" {
			r.PrefSrc = n.source6(r.Dev, dst)
		}
		r.Hops = slices.Clone(r.Hops)
		for i := range r.Hops {
			if h := &r.Hops[i]; !h.PrefSrc.IsValid() && h.Dev != "" {
				h.PrefSrc = n.source6(h.Dev, dst)
			}
		}
	}
	return r
}

// candidate is a possible answer.
type candidate struct {
	route   Route
	hops    []Hop
	by      Decision
	unknown bool // it cannot be followed, for why
	missing bool // for something that was not collected
	// why it need not be the answer; "" where nothing before it was open
	why string
}

// search is a lookup in progress.
type search struct {
	n   *Network
	f   *family
	q   Query
	few [2]candidate // room for most answers
	got []candidate
	// left is how many more rules may be followed, jumps that need not be taken counted twice and more.
	left int
}

// searches are those that are over: a node's paths need hundreds of thousands.
var searches = sync.Pool{New: func() any { return new(search) }}

// over makes a search ready for the next one. It keeps nothing of the node alive.
func (s *search) over() {
	*s = search{}
	searches.Put(s)
}

// maxRules bounds the work of one lookup. A node has some tens of rules, and a jump that may not be taken doubles those
// behind it.
const maxRules = 1 << 14

func (s *search) add(c candidate) {
	s.got = append(s.got, c)
}

// rules follows the rules from number i on. It returns true where the last candidate is the answer for certain, if none
// before it is. why is the reason why all that it finds need not be the answer.
func (s *search) rules(rules []rule, i int, certain bool, why string) bool {
	for ; i < len(rules); i++ {
		ru := &rules[i]
		s.left--
		if s.left < 0 {
			s.add(candidate{unknown: true, why: "the routing rules jump too often to follow them all"})
			return true
		}
		applies, known := ru.applies(s.n, &s.q)
		if known && !applies || ru.nop {
			continue
		}
		reason := why
		if !known && reason == "" {
			reason = ru.mayApply()
		}
		sure := certain && known
		switch {
		case ru.jump && ru.target < 0: // unresolved
		case ru.jump && known:
			i = ru.target - 1
		case ru.jump:
			s.rules(rules, ru.target, false, reason)
		default:
			if s.act(ru, reason) && sure {
				return true
			}
		}
	}
	return false
}

// act does what a rule says. It returns true where that is an answer for certain if the rule applies.
func (s *search) act(ru *rule, why string) bool {
	f, q := s.f, &s.q
	by := Decision{rule: ru, v6: !q.Dst.Is4()}
	if ru.standard() {
		by.rule = nil
	}
	cannot := func(because string, missing bool) bool {
		s.add(candidate{unknown: true, missing: missing, why: because})
		return true
	}
	switch {
	case ru.unread != "":
		return cannot("which routing table is looked up is not known ("+ru.unread+" could not be read)", true)
	case ru.refuses != "":
		s.add(candidate{route: Route{Type: ru.refuses}, by: by, why: why})
		return true
	case ru.l3mdev && s.n.byVRF(q) == knownTruth(false):
		// It applies by "not", and has no table of a VRF: number 0 stands for main (fib_get_table in
		// net/ipv4/fib_frontend.c, fib6_get_table in net/ipv6/ip6_fib.c).
		if !f.routesKnown {
			return cannot(errNoRoutes[famOf(q.Dst)].Error(), true)
		}
		return s.table(f.tables[tableMain], ru, by, why)
	case ru.l3mdev, ru.table == "":
		return cannot(ru.mayApply(), false)
	case ru.table == tableLocal:
		return s.local(ru, by, why, cannot)
	case !f.routesKnown:
		return cannot(errNoRoutes[famOf(q.Dst)].Error(), true)
	case f.tables[ru.table] == nil && !f.allTables && ru.table != tableMain && ru.table != tableDefault:
		return cannot("the routing rule \""+ru.text()+"\" may apply to it, and its table was not collected: "+
			tableCommand[famOf(q.Dst)], false)
	}
	return s.table(f.tables[ru.table], ru, by, why)
}

// tableCommand are the commands that would tell the routes of all tables.
var tableCommand = [2]string{"ip -j -4 route show table all", "ip -j -6 route show table all"}

// local looks up the destination in the table local: what was collected of it, else what is known of the node's
// addresses.
func (s *search) local(ru *rule, by Decision, why string, cannot func(string, bool) bool) bool {
	f, dst := s.f, s.q.Dst
	t := f.tables[tableLocal]
	if !f.allTables || t == nil {
		r, found, known := s.n.fromLocal(f, dst)
		switch {
		case !known:
			return cannot("whether it is the node's own address is not known ("+snapshot.AddrFile+")", true)
		case !found, ru.suppresses(s.n, s.n.localBits(f, dst), r.Dev):
			return false
		}
		s.merged(s.n.localBits(f, dst), by)
		s.add(candidate{route: r, by: by, why: why})
		return true
	}
	if e := t.first(dst); e != nil {
		s.merged(e.prefix.Bits(), by)
		s.thrown(e)
	}
	return s.table(t, ru, by, why)
}

// merged adds the route of the table main that is preferred to one of the table local where the two are one trie: until
// the first rule of somebody's was added, which no later removal undoes (fib_unmerge in net/ipv4/fib_frontend.c).
func (s *search) merged(bits int, by Decision) {
	f, dst := s.f, s.q.Dst
	if !dst.Is4() || bits == 32 || f.rules != nil || !f.routesKnown {
		return
	}
	if e := f.tables[tableMain].first(dst); e != nil && e.prefix.Bits() > bits {
		by.entry = e
		s.add(candidate{
			route: e.route(), by: by, why: "the route \"" + e.text() + "\" of the table main is preferred to that of the " +
				"table local, unless there was a rule (ip rule) since the node was started",
		})
	}
}

// thrown adds that there is no route where a route of the type throw in the table local ends the lookup of main, too,
// as the two are one trie ([search.merged]), and the table default has none.
func (s *search) thrown(e *entry) {
	f, dst := s.f, s.q.Dst
	if e.typ != routeThrow || !dst.Is4() || f.rules != nil || !f.routesKnown || f.tables[tableDefault].first(dst) != nil {
		return
	}
	if own := f.tables[tableMain].first(dst); own == nil || own.prefix.Bits() <= e.prefix.Bits() {
		s.add(candidate{
			route: Route{Type: RouteNone}, by: Decision{entry: e}, why: "the route \"" + e.text() + "\" of the table local " +
				"ends the lookup in the table main, too, unless there was a rule (ip rule) since the node was started",
		})
	}
}

// table looks up a rule's table. It returns true where an answer was found for certain.
func (s *search) table(t *table, ru *rule, by Decision, why string) bool {
	done, open := false, "" // open: the route by which the next rule may be asked
	t.each(&s.q, func(e *entry, certain bool) bool {
		left, ok := e.leavingBy(&s.q)
		if !ok {
			return false
		}
		end := certain
		certain = certain && open == ""
		reason := why
		if !certain && reason == "" {
			reason = "the route \"" + cmp.Or(open, e.text()) + "\" may be taken"
		}
		passed := func() bool { // the next rule goes on
			if !end {
				open = e.text()
			}
			return end
		}
		switch {
		case e.typ == routeThrow:
			return passed()
		case !e.refuses() && ru.suppresses(s.n, e.prefix.Bits(), e.dev()) && !s.balances(e, ru):
			return passed()
		}
		if s.balances(e, ru) { // that hop's interface counts which the kernel chooses
			certain, reason = false, "the route \""+e.text()+"\" may be taken"
		}
		by.entry = e
		c := candidate{route: left.route(), hops: left.hops, by: by, why: reason}
		if len(c.hops) < 2 {
			c.hops = nil
		}
		if e.unknown != "" {
			c.unknown, c.why = true, e.unknown
		}
		s.add(c)
		done = done || certain
		return end
	})
	return done
}

// balances tells whether a rule takes some next hops of an IPv6 route and not others (fib6_rule_suppress in
// net/ipv6/fib6_rules.c).
func (s *search) balances(e *entry, ru *rule) bool {
	if s.q.Dst.Is4() || ru.noGroup == "" || e.prefix.Bits() <= ru.noPrefix {
		return false
	}
	out := 0
	for i := range e.hops {
		if s.n.groupOf(e.hops[i].Dev) == ru.noGroup {
			out++
		}
	}
	return out > 0 && out < len(e.hops)
}

// same tells whether two candidates are the same answer.
func (c *candidate) same(o *candidate) bool {
	return !c.unknown && !o.unknown && c.route == o.route && slices.Equal(c.hops, o.hops)
}

// leads tells whether two candidates have the same next hops.
func (c *candidate) leads(o *candidate) bool {
	return c.unknown == o.unknown && c.route.Type == o.route.Type && c.route.Dev == o.route.Dev &&
		c.route.Gateway == o.route.Gateway && slices.EqualFunc(c.hops, o.hops, func(a, b Hop) bool {
		return a.Dev == b.Dev && a.Gateway == b.Gateway
	})
}

// answer makes one answer of the candidates.
func (s *search) answer() Lookup {
	last := &s.got[len(s.got)-1]
	open := -1
	for i := range s.got {
		if c := &s.got[i]; !c.same(last) && open < 0 {
			open = i
		}
	}
	if open < 0 {
		return Lookup{Route: last.route, Hops: last.hops, By: last.by, Known: true}
	}
	out := Lookup{Why: s.got[open].why}
	for i := range s.got {
		c := &s.got[i]
		out.Missing = out.Missing || c.unknown && c.missing
		out.MayFail = out.MayFail || c.unknown && !c.missing || !c.unknown && c.route.Unusable()
		out.Apart = out.Apart || !c.leads(last)
	}
	out.Apart = out.Apart && !out.Missing
	return out
}

// fromLocal looks up a destination among the node's own addresses, and those that broadcast.
func (n *Network) fromLocal(f *family, dst netip.Addr) (r Route, found, known bool) {
	local, known := n.Local(dst)
	switch {
	case local:
		return Route{Type: RouteLocal, Dev: "lo", PrefSrc: f.localSource(dst)}, true, true
	case !known:
		return Route{}, false, false
	}
	if dev, ok := f.broadcast[dst]; ok {
		return Route{
			Type: RouteBroadcast, Dev: dev, PrefSrc: n.selectAddress(dev, netip.Addr{}, scopeLink),
		}, true, true
	}
	return Route{}, false, true
}

// localBits returns the length of the prefix by which a destination is the node's own, or broadcasts.
func (n *Network) localBits(f *family, dst netip.Addr) int {
	if _, ok := f.local[dst]; ok {
		return dst.BitLen()
	}
	if _, ok := f.broadcast[dst]; ok {
		return dst.BitLen()
	}
	for i := range f.localNets {
		if p := f.localNets[i].prefix; p.Contains(dst) {
			return p.Bits()
		}
	}
	if loopback4.Contains(dst) {
		return loopback4.Bits()
	}
	return dst.BitLen()
}

// Route looks up the route to dst in the kernel's rules and tables by destination alone; dst may have a zone, which
// names the interface. known is false as in [Network.Lookup], and where rules may give another route for something else
// of the packet: why is the reason. The route of a packet to the node itself is by lo. Where the kernel balances over
// several interfaces the Route has no interface.
func (n *Network) Route(dst netip.Addr) (r Route, known bool, why string) {
	l := n.Lookup(Query{Dst: dst, AnyMark: true, AnyUID: true})
	return l.Route, l.Known, l.Why
}
