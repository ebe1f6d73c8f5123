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
)

// ipRoute is a route as ip -j route prints it.
type ipRoute struct {
	Type    string `json:"type"`
	Dst     string `json:"dst"`
	From    string `json:"from"`
	TOS     string `json:"tos"`
	Table   string `json:"table"`
	Scope   string `json:"scope"`
	PrefSrc string `json:"prefsrc"`
	Metric  uint32 `json:"metric"`
	Pref    string `json:"pref"` // only IPv6 routes have one
	NHID    uint32 `json:"nhid"` // its next hop object, or group of them
	// Protocol says who has made the route; ip leaves it out where that is "boot", a person or a script.
	Protocol string `json:"protocol"`
	// Object is what ip -d adds of a next hop object; of a group it has numbers alone.
	Object ipNext `json:"nh_info"`
	// Expires is in how many seconds an IPv6 route is over; less than 0 of one that is still listed, and is no longer used
	// (fib6_check_expired in include/net/ip6_fib.h).
	Expires  json.RawMessage `json:"expires"`
	Nexthops []ipNext        `json:"nexthops"`
	Metrics  []struct {
		MTU      int `json:"mtu"`
		AdvMSS   int `json:"advmss"`
		HopLimit int `json:"hoplimit"`
	} `json:"metrics"`
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

// readRoutes reads ip-route.json or ip6-route.json: the routes, and behind them, if it was read, what the kernel has
// learned of single destinations.
func (n *Network) readRoutes(data []byte, fam int) error {
	data, learned := cutLists(data)
	if learned != nil {
		if err := n.readRedirects(learned, fam); err != nil {
			return fmt.Errorf("what was learned of destinations: %w", err)
		}
	}
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
		if len(e) == 0 || bytes.HasPrefix(r.Expires, []byte{'-'}) {
			continue
		}
		name := tableName(r.Table)
		t := tables[f][name]
		if t == nil {
			t = &table{at: map[netip.Prefix][]entry{}}
			tables[f][name] = t
		}
		e[0].table = name
		n.limits = n.limits || e[0].mtu > 0 || e[0].advMSS > 0
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
	e.agents = !slices.Contains([]string{"", "boot", "static"}, r.Protocol)
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
		e.byObject = r.NHID != 0
		return fam, prefix, []entry{e}, nil
	}
	for i := range r.Metrics {
		e.mtu = max(e.mtu, r.Metrics[i].MTU)
		e.advMSS = max(e.advMSS, r.Metrics[i].AdvMSS)
		e.hopLimit = max(e.hopLimit, r.Metrics[i].HopLimit)
	}
	if e.nhid = r.unresolved(); e.nhid != 0 {
		e.unknown = fmt.Sprintf("its route leads by the next hop object %d, and with net.ipv4.nexthop_compat_mode=0 the "+
			"kernel does not list with the route where that leads (ip nexthop show id %[1]d)", e.nhid)
		return fam, prefix, []entry{e}, nil
	}
	hops := r.Nexthops
	switch {
	case len(hops) > 0:
	case r.NHID != 0 && r.Dev == "" && r.Object.Dev != "":
		hops = []ipNext{r.Object}
		if flags := r.Object.Flags; slices.Contains(flags, "linkdown") && !slices.Contains(flags, "dead") {
			e.unknown = fmt.Sprintf("its route leads by the next hop object %d, whose link is down: whether the kernel uses it "+
				"(ignore_routes_with_linkdown) it does not list with net.ipv4.nexthop_compat_mode=0", r.NHID)
		}
	default:
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

// unresolved returns the next hop object of a route that is listed without where that leads (fib_dump_info in
// net/ipv4/fib_semantics.c, rt6_fill_node in net/ipv6/route.c, with nexthop_compat_mode off); 0 for none.
func (r *ipRoute) unresolved() uint32 {
	if len(r.Nexthops) > 0 || r.Dev != "" || r.Gateway != "" || r.Via.Host != "" || r.Object.Dev != "" {
		return 0
	}
	return r.NHID
}

// setType sets a route's type, as ip prints it.
func (e *entry) setType(s string) {
	switch t := RouteType(s); t {
	case RouteUnicast, RouteLocal, RouteBroadcast, RouteMulticast, RouteBlackhole, RouteUnreachable, RouteProhibit,
		routeThrow:
		e.typ = t
	case anycast:
		e.typ, e.anycast = RouteLocal, true
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

var errNoRoutes = [2]error{
	errors.New("the routes were not collected (ip-route.json)"),
	errors.New("the IPv6 routes were not collected (ip6-route.json)"),
}
