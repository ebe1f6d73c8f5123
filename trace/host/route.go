// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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
	Weight  int      `json:"weight"`
	Encap   string   `json:"encap"`
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
	hops    []Hop // those that are used; none for a route that refuses
}

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
	if e.typ != RouteUnicast {
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
			fits = fits && (!hidden || es[0].from.Bits() > 0)
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
	t.each(&Query{Dst: a, Src: unspecifiedLike(a)}, func(e *entry, certain bool) bool {
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

func unspecifiedLike(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return unspecified6
}

// readRoutes reads ip-route.json or ip6-route.json.
func (n *Network) readRoutes(data []byte, fam int) error {
	routes, err := decodeRoutes(data)
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
			t = &table{at: map[netip.Prefix][]entry{}}
			tables[f][name] = t
		}
		e[0].table = name
		t.at[prefix] = append(t.at[prefix], e...)
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

// decodeRoutes reads a list of routes. One that encapsulates packets (ip route add … encap ip) has the keys of the
// outer header beside its own, some of them of the same name: of these the first is the route's.
func decodeRoutes(data []byte) ([]ipRoute, error) {
	if !bytes.Contains(data, []byte(`"encap"`)) {
		return decode[ipRoute](data)
	}
	list, err := decode[firstKeys](data)
	if err != nil {
		return nil, err
	}
	out := make([]ipRoute, len(list))
	for i, keys := range list {
		if v := keys["tos"]; len(v) > 0 && v[0] != '"' {
			delete(keys, "tos") // the outer header's
		}
		text, err := json.Marshal(map[string]json.RawMessage(keys))
		if err != nil {
			return nil, fmt.Errorf("route %d: %w", i+1, err)
		}
		if err := json.Unmarshal(text, &out[i]); err != nil {
			return nil, badJSON(err, len(data))
		}
	}
	return out, nil
}

// firstKeys is a JSON object, of each key the first value.
type firstKeys map[string]json.RawMessage

// UnmarshalJSON reads the object.
func (k *firstKeys) UnmarshalJSON(data []byte) error {
	*k = firstKeys{}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("a route is %.20s", data)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("a route: %w", err)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("a route: %w", err)
		}
		if key, ok := t.(string); ok && (*k)[key] == nil {
			(*k)[key] = v
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

// read returns the route's family and prefix, and its entry; none for a route without a next hop that is used.
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
	e := entry{prefix: prefix, metric: r.Metric, scope: scopeOf(r.Scope)}
	e.setType(cmp.Or(r.Type, string(RouteUnicast)))
	if r.From != "" && r.From != "all" {
		if e.from, err = parsePrefix(r.From); err != nil {
			return 0, netip.Prefix{}, nil, err
		}
	}
	if r.PrefSrc != "" {
		if e.prefSrc, err = parseAddr(r.PrefSrc); err != nil {
			return 0, netip.Prefix{}, nil, err
		}
	}
	if r.TOS != "" {
		tos, err := strconv.ParseUint(r.TOS, 0, 8)
		if e.tos = uint8(tos); err != nil {
			e.unknown = fmt.Sprintf("its route is for the TOS %q", r.TOS) // a name of /etc/iproute2/rt_dsfield
		}
	}
	if e.refuses() || e.typ == routeThrow {
		return fam, prefix, []entry{e}, nil
	}
	hops := r.Nexthops
	if len(hops) == 0 {
		hops = []ipNext{r.ipNext}
	}
	for i := range hops {
		h := &hops[i]
		gw, err := h.gateway()
		if err != nil {
			return 0, netip.Prefix{}, nil, err
		}
		if h.Encap != "" && h.Encap != "ip" && h.Encap != "ip6" {
			e.unknown = fmt.Sprintf("its route encapsulates packets (encap %s)", h.Encap)
		}
		// The kernel sets the flag dead where it will not use the hop, also where that is because of a link that is down and
		// a sysctl (fib_nexthop_info in net/ipv4/fib_semantics.c).
		if !slices.Contains(h.Flags, "dead") {
			e.hops = append(e.hops, Hop{Dev: h.Dev, Gateway: gw, Weight: max(h.Weight, 1)})
		}
	}
	if len(e.hops) == 0 {
		return fam, prefix, nil, nil
	}
	return fam, prefix, []entry{e}, nil
}

// setType sets a route's type, as ip prints it.
func (e *entry) setType(s string) {
	switch t := RouteType(s); t {
	case RouteUnicast, RouteLocal, RouteBroadcast, RouteMulticast, RouteBlackhole, RouteUnreachable, RouteProhibit,
		routeThrow:
		e.typ = t
	case "anycast":
		e.typ = RouteLocal
	default:
		e.typ, e.unknown = t, fmt.Sprintf("its route is of the type %q", s)
	}
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

var errNoRoutes = [2]error{
	errors.New("the routes were not collected (ip-route.json)"),
	errors.New("the IPv6 routes were not collected (ip6-route.json)"),
}

// Uplink returns the interface of the family's default route in the main table, "" where there is none, where it is not
// known and where there are several with equal metrics.
func (n *Network) Uplink(v4 bool) string {
	a := unspecified6
	if v4 {
		a = netip.IPv4Unspecified()
	}
	if t := n.family(a).tables[tableMain]; t != nil {
		return t.among(netip.PrefixFrom(a, 0))
	}
	return ""
}

// among returns the interface of the routes of one prefix that are preferred; "" where there are several.
func (t *table) among(p netip.Prefix) string {
	whole := table{bits: []int{p.Bits()}, at: t.at}
	e := whole.first(p.Addr())
	if e == nil || e.unknown != "" {
		return ""
	}
	return e.route().Dev
}

// Toward returns the interface of the main table's unicast route to an address; "" where there is none, or several.
func (n *Network) Toward(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return ""
	}
	e := n.family(a).tables[tableMain].first(a)
	if e == nil || e.unknown != "" || e.typ != RouteUnicast {
		return ""
	}
	return e.route().Dev
}

// HasGateway tells whether some route of any table goes to a gateway by an interface: hosts beyond the link are reached
// by it, too.
func (n *Network) HasGateway(dev string, v4 bool) bool {
	f := &n.fam[1]
	if v4 {
		f = &n.fam[0]
	}
	for _, t := range f.tables {
		for _, es := range t.at {
			for i := range es {
				if slices.ContainsFunc(es[i].hops, func(h Hop) bool { return h.Dev == dev && h.Gateway.IsValid() }) {
					return true
				}
			}
		}
	}
	return false
}

// DefaultGateway tells whether an address is the gateway of a default route, of any table.
func (n *Network) DefaultGateway(a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	for _, t := range n.family(a).tables {
		for p, es := range t.at {
			if p.Bits() > 0 {
				continue
			}
			for i := range es {
				if slices.ContainsFunc(es[i].hops, func(h Hop) bool { return h.Gateway == a }) {
					return true
				}
			}
		}
	}
	return false
}

// IfaceOf returns the interface by which a packet from src is assumed to come in, that of the node's own route back to
// src: lo for the node's own addresses. known is false where there is no such route, or several.
func (n *Network) IfaceOf(src netip.Addr) (dev string, known bool) {
	r := n.Lookup(Query{Dst: src, Src: unspecifiedLike(src.Unmap()), Local: true, Bare: true})
	if !r.Known || r.Dev == "" || r.Type != RouteUnicast && r.Type != RouteLocal {
		return "", false
	}
	return r.Dev, true
}
