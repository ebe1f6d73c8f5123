// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"strings"
	"testing"
)

// reverseFiles are a node with two uplinks, pods, and all that is asked of it. test/walk/rpfilter compares the rest
// with the kernel.
func reverseFiles() Files {
	return Files{
		Addr: []byte(`[{"ifname":"lo","flags":["LOOPBACK","UP"],
			"addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
			{"ifname":"eth0","flags":["UP"],
			"addr_info":[{"family":"inet","local":"10.77.0.11","prefixlen":24,"scope":"global"}]},
			{"ifname":"eth1","flags":["UP"],
			"addr_info":[{"family":"inet","local":"10.88.0.11","prefixlen":24,"scope":"global"}]},
			{"ifname":"pod0","flags":["UP"],"addr_info":[]}]`),
		Route4: []byte(`[{"dst":"default","gateway":"10.77.0.1","dev":"eth0","flags":[]},
			{"dst":"10.77.0.0/24","dev":"eth0","flags":[]},
			{"dst":"10.88.0.0/24","dev":"eth1","flags":[]},{"dst":"10.244.1.7","dev":"pod0","flags":[]},
			{"type":"blackhole","dst":"198.51.100.0/24","flags":[]}]`),
		Rule4: []byte(
			`[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},
				{"priority":32767,"src":"all","table":"default"}]`),
		Sysctl: []byte(`net/ipv4/conf/all/rp_filter=0
net/ipv4/conf/eth0/rp_filter=1
net/ipv4/conf/eth1/rp_filter=1
net/ipv4/conf/pod0/rp_filter=2
net/ipv4/conf/all/src_valid_mark=0
net/ipv4/conf/eth0/src_valid_mark=0
net/ipv4/conf/eth1/src_valid_mark=0
net/ipv4/conf/pod0/src_valid_mark=0
`),
	}
}

// without drops the lines of the settings that have a word.
func without(word string) func(*Files) {
	return func(f *Files) {
		var kept []byte
		for line := range bytes.Lines(f.Sysctl) {
			if !bytes.Contains(line, []byte(word)) {
				kept = append(kept, line...)
			}
		}
		f.Sysctl = kept
	}
}

func TestReversePath(t *testing.T) {
	rule := func(r string) func(*Files) {
		return func(f *Files) { f.Rule4 = []byte(strings.Replace(string(f.Rule4), "]", ","+r+"]", 1)) }
	}
	set := func(line string) func(*Files) { return func(f *Files) { f.Sysctl = append(f.Sysctl, line+"\n"...) } }
	const marked = `{"priority":100,"src":"all","fwmark":"0x1","table":"main"},
		{"priority":101,"src":"all","action":"prohibit","fwmark":"0x2"}`
	for _, c := range []struct {
		name    string
		change  []func(*Files)
		in, src string
		query   Query // what else there is
		want    string
		known   bool
	}{
		{"the way back is the way that it came", nil, "eth0", "192.0.2.1", Query{}, "", true},
		{
			"strict, and by another interface", nil, "eth1", "192.0.2.1",
			Query{},
			"net/ipv4/conf/all/rp_filter=0, net/ipv4/conf/eth1/rp_filter=1: the route back to 192.0.2.1 is by eth0, not by eth1",
			true,
		},
		{
			"a route that swallows", nil, "eth0", "198.51.100.1",
			Query{},
			"net/ipv4/conf/all/rp_filter=0, net/ipv4/conf/eth0/rp_filter=1: the route back to 198.51.100.1 is of the type " +
				"blackhole", true,
		},
		{"loose", []func(*Files){set("net/ipv4/conf/all/rp_filter=2")}, "eth1", "192.0.2.1", Query{}, "", true},
		{
			"loose, but without an address", nil, "pod0", "192.0.2.1",
			Query{},
			"net/ipv4/conf/all/rp_filter=0, net/ipv4/conf/pod0/rp_filter=2: the route back to 192.0.2.1 is by eth0, " +
				"not by pod0, which has no address", true,
		},
		{
			"loose, and no route",
			[]func(*Files){
				func(f *Files) { f.Route4 = []byte(`[{"dst":"10.88.0.0/24","dev":"eth1","flags":[]}]`) },
				set("net/ipv4/conf/all/rp_filter=2"),
			},
			"eth1", "192.0.2.1",
			Query{},
			"net/ipv4/conf/all/rp_filter=2, net/ipv4/conf/eth1/rp_filter=1: there is no route back to 192.0.2.1", true,
		},
		{"off", []func(*Files){set("net/ipv4/conf/eth1/rp_filter=0")}, "eth1", "192.0.2.1", Query{}, "", true},
		{"by lo", nil, "lo", "192.0.2.1", Query{}, "", true},
		{"IPv6 has none", nil, "eth1", "2001:db8::1", Query{}, "", true},
		{"the node's own address is let in by no setting of the filter", nil, "eth1", "10.77.0.11", Query{}, "", false},

		{"no settings", []func(*Files){func(f *Files) { f.Sysctl = nil }}, "eth1", "192.0.2.1", Query{}, "", false},
		{"not that of all", []func(*Files){without("all/rp_filter")}, "eth1", "192.0.2.1", Query{}, "", false},
		{"not that of the interface", []func(*Files){without("eth1/rp_filter")}, "eth1", "192.0.2.1", Query{}, "", false},
		{"no routes", []func(*Files){func(f *Files) { f.Route4 = nil }}, "eth1", "192.0.2.1", Query{}, "", false},
		{"no routing rules", []func(*Files){func(f *Files) { f.Rule4 = nil }}, "eth1", "192.0.2.1", Query{}, "", false},
		{"no addresses", []func(*Files){func(f *Files) { f.Addr = nil }}, "eth1", "192.0.2.1", Query{}, "", false},
		{
			"a rule's table was not collected",
			[]func(*Files){rule(`{"priority":9,"src":"10.244.1.7","table":"7"}`)},
			"eth1",
			"192.0.2.1",
			Query{},
			"", false,
		},
		{
			"a rule for others, of whose table nothing is known",
			[]func(*Files){rule(`{"priority":9,"src":"10.244.1.9","table":"7"}`)},
			"eth0", "192.0.2.1",
			Query{},
			"", true,
		},
		{
			"a port of a bond or a VRF",
			[]func(*Files){func(f *Files) { f.Link = []byte(`[{"ifname":"eth1","master":"bond0"}]`) }},
			"eth1", "192.0.2.1",
			Query{},
			"", false,
		},
		{
			"the way back is by one",
			[]func(*Files){func(f *Files) { f.Link = []byte(`[{"ifname":"eth0","master":"red"}]`) }},
			"eth1", "192.0.2.1",
			Query{},
			"", false,
		},
		{"marks do not count", []func(*Files){rule(marked)}, "eth0", "192.0.2.1", Query{Mark: 2}, "", true},
		{
			"marks count for the interface",
			[]func(*Files){rule(marked), set("net/ipv4/conf/eth0/src_valid_mark=1")},
			"eth0",
			"192.0.2.1",
			Query{Mark: 2},
			"net/ipv4/conf/all/rp_filter=0, net/ipv4/conf/eth0/rp_filter=1: the route back to 192.0.2.1 is of the type " +
				"prohibit (ip rule 101: from all fwmark 0x2 prohibit)", true,
		},
		{
			"whether marks count was not collected",
			[]func(*Files){rule(marked), without("eth0/src_valid_mark")},
			"eth0",
			"192.0.2.1",
			Query{Mark: 2},
			"", false,
		},
		{
			"but there is none",
			[]func(*Files){rule(marked), without("eth0/src_valid_mark")},
			"eth0", "192.0.2.1",
			Query{},
			"", true,
		},
		{
			"they count, and the mark is not known",
			[]func(*Files){rule(marked), set("net/ipv4/conf/eth0/src_valid_mark=1")},
			"eth0", "192.0.2.1",
			Query{AnyMark: true},
			"", false,
		},
	} {
		f := reverseFiles()
		for _, change := range c.change {
			change(&f)
		}
		q := c.query
		q.In, q.Src, q.Dst = c.in, ip(c.src), ip("10.244.1.7")
		drop, known := mustParse(t, f).ReversePath(q)
		got := ""
		if drop.Drops() {
			got = drop.Setting + ": " + drop.Route
		}
		if got != c.want || known != c.known {
			t.Errorf("%s: %q, known %v; want %q, known %v", c.name, got, known, c.want, c.known)
		}
	}
}

