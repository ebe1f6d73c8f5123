// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"strings"
	"testing"
)

// policyAddr are the interfaces of policyNode.
const policyAddr = `[{"ifname":"lo","flags":["LOOPBACK","UP"],"addr_info":[
	{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
	{"ifname":"eth0","flags":["UP"],"group":"default","addr_info":[
	{"family":"inet","local":"10.77.0.11","prefixlen":24,"scope":"global"},
	{"family":"inet6","local":"fd00:77::11","prefixlen":64,"scope":"global"}]},
	{"ifname":"eth1","flags":["UP"],"group":"7","addr_info":[
	{"family":"inet","local":"10.88.0.11","prefixlen":24,"scope":"global"},
	{"family":"inet6","local":"fd00:88::11","prefixlen":64,"scope":"global"}]}]`

// policyNode is a node with routes (of all tables) and rules beside the default ones, "prio" for "priority".
func policyNode(t *testing.T, routes, rules string) *Network {
	t.Helper()
	const kernel = `[{"type":"local","dst":"10.77.0.11","dev":"eth0","table":"local","prefsrc":"10.77.0.11","flags":[]},
		{"type":"local","dst":"10.88.0.11","dev":"eth1","table":"local","prefsrc":"10.88.0.11","flags":[]},
		{"type":"local","dst":"127.0.0.0/8","dev":"lo","table":"local","prefsrc":"127.0.0.1","flags":[]},
		{"dst":"10.77.0.0/24","dev":"eth0","scope":"link","flags":[]},{"dst":"10.88.0.0/24","dev":"eth1","flags":[]},
		{"dst":"default","gateway":"10.77.0.1","dev":"eth0","flags":[]}`
	const kernel6 = `[{"type":"local","dst":"fd00:77::11","dev":"eth0","table":"local","pref":"medium"},
		{"dst":"fd00:77::/64","dev":"eth0","metric":256,"flags":[],"pref":"medium"}`
	if routes != "" {
		routes = "," + routes
	}
	f := Files{Addr: []byte(policyAddr), Route4: []byte(kernel + "]"), Route6: []byte(kernel6 + "]")}
	list := func(std string) []byte {
		return []byte("[" + std + strings.ReplaceAll(rules, `"prio"`, `"priority"`) + "]")
	}
	if strings.Contains(routes+rules, "::") {
		f.Route6 = []byte(kernel6 + routes + "]")
		f.Rule6 = list(`{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"}`)
		return mustParse(t, f)
	}
	f.Route4 = []byte(kernel + routes + "]")
	f.Rule4 = list(`{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},
		{"priority":32767,"src":"all","table":"default"}`)
	return mustParse(t, f)
}

