// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// The tables of the kernel's default rules.
const (
	tableLocal   = "local"
	tableMain    = "main"
	tableDefault = "default"
)

// ipRoute is a route as ip -j route prints it.
type ipRoute struct {
	Type     string   `json:"type"`
	Dst      string   `json:"dst"`
	From     string   `json:"from"`
	TOS      string   `json:"tos"`
	Table    string   `json:"table"`
	Scope    string   `json:"scope"`
	PrefSrc  string   `json:"prefsrc"`
	Metric   uint32   `json:"metric"`
	Pref     string   `json:"pref"` // only IPv6 routes have one
	Nexthops []ipNext `json:"nexthops"`
	ipNext
}

type ipNext struct {
	Dev     string   `json:"dev"`
	Gateway string   `json:"gateway"`
	Via     ipVia    `json:"via"`
	Flags   []string `json:"flags"`
}

// ipVia is a gateway of the other family.
type ipVia struct {
	Family string `json:"family"`
	Host   string `json:"host"`
}

// UnmarshalJSON reads the object that newer versions of ip print, and ignores anything else.
func (v *ipVia) UnmarshalJSON(data []byte) error {
	type plain ipVia
	if len(data) > 0 && data[0] != '{' {
		return nil
	}
	if err := json.Unmarshal(data, (*plain)(v)); err != nil {
		return fmt.Errorf("a route's via: %w", err)
	}
	return nil
}

// entry is one route of a table.
type entry struct {
	route  fullRoute
	typ    string // as ip prints it
	metric uint32
	scope  uint8
	from   bool // only for packets from a prefix
}

// tableResult is the result of a lookup in one table for one prefix.
type tableResult struct {
	route   fullRoute
	throw   bool   // continue with the next rule
	why     string // not empty: the result depends on more than the destination
	unknown bool
}

// table is one routing table, ready for lookups.
type table struct {
	raw  map[netip.Prefix][]entry // until build
	bits []int                    // the prefix lengths that occur, longest first
	at   map[netip.Prefix]tableResult
}

// lookup returns the result for the longest matching prefix; false where no route matches.
func (t *table) lookup(a netip.Addr) (tableResult, bool) {
	if t == nil {
		return tableResult{}, false
	}
	for _, bits := range t.bits {
		p, err := a.Prefix(bits)
		if err != nil {
			continue
		}
		if ans, ok := t.at[p]; ok {
			return ans, true
		}
	}
	return tableResult{}, false
}

// readRoutes reads ip-route.json or ip6-route.json.
func (n *Network) readRoutes(data []byte, fam int) error {
	routes, err := decode[ipRoute](data)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(routes, func(r ipRoute) bool { return r.Dst == "" }) {
		if err := checkRoutes(data); err != nil {
			return err
		}
	}
	var tables [2]map[string]*table
	var all [2]bool
	for i := range tables {
		tables[i] = map[string]*table{}
	}
	var count [2]int
	for i := range routes {
		r := &routes[i]
		if r.Dst == "" {
			continue // ip prints {} for routes that a filter excluded
		}
		f, prefix, e, err := r.read(fam)
		if err != nil {
			return fmt.Errorf("route %d: %w", i+1, err)
		}
		if r.Table != "" {
			all[f] = true
		}
		count[f]++
		if len(e) == 0 {
			continue
		}
		name := tableName(r.Table)
		t := tables[f][name]
		if t == nil {
			t = &table{raw: map[netip.Prefix][]entry{}}
			tables[f][name] = t
		}
		t.raw[prefix] = append(t.raw[prefix], e...)
	}
	if count[fam] == 0 && count[1-fam] > 0 {
		return errors.New("all its routes are of the other IP family")
	}
	for f := range tables {
		// "ip route show table all" prints both families; the file of IPv6's own comes first.
		if f != fam && (count[1] == 0 || f == 0 || n.fam[f].routesKnown) {
			continue
		}
		before := n.fam[f]
		n.fam[f].setTables(tables[f], all[f])
		if err := n.contradicted(f); err != nil {
			n.fam[f] = before
			return err
		}
	}
	return nil
}

