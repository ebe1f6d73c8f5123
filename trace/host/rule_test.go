// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	addr, route := readFile(t, "real/ip-addr.json"), readFile(t, "real/ip-route.json")
	const std = `{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},
		{"priority":32767,"src":"all","table":"default"}`
	for name, c := range map[string]struct {
		rules string
		dst   string
		why   string // empty: known
	}{
		"default": {std, "8.8.8.8", ""},
		"to main for this one": {
			std + `,{"priority":512,"src":"all","dst":"10.244.1.7","table":"main"}`, "10.244.1.7", "",
		},
		"for another": {
			std + `,{"priority":512,"src":"all","dst":"10.9.0.0","dstlen":16,"table":"77"}`, "10.244.1.7", "",
		},
		"for this one": {
			std + `,{"priority":512,"src":"all","dst":"10.244.0.0","dstlen":16,"table":"77"}`, "10.244.1.7", "lookup 77",
		},
		"AWS: mark to main": {
			std + `,{"priority":1024,"src":"all","fwmark":"0x80","fwmask":"0x80","table":"main"}`, "8.8.8.8", "",
		},
		"AWS: second interface": {
			std + `,{"priority":1536,"src":"10.0.1.6","table":"2"}`, "8.8.8.8", "1536: from 10.0.1.6 lookup 2",
		},
		"not to this one": {
			std + `,{"priority":1536,"not":null,"src":"all","dst":"8.8.8.8","table":"2"}`, "8.8.8.8", "",
		},
		"not to another": {
			std + `,{"priority":1536,"not":null,"src":"all","dst":"8.8.8.9","table":"2"}`, "8.8.8.8",
			"1536: not from all to 8.8.8.9",
		},
		"local comes before": {std + `,{"priority":1536,"src":"10.0.1.6","table":"2"}`, "10.77.0.11", ""},
		"Cilium: moved local": {
			`{"priority":100,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"}`, "10.77.0.11", "",
		},
		"Cilium: proxy mark": {
			std + `,{"priority":9,"src":"all","fwmark":"0x200","fwmask":"0xf00","table":"2004"}`, "8.8.8.8", "0x200/0xf00",
		},
		"suppressed": {
			std + `,{"priority":9,"src":"all","table":"main","suppress_prefixlen":0}`, "8.8.8.8", "",
		},
		"suppressed, and the table was not collected": {
			std + `,{"priority":9,"src":"all","table":"7","suppress_prefixlen":0}`, "8.8.8.8", "suppress_prefixlength 0",
		},
		"nop": {std + `,{"priority":9,"src":"all","nop":null}`, "8.8.8.8", ""},
		"may be prohibited": {
			std + `,{"priority":9,"src":"all","iif":"eth7","action":"prohibit"}`, "8.8.8.8", "iif eth7",
		},
		"IPv6 keeps its own rules": {std + `,{"priority":9,"src":"all","fwmark":"0x1","table":"7"}`, "::1", ""},
	} {
		n := mustParse(t, Files{Addr: addr, Route4: route, Rule4: []byte("[" + c.rules + "]")})
		want, _, _ := mustParse(t, Files{Addr: addr, Route4: route}).Route(ip(c.dst))
		got, known, why := n.Route(ip(c.dst))
		switch {
		case c.why == "" && (!known || got != want):
			t.Errorf("%s: Route = %+v, %v, %q; want %+v", name, got, known, why, want)
		case c.why != "" && (known || !strings.Contains(why, c.why)):
			t.Errorf("%s: Route = %+v, %v, %q; want why to have %q", name, got, known, why, c.why)
		}
	}
}

// A rule into a table that was collected is followed, and counts only where it makes a difference.
func TestRulesWithAllTables(t *testing.T) {
	files := Files{Addr: readFile(t, "netns/ip-addr.json"), Route4: readFile(t, "netns/ip-route-all.json"), Rule4: []byte(
		`[{"priority":0,"src":"all","table":"local"},{"priority":50,"src":"all","dst":"172.30.0.0","dstlen":16,"table":"100"},
		{"priority":60,"src":"all","fwmark":"0x1","table":"55"},{"priority":70,"src":"10.1.0.5","table":"100"},
		{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}]`)}
	n := mustParse(t, files)
	if r, known, why := n.Route(ip("172.30.1.1")); !known || r.Gateway != ip("10.1.0.254") {
		t.Errorf("Route by table 100 = %+v, %v, %q", r, known, why)
	}
	if _, known, why := n.Route(ip("172.16.0.1")); known || !strings.Contains(why, "10.1.0.5") {
		t.Errorf("the route depends on the source, but Route says known=%v, %q", known, why)
	}
	if r, known, _ := n.Route(ip("10.9.0.7")); !known || r.Type != RouteLocal {
		t.Errorf("local = %+v, %v", r, known)
	}
}