// TestPolicyRouting looks up routes by everything that a rule or a route may depend on. test/walk/routing compares the
// same with the kernel.
func TestPolicyRouting(t *testing.T) {
	const hole = `{"type":"blackhole","dst":"default","table":"100","flags":[]}`
	rule := func(conditions string) string { return `,{"prio":100,"src":"all",` + conditions + `,"table":"100"}` }
	out := Query{
		Dst:     ip("192.0.2.1"),
		Src:     ip("10.77.0.11"),
		Local:   true,
		Proto:   6,
		SrcPort: 40000,
		DstPort: 80,
		UID:     1000,
	}
	in := Query{Dst: ip("192.0.2.1"), Src: ip("10.244.1.5"), In: "pod0", Proto: 6, SrcPort: 40000, DstPort: 80}
	with := func(q Query, change func(*Query)) Query {
		change(&q)
		return q
	}
	const blackhole, plain = "blackhole", "unicast eth0"
	for _, c := range []struct {
		name, routes, rules string
		q                   Query
		want                string // type, and interface; "?" where it is not known
		by                  string // a part of what decided, or why it is not known
	}{
		{
			"from", hole, `,{"prio":100,"src":"10.244.0.0","srclen":16,"table":"100"}`, in, blackhole,
			"ip rule 100: from 10.244.0.0/16 lookup 100; table 100: blackhole default",
		},
		{"from another", hole, `,{"prio":100,"src":"10.245.0.0","srclen":16,"table":"100"}`, in, plain, "table main: default"},
		{
			"from, and the source is still to be chosen", hole, `,{"prio":100,"src":"10.77.0.11","table":"100"}`,
			with(out, func(q *Query) { q.Src = ip("0.0.0.0") }), plain, "",
		},
		{
			"from, and the source is not known", hole, `,{"prio":100,"src":"10.77.0.11","table":"100"}`,
			with(out, func(q *Query) { q.Src = ip("") }), "?", `"100: from 10.77.0.11 lookup 100"`,
		},
		{"iif", hole, rule(`"iif":"pod0"`), in, blackhole, "100: from all iif pod0 lookup 100"},
		{"iif of another", hole, rule(`"iif":"pod0"`), out, plain, ""},
		{"iif lo is what the node sends", hole, rule(`"iif":"lo"`), out, blackhole, ""},
		{"iif lo, and it came in", hole, rule(`"iif":"lo"`), in, plain, ""},
		{"oif of what came in", hole, rule(`"oif":"eth0"`), in, plain, ""},
		{
			"oif of a bound socket", `{"dst":"default","gateway":"10.88.0.1","dev":"eth1","table":"100","flags":[]}`,
			rule(`"oif":"eth1"`), with(out, func(q *Query) { q.Out = "eth1" }), "unicast eth1", "table 100: default via 10.88.0.1",
		},
		{ // taken to be on the link
			"oif of a bound socket, and a route that refuses", hole, rule(`"oif":"eth0"`),
			with(out, func(q *Query) { q.Out = "eth0" }), plain, "",
		},
		{
			"a socket that is bound to an interface without a route", "", "", with(out, func(q *Query) { q.Out = "eth1" }),
			"unicast eth1", "",
		},
		{
			"of several next hops that of the socket's interface",
			`{"dst":"192.0.2.0/24","nexthops":[{"gateway":"10.77.0.1","dev":"eth0","weight":1,"flags":[]},
				{"gateway":"10.88.0.1","dev":"eth1","weight":1,"flags":[]}],"flags":[]}`, "",
			with(out, func(q *Query) { q.Out = "eth1" }), "unicast eth1", "192.0.2.0/24",
		},
		{
			"a socket of IPv6 that is bound to an interface without a route",
			`{"dst":"2001:db8::/64","gateway":"fd00:77::1","dev":"eth0","flags":[],"pref":"medium"}`, "",
			with(out, func(q *Query) { q.Dst, q.Src, q.Out = ip("2001:db8::1"), ip("fd00:77::11"), "eth1" }), "none", "",
		},
		{"mark", hole, rule(`"fwmark":"0x10","fwmask":"0xf0"`), with(in, func(q *Query) { q.Mark = 0x1f }), blackhole, ""},
		{"mark, not known", hole, rule(`"fwmark":"0x10"`), with(in, func(q *Query) { q.AnyMark = true }), "?", "fwmark 0x10"},
		{"protocol", hole, rule(`"ipproto":"tcp"`), in, blackhole, "ipproto tcp"},
		{"protocol of another", hole, rule(`"ipproto":"udp"`), in, plain, ""},
		{"protocol by number", hole, rule(`"ipproto":"ipproto-6"`), in, blackhole, ""},
		{"protocol, and the lookup has none", hole, rule(`"ipproto":"tcp"`), with(in, func(q *Query) { q.Bare = true }), plain, ""},
		{"port", hole, rule(`"dport":80`), in, blackhole, "dport 80"},
		{"ports", hole, rule(`"dport_start":8000,"dport_end":9000`), in, plain, ""},
		{"source ports", hole, rule(`"sport_start":32768,"sport_end":60999`), in, blackhole, "sport 32768-60999"},
		{
			"a client's port", hole, rule(`"sport":40000`), with(in, func(q *Query) { q.SrcPort = 0 }), "?", "sport 40000",
		},
		{
			"a port that clients do not get", hole, rule(`"sport_start":1,"sport_end":1023`),
			with(in, func(q *Query) { q.SrcPort = 0 }), "unicast eth0", "",
		},
		{
			"ports that a pod's settings may have", hole, rule(`"sport_start":2000,"sport_end":3000`),
			with(in, func(q *Query) { q.SrcPort = 0 }), "?", "sport 2000-3000",
		},
		{
			"ports that are usual, and no settings are known", hole, rule(`"sport_start":32768,"sport_end":65535`),
			with(in, func(q *Query) { q.SrcPort = 0 }), "?", "sport 32768-65535",
		},
		{
			"all ports that clients may get", hole, rule(`"sport_start":1024,"sport_end":65535`),
			with(in, func(q *Query) { q.SrcPort = 0 }), blackhole, "sport 1024-65535",
		},
		{
			"no port is known", hole, rule(`"sport":5`),
			with(in, func(q *Query) { q.SrcPort, q.DstPort = 0, 0 }), "?", "sport 5",
		},
		{"user", hole, rule(`"uid_start":1000,"uid_end":1999`), out, blackhole, "uidrange 1000-1999"},
		{"user of what came in is root", hole, rule(`"uid_start":0,"uid_end":0`), in, blackhole, ""},
		{"user, not known", hole, rule(`"uid_start":7,"uid_end":7`), with(out, func(q *Query) { q.AnyUID = true }), "?", "uidrange"},
		{"TOS", hole, rule(`"tos":"0x10"`), in, plain, ""},
		{"TOS, of these packets", hole, rule(`"tos":"0x10"`), with(in, func(q *Query) { q.TOS = 0x10 }), blackhole, ""},
		{"DSCP", hole, rule(`"dscp":"CS2"`), with(in, func(q *Query) { q.TOS = 0x40 }), blackhole, "dscp CS2"},
		{"of a VRF, and there is none", hole, `,{"prio":100,"src":"all","l3mdev":null}`, out, plain, ""},
		{"something new", hole, rule(`"moon":"full"`), in, "?", "moon full"},
		{"not", hole, `,{"prio":100,"not":null,"src":"10.244.0.0","srclen":16,"table":"100"}`, in, plain, ""},
		{"the rule refuses", "", `,{"prio":100,"src":"all","action":"prohibit"}`, in, "prohibit", "ip rule 100: from all prohibit"},
		{
			"a jump over it", hole, `,{"prio":50,"src":"all","goto":200}` + rule(`"iif":"pod0"`) + `,{"prio":200,"src":"all","nop":null}`,
			in, plain, "",
		},
		{
			"a jump that goes nowhere", hole, `,{"prio":50,"src":"all","goto":200,"unresolved":null}` + rule(`"iif":"pod0"`), in,
			blackhole, "",
		},
		{
			"a jump that may be taken", hole, `,{"prio":50,"src":"all","uid_start":5,"uid_end":9,"goto":200}` + rule(`"iif":"lo"`) +
				`,{"prio":200,"src":"all","nop":null}`, with(out, func(q *Query) { q.AnyUID = true }), "?", "uidrange 5-9 goto 200",
		},
		{
			"a default route is not taken", `{"dst":"default","dev":"eth1","table":"100","flags":[]}`,
			`,{"prio":100,"src":"all","table":"100","suppress_prefixlen":0}`, in, plain, "",
		},
		{
			"a refusing route is, whatever its prefix", hole, `,{"prio":100,"src":"all","table":"100","suppress_prefixlen":0}`, in,
			blackhole, "suppress_prefixlength 0",
		},
		{
			"none by that group", `{"dst":"default","dev":"eth1","table":"100","flags":[]}`,
			`,{"prio":100,"src":"all","table":"100","suppress_ifgroup":"7"}`, in, plain, "",
		},
		{"throw", `{"type":"throw","dst":"192.0.2.0/24","table":"100"},` + hole, rule(`"iif":"pod0"`), in, plain, ""},
		{
			"a rule behind the table local", hole, `,{"prio":0,"src":"10.244.0.0","srclen":16,"table":"100"}`,
			with(in, func(q *Query) { q.Dst = ip("10.77.0.11") }), "local lo", "",
		},
		{"TOS of a route", `{"dst":"192.0.2.0/24","tos":"0x10","dev":"eth1","flags":[]}`, "", in, plain, ""},
		{
			"TOS of a route, of these packets", `{"dst":"192.0.2.0/24","tos":"0x10","dev":"eth1","flags":[]}`, "",
			with(in, func(q *Query) { q.TOS = 0x10 }), "unicast eth1", "",
		},
		{
			"a dead next hop", `{"dst":"192.0.2.0/24","flags":[],"nexthops":[{"dev":"eth0","weight":1,"flags":["dead"]},
				{"dev":"eth1","weight":1,"flags":[]}]}`, "", in, "unicast eth1", "",
		},
		{
			"a next hop object that swallows", `{"type":"blackhole","dst":"192.0.2.0/24","nhid":4,"dev":"lo","flags":[]}`, "", in,
			blackhole, "",
		},
		{
			"a next hop object that the route does not tell of", `{"dst":"192.0.2.0/24","nhid":10,"flags":[]}`, "", in, "?",
			"next hop object 10",
		},
		{
			"a next hop object that ip -d tells of",
			`{"dst":"192.0.2.0/24","nhid":10,"flags":[],"nh_info":{"id":10,"gateway":"10.79.0.12","dev":"eth1","flags":[]}}`, "", in,
			"unicast eth1", "",
		},
		{
			"a next hop object whose link is down",
			`{"dst":"192.0.2.0/24","nhid":10,"flags":[],"nh_info":{"id":10,"dev":"eth1","flags":["linkdown"]}}`, "", in,
			"?", "next hop object 10",
		},
		{
			"a group of next hop objects",
			`{"dst":"192.0.2.0/24","nhid":10,"flags":[],"nh_info":{"id":10,"group":[{"id":7},{"id":8}],"flags":[]}}`, "", in,
			"?", "next hop object 10",
		},
		{
			"a next hop object that it tells of", `{"dst":"192.0.2.0/24","nhid":1,"gateway":"10.79.0.12","dev":"eth1","flags":[]}`,
			"", in, "unicast eth1", "",
		},
		{
			"encapsulated, with the keys of the outer header", `{"dst":"192.0.2.0/24","encap":"ip","id":5,"src":"0.0.0.0",
				"dst":"10.1.0.2","ttl":0,"tos":0,"dev":"eth1","scope":"link","flags":[]}`, "", in, "unicast eth1", "",
		},
		{
			"encapsulated otherwise", `{"dst":"192.0.2.0/24","encap":"seg6","mode":"encap","dev":"eth1","flags":[]}`, "", in, "?",
			"encap seg6",
		},
		{
			"IPv6: another source", `{"dst":"2001:db8::/64","from":"fd00:9::/64","dev":"eth1","metric":1024,"flags":[]},
				{"dst":"::/0","dev":"eth0","metric":1024,"flags":[]}`, "",
			with(in, func(q *Query) { q.Dst, q.Src = ip("2001:db8::1"), ip("fd00:9::1") }), "unicast eth1", "from fd00:9::/64",
		},
		{ // seed 11 of TestRoutesAgainstTheKernel
			"IPv6: a route for some sources hides the one for all", `{"dst":"2001:db8::/64","from":"fd00:9::/64","dev":"eth1",
				"metric":1024,"flags":[]},{"dst":"2001:db8::/64","dev":"eth0","metric":1024,"flags":[]}`, "",
			with(in, func(q *Query) { q.Dst, q.Src = ip("2001:db8::1"), ip("fd00:8::1") }), "none", "",
		},
		{ // seed 44
			"IPv6: one of two next hops is of the group that is not taken", `{"dst":"2001:db8::/64","table":"100","metric":1024,
				"flags":[],"nexthops":[{"dev":"eth0","weight":1,"flags":[]},{"dev":"eth1","weight":1,"flags":[]}]}`,
			`,{"prio":100,"src":"all","table":"100","suppress_ifgroup":"7"}`,
			with(in, func(q *Query) { q.Dst, q.Src = ip("2001:db8::1"), ip("fd00:8::1") }), "?", "2001:db8::/64",
		},
		{ // seed 100403
			"IPv6: a route that throws beside one that does not", `{"type":"throw","dst":"2001:db8::/64","dev":"lo","metric":1024,
				"flags":[]},{"dst":"2001:db8::/64","dev":"eth0","metric":1024,"flags":[]}`, "",
			with(in, func(q *Query) { q.Dst, q.Src = ip("2001:db8::1"), ip("fd00:8::1") }), "?", "throw 2001:db8::/64",
		},
	} {
		n := policyNode(t, c.routes, c.rules)
		l := n.Lookup(c.q)
		got := strings.TrimSpace(string(l.Type) + " " + l.Dev)
		by := l.By.String()
		if !l.Known {
			got, by = "?", l.Why
		}
		if got != c.want || !strings.Contains(by, c.by) {
			t.Errorf("%s: %s by %q; want %s by %q", c.name, got, by, c.want, c.by)
		}
	}
}