// checkRoutes returns an error if a list has an object that is no route, and not one that a filter excluded.
func checkRoutes(data []byte) error {
	raw, err := decode[map[string]json.RawMessage](data)
	if err != nil {
		return err
	}
	for i, m := range raw {
		if len(m) > 0 && m["dst"] == nil {
			return fmt.Errorf("entry %d has no dst, as every route has", i+1)
		}
	}
	return nil
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
	for p, es := range t.raw {
		for _, e := range es {
			switch {
			case e.typ == "broadcast" && p.IsSingleIP():
				f.broadcast[p.Addr()] = e.route.Dev
			case e.typ != "local" && e.typ != "anycast":
			case p.IsSingleIP():
				f.local[p.Addr()] = e.route.PrefSrc
			default:
				f.localNets = append(f.localNets, localNet{p, e.route.PrefSrc})
			}
		}
	}
}

// familyOf returns the family of a route; def is that of the file, for a default route that does not show its family.
func (r *ipRoute) familyOf(def int) int {
	for _, s := range []string{r.Dst, r.PrefSrc, r.Gateway} {
		if p, err := parsePrefix(s); err == nil {
			return famOf(p.Addr())
		}
	}
	if r.Pref != "" {
		return 1
	}
	return def
}

// read returns the route's family and prefix, and its entry; none for a route that is never used for the packets here.
func (r *ipRoute) read(def int) (fam int, prefix netip.Prefix, es []entry, err error) {
	fam = r.familyOf(def)
	if r.Dst == "default" {
		prefix = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if fam == 1 {
			prefix = netip.PrefixFrom(unspecified6, 0)
		}
	} else if prefix, err = parsePrefix(r.Dst); err != nil {
		return 0, netip.Prefix{}, nil, err
	}
	e := entry{
		typ: cmp.Or(r.Type, "unicast"), metric: r.Metric, scope: scopeOf(r.Scope), from: r.From != "" && r.From != "all",
	}
	if r.PrefSrc != "" {
		if e.route.PrefSrc, err = parseAddr(r.PrefSrc); err != nil {
			return 0, netip.Prefix{}, nil, err
		}
	}
	if r.TOS != "" && r.TOS != "0" && r.TOS != "0x0" && r.TOS != "0x00" {
		return fam, prefix, nil, nil // the packets here have no TOS set
	}
	hops := r.Nexthops
	if len(hops) == 0 {
		hops = []ipNext{r.ipNext}
	}
	first := true
	for _, h := range hops {
		if len(hops) > 1 {
			e.route.hops += h.Dev + " "
		}
		gw, err := h.gateway()
		if err != nil {
			return 0, netip.Prefix{}, nil, err
		}
		// The kernel sets the flag dead where it will not use the hop, also where that is because of a link that is down and
		// a sysctl (fib_nexthop_info in net/ipv4/fib_semantics.c).
		if slices.Contains(h.Flags, "dead") {
			continue
		}
		switch {
		case first:
			e.route.Dev, e.route.Gateway, first = h.Dev, gw, false
		case e.route.Dev != h.Dev:
			e.route.Dev, e.route.Gateway = "", netip.Addr{}
		case e.route.Gateway != gw:
			e.route.Gateway = netip.Addr{}
		}
	}
	if first {
		return fam, prefix, nil, nil
	}
	return fam, prefix, []entry{e}, nil
}

func (h *ipNext) gateway() (netip.Addr, error) {
	switch {
	case h.Gateway != "":
		return parseAddr(h.Gateway)
	case h.Via.Host != "":
		return parseAddr(h.Via.Host)
	}
	return netip.Addr{}, nil
}