// TestKeyOfATunnel: a rule with tun_id applies to no packet that came in by an interface which is no tunnel, nor on top
// of one; of others, and where the kinds of interfaces are not known, it is not known.
func TestKeyOfATunnel(t *testing.T) {
	const links = `[{"ifname":"pod0","inet6_addr_gen_mode":"eui64","linkinfo":{"info_kind":"veth"}},
		{"ifname":"vx0","master":"br1","linkinfo":{"info_kind":"vxlan","info_slave_kind":"bridge"}},
		{"ifname":"veth1","master":"br0","linkinfo":{"info_kind":"veth","info_slave_kind":"bridge"}},
		{"ifname":"br0","linkinfo":{"info_kind":"bridge"}},{"ifname":"br1","linkinfo":{"info_kind":"bridge"}},
		{"ifname":"eth0"}]`
	for _, tt := range []struct {
		name, links, in string
		known           bool
	}{
		{"a veth", links, "pod0", true},
		{"hardware", links, "eth0", true},
		{"a bridge", links, "br0", true},
		{"a tunnel", links, "vx0", false},
		{"a bridge with a tunnel", links, "br1", false},
		{"an interface that is not listed", links, "eth9", false},
		{"kinds that were not collected", `[{"ifname":"pod0"}]`, "pod0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := mustParse(t, Files{Link: []byte(tt.links)})
			r := rule{tunnel: true, keys: map[string]json.RawMessage{"tun_id": nil}}
			yes, known := r.applies(n, &Query{Dst: ip("192.0.2.1"), In: tt.in})
			if yes && known || known != tt.known {
				t.Errorf("applies %v, known %v, want known %v", yes, known, tt.known)
			}
		})
	}
}

// TestWhatIPDoesNotPrintOfRules: a rule with an attribute that is not printed may apply or not, and only such a rule.
func TestWhatIPDoesNotPrintOfRules(t *testing.T) {
	const standard = `{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"}`
	list := func(rule, behind string) string { return "[" + standard + "," + rule + "]" + behind }
	const refuses, dscp = `{"priority":100,"src":"all","action":"blackhole"}`,
		`{"priority":100,"src":"all","dscp":"EF","action":"blackhole"}`
	for name, c := range map[string]struct {
		rules string
		want  []string // of the rule 100; nil: the file is not read
		known bool
	}{
		"all is printed": {list(refuses, ""), []string{"100: from all blackhole"}, true},
		"of another rule": {
			list(refuses, `[{"priority":99,"unprinted":[25]}]`), []string{"100: from all blackhole"}, true,
		},
		"an attribute": {
			list(refuses, `[{"priority":100,"unprinted":[25]}]`), []string{"100: from all unprinted [25] blackhole"}, false,
		},
		"a later ip prints it": {
			list(dscp, `[{"priority":100,"unprinted":[25]}]`), []string{"100: from all dscp EF blackhole"}, true,
		},
		"a later ip prints a part, which does not hold": {
			list(dscp, `[{"priority":100,"unprinted":[25,99]}]`),
			[]string{"100: from all dscp EF unprinted [99] blackhole"},
			true,
		},
		"one of two of a priority": {
			list(refuses+","+dscp, `[{"priority":100,"unprinted":[25]}]`),
			[]string{"100: from all unprinted [25] blackhole", "100: from all dscp EF blackhole"},
			false,
		},
		"a list without a priority": {list(refuses, `[{"unprinted":[25]}]`), nil, false},
		"a list without attributes": {list(refuses, `[{"priority":100}]`), nil, false},
		"a third list":              {list(refuses, `[][]`), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, errs := Parse(Files{Rule4: []byte(c.rules)})
			if (len(errs) > 0) != (c.want == nil) {
				t.Fatal(errs)
			}
			var got []string
			for _, text := range n.RoutingRules(true) {
				if strings.HasPrefix(text, "100:") {
					got = append(got, text)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for i := range n.fam[0].rules {
				r := &n.fam[0].rules[i]
				if r.priority != 100 || i > 1 {
					continue
				}
				if _, known := r.applies(n, &Query{Dst: ip("192.0.2.1"), Local: true}); known != c.known {
					t.Errorf("%s: known %v, want %v", r.text(), known, c.known)
				}
			}
		})
	}
}