// The commands that remove what decided are those that ip takes.
func TestDecisionsAreRemoved(t *testing.T) {
	n := policyNode(
		t,
		`{"type":"blackhole","dst":"192.0.2.0/24","table":"100","metric":7,"flags":[]}`,
		`,{"prio":100,"not":null,"src":"10.9.0.0","srclen":16,"fwmark":"0x1","fwmask":"0xff","ipproto":"tcp","dport":80,"table":"100"}`,
	)
	by := n.Lookup(Query{Dst: ip("192.0.2.1"), Src: ip("10.244.1.5"), In: "pod0", Mark: 2}).By
	rule, route := strings.Join(by.DeleteRule(), " "), strings.Join(by.DeleteRoute(), " ")
	if rule != "ip rule del priority 100 not from 10.9.0.0/16 fwmark 0x1/0xff ipproto tcp dport 80 lookup 100" ||
		route != "ip route del blackhole 192.0.2.0/24 metric 7 table 100" {
		t.Errorf("%q, %q", rule, route)
	}
	object := policyNode(t, `{"type":"blackhole","dst":"192.0.2.0/24","nhid":4,"dev":"lo","flags":[]}`, "")
	by = object.Lookup(Query{Dst: ip("192.0.2.1"), Local: true}).By // the type of the route in the kernel is unicast
	if got := strings.Join(by.DeleteRoute(), " "); got != "ip route del 192.0.2.0/24 table main" {
		t.Errorf("%q", got)
	}
	plain := n.Lookup(Query{Dst: ip("8.8.8.8"), Src: ip("10.9.0.1"), In: "pod0", Mark: 1, Proto: 6, DstPort: 80}).By
	if plain.HasRule() || plain.DeleteRule() != nil {
		t.Errorf("a default rule is to be removed: %v", plain.DeleteRule())
	}
}

// Before the first rule of somebody's, the tables local and main are one, and the longest prefix of both is taken.
func TestMainIsPreferredToLocalOrNot(t *testing.T) {
	n := policyNode(t, `{"type":"local","dst":"10.50.0.0/24","dev":"lo","table":"local","flags":[]},
		{"dst":"10.50.0.9","dev":"eth1","flags":[]}`, "")
	if l := n.Lookup(Query{Dst: netip.MustParseAddr("10.50.0.9"), In: "eth0"}); l.Known {
		t.Errorf("known: %+v", l)
	}
}