// build prepares the table for lookups: it chooses the route of each prefix.
func (t *table) build(v6 bool) {
	t.at = make(map[netip.Prefix]tableResult, len(t.raw))
	seen := map[int]bool{}
	for p, es := range t.raw {
		t.at[p] = choose(es, v6)
		seen[p.Bits()] = true
	}
	t.raw = nil
	for bits := range seen {
		t.bits = append(t.bits, bits)
	}
	slices.SortFunc(t.bits, func(a, b int) int { return b - a })
}

// choose returns the result of the routes of one prefix: the route with the lowest metric, and among equal ones the
// first. IPv6 balances over equal ones (find_rr_leaf in net/ipv6/route.c): where they differ the interface is left
// empty.
func choose(es []entry, v6 bool) tableResult {
	if slices.ContainsFunc(es, func(e entry) bool { return e.from }) {
		return tableResult{unknown: true, why: "a route to it is only for packets from one prefix"}
	}
	slices.SortStableFunc(es, func(a, b entry) int { return cmp.Compare(a.metric, b.metric) })
	best := es[0]
	if v6 {
		for _, e := range es[1:] {
			if e.metric != best.metric || e.typ != best.typ {
				break
			}
			if e.route.Dev != best.route.Dev {
				best.route.Dev, best.route.Gateway = "", netip.Addr{}
			} else if e.route.Gateway != best.route.Gateway {
				best.route.Gateway = netip.Addr{}
			}
		}
	}
	ans := tableResult{route: best.route}
	switch best.typ {
	case "throw":
		ans.throw = true
	case string(RouteUnicast), string(RouteMulticast), string(RouteBroadcast):
		ans.route.Type = RouteType(best.typ)
	case string(RouteLocal), "anycast":
		ans.route = fullRoute{Route: Route{Type: RouteLocal, Dev: "lo", PrefSrc: best.route.PrefSrc}}
	case string(RouteBlackhole), string(RouteUnreachable), string(RouteProhibit):
		ans.route = fullRoute{Route: Route{Type: RouteType(best.typ)}}
	default:
		ans.unknown, ans.why = true, fmt.Sprintf("its route is of the type %q", best.typ)
	}
	return ans
}

var errNoRoutes = [2]error{
	errors.New("the routes were not collected (ip-route.json)"),
	errors.New("the IPv6 routes were not collected (ip6-route.json)"),
}

// Route looks up the route to dst in the kernel's rules and tables by destination alone; dst may have a zone, which
// names the interface. known is false where the routes of the family were not collected, where it is not known whether
// dst is the node's own, and where rules beyond the default ones may give another route: why is the reason. The route
// of a packet to the node itself is by lo. Where the kernel balances over several interfaces the Route has no
// interface.
func (n *Network) Route(dst netip.Addr) (r Route, known bool, why string) {
	w, known, why := n.route(&Query{Dst: dst})
	return w.Route, known, why
}

// Query is the key of a route lookup (struct flowi_common in include/net/flow.h).
type Query struct {
	Dst  netip.Addr
	Src  netip.Addr // the zero Addr where it is not known
	In   string     // the incoming interface; "" where it is not known
	Mark uint32     // the packet's mark at the lookup
	// AnyMark: the packet's mark is not known.
	AnyMark bool

	marked   bool // Mark is known
	incoming bool // it came in by an interface
}

// RouteIn looks up the route of a packet that came in by an interface, as [Network.Route] does, and also matches the
// routing rules' conditions on source, mark and interface.
func (n *Network) RouteIn(q Query) (r Route, known bool, why string) {
	q.marked, q.incoming = !q.AnyMark, true
	w, known, why := n.route(&q)
	return w.Route, known, why
}