// What came in by an interface is looked up by its source, mark and interface.
func TestRouteOfWhatCameIn(t *testing.T) {
	const std = `{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},
		{"priority":32767,"src":"all","table":"default"},`
	f := reverseFiles()
	f.Route4 = []byte(strings.Replace(string(f.Route4), "[",
		`[{"dst":"default","gateway":"10.88.0.1","dev":"eth1","table":"100","flags":[]},`, 1))
	for _, c := range []struct {
		rule string
		q    Query
		want string // "": not known
	}{
		{`{"priority":9,"src":"10.244.0.0","srclen":16,"table":"100"}`, Query{Src: ip("10.244.1.7")}, "eth1"},
		{`{"priority":9,"src":"10.244.0.0","srclen":16,"table":"100"}`, Query{Src: ip("10.245.1.7")}, "eth0"},
		{`{"priority":9,"src":"10.244.0.0","srclen":16,"table":"100"}`, Query{}, ""},
		{
			`{"priority":9,"not":null,"src":"10.244.0.0","srclen":16,"fwmark":"0x1","table":"100"}`, Query{
				Src: ip("10.244.1.7"),
			}, "eth1",
		},
		{
			`{"priority":9,"not":null,"src":"10.244.0.0","srclen":16,"fwmark":"0x1","table":"100"}`, Query{
				Src: ip("10.244.1.7"), Mark: 1,
			}, "eth0",
		},
		{`{"priority":9,"src":"all","fwmark":"0x10","fwmask":"0xf0","table":"100"}`, Query{Mark: 0xf1f}, "eth1"},
		{`{"priority":9,"src":"all","fwmark":"0x10","fwmask":"0xf0","table":"100"}`, Query{Mark: 0x20}, "eth0"},
		{`{"priority":9,"src":"all","fwmark":"0x10","fwmask":"0xf0","table":"100"}`, Query{AnyMark: true}, ""},
		{`{"priority":9,"src":"all","iif":"pod0","table":"100"}`, Query{In: "pod0"}, "eth1"},
		{`{"priority":9,"src":"all","iif":"pod0","table":"100"}`, Query{In: "eth0"}, "eth0"},
		{`{"priority":9,"src":"all","iif":"pod0","table":"100"}`, Query{}, ""},
		{`{"priority":9,"src":"all","oif":"pod0","table":"100"}`, Query{}, "eth0"},
		{`{"priority":9,"src":"all","ipproto":"tcp","table":"100"}`, Query{}, ""},
	} {
		f.Rule4 = []byte("[" + std + c.rule + "]")
		c.q.Dst = ip("192.0.2.1")
		r := mustParse(t, f).Lookup(c.q)
		if r.Dev != c.want && r.Known || r.Known != (c.want != "") {
			t.Errorf("%s: %+v by %q, known %v; want %q", c.rule, c.q, r.Dev, r.Known, c.want)
		}
	}
}