func (n *Network) route(in *Query) (r fullRoute, known bool, why string) {
	q := *in
	dst := q.Dst.Unmap()
	zone := dst.Zone()
	dst = dst.WithZone("")
	q.Dst, q.Src = dst, q.Src.Unmap().WithZone("")
	if !dst.IsValid() {
		return fullRoute{}, false, "there is no address"
	}
	f := n.family(dst)
	switch {
	case dst.IsLoopback():
		return fullRoute{Route: Route{Type: RouteLocal, Dev: "lo", PrefSrc: f.localSource(dst)}}, true, ""
	case dst.IsMulticast() && !dst.Is4() && zone == "" && f.routesKnown:
		return fullRoute{Route: Route{Type: RouteMulticast}}, true, "" // every interface has a route to ff00::/8
	}
	r, known, why = n.byRules(f, &q)
	if !known {
		return fullRoute{}, false, why
	}
	if zone != "" && (dst.IsLinkLocalUnicast() || dst.IsMulticast()) && r.Type != RouteLocal {
		r = fullRoute{Route: Route{Type: RouteUnicast, Dev: zone, PrefSrc: n.source6(zone, dst)}}
	}
	switch {
	case r.Type != RouteUnicast:
	case dst.IsMulticast():
		r.Type = RouteMulticast
	case dst == limitedBroadcast4:
		r.Type = RouteBroadcast
	}
	if !r.PrefSrc.IsValid() && r.Dev != "" && !dst.Is4() && r.Type != RouteLocal {
		r.PrefSrc = n.source6(r.Dev, dst)
	}
	return r, true, ""
}

// fromLocal looks up a destination in the local table.
func (n *Network) fromLocal(f *family, dst netip.Addr) (r fullRoute, found, known bool) {
	local, known := n.Local(dst)
	switch {
	case local:
		return fullRoute{Route: Route{Type: RouteLocal, Dev: "lo", PrefSrc: f.localSource(dst)}}, true, true
	case !known:
		return fullRoute{}, false, false
	}
	if dev, ok := f.broadcast[dst]; ok {
		return fullRoute{
			Route: Route{Type: RouteBroadcast, Dev: dev, PrefSrc: n.selectAddress(dev, netip.Addr{}, scopeLink)},
		}, true, true
	}
	if ans, ok := f.tables[tableLocal].lookup(dst); ok && !ans.throw && !ans.unknown {
		return ans.route, true, true
	}
	return fullRoute{}, false, true
}

// Uplink returns the interface of the family's default route in the main table, "" where there is none, where it is not
// known and where there are several with equal metrics.
func (n *Network) Uplink(v4 bool) string {
	a := unspecified6
	if v4 {
		a = netip.IPv4Unspecified()
	}
	f := n.family(a)
	if t := f.tables[tableMain]; t != nil {
		if ans := t.at[netip.PrefixFrom(a, 0)]; !ans.unknown {
			return ans.route.Dev
		}
	}
	return ""
}

// Toward returns the interface of the main table's unicast route to an address; "" where there is none, or several.
func (n *Network) Toward(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return ""
	}
	ans, _ := n.family(a).tables[tableMain].lookup(a)
	if ans.unknown || ans.route.Type != RouteUnicast {
		return ""
	}
	return ans.route.Dev
}

// HasGateway tells whether some route of any table goes to a gateway by an interface: hosts beyond the link are reached
// by it, too.
func (n *Network) HasGateway(dev string, v4 bool) bool {
	f := &n.fam[1]
	if v4 {
		f = &n.fam[0]
	}
	for _, t := range f.tables {
		for _, a := range t.at {
			if a.route.Dev == dev && a.route.Gateway.IsValid() {
				return true
			}
		}
	}
	return false
}

// IfaceOf returns the interface by which a packet from src is assumed to come in, that of the route back to src: lo for
// the node's own addresses. known is false where there is no such route, or several.
func (n *Network) IfaceOf(src netip.Addr) (dev string, known bool) {
	r, known, _ := n.Route(src)
	if !known || r.Dev == "" || r.Type != RouteUnicast && r.Type != RouteLocal {
		return "", false
	}
	return r.Dev, true
}
