// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustParse(t testing.TB, f Files) *Network {
	t.Helper()
	n, errs := Parse(f)
	for _, err := range errs {
		t.Error(err)
	}
	return n
}

func realNode(t testing.TB) *Network {
	t.Helper()
	return mustParse(t, Files{
		Addr: readFile(t, "real/ip-addr.json"), Route4: readFile(t, "real/ip-route.json"),
		Route6: readFile(t, "real/ip6-route.json"), Sysctl: readFile(t, "real/sysctl.txt"),
	})
}

func ip(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func TestRouteOfARealNode(t *testing.T) {
	n := realNode(t)
	for dst, want := range map[string]Route{
		"10.244.1.7":                {RouteUnicast, "cni0", ip(""), ip("10.244.1.1")},
		"10.244.2.7":                {RouteUnicast, "eth0", ip("10.77.0.12"), ip("10.77.0.11")},
		"8.8.8.8":                   {RouteUnicast, "eth0", ip("10.77.0.1"), ip("10.77.0.11")},
		"10.77.0.11":                {RouteLocal, "lo", ip(""), ip("10.77.0.11")},
		"::ffff:10.77.0.11":         {RouteLocal, "lo", ip(""), ip("10.77.0.11")},
		"127.8.8.8":                 {RouteLocal, "lo", ip(""), ip("127.0.0.1")},
		"10.244.1.255":              {RouteBroadcast, "cni0", ip(""), ip("10.244.1.1")},
		"224.0.0.1":                 {RouteMulticast, "eth0", ip("10.77.0.1"), ip("10.77.0.11")},
		"fd00:10:244:1::7":          {RouteUnicast, "cni0", ip(""), ip("fd00:10:244:1::1")},
		"fd00:10:244:2::7":          {RouteUnicast, "eth0", ip("fd00:77::12"), ip("fd00:77::11")},
		"2001:db8::1":               {RouteUnicast, "eth0", ip("fd00:77::1"), ip("fd00:77::11")},
		"fe80::1":                   {RouteUnicast, "", ip(""), ip("")},
		"fe80::1%cni0":              {RouteUnicast, "cni0", ip(""), ip("fe80::cc23:43ff:feb7:59aa")},
		"fd00:77::11":               {RouteLocal, "lo", ip(""), ip("fd00:77::11")},
		"ff02::1":                   {Type: RouteMulticast},
		"::1":                       {RouteLocal, "lo", ip(""), ip("::1")},
		"fe80::a4fb:8aff:fe95:575d": {RouteLocal, "lo", ip(""), ip("fe80::a4fb:8aff:fe95:575d")},
	} {
		got, known, why := n.Route(netip.MustParseAddr(dst))
		if !known || got != want {
			t.Errorf("Route(%s) = %+v, %v, %q; want %+v", dst, got, known, why, want)
		}
	}
}

// The addresses of testdata/netns were looked up with ip route get in the namespace that its files were taken from, on
// Linux 6.18.
func TestRouteAgreesWithTheKernel(t *testing.T) {
	main := Files{
		Addr: readFile(t, "netns/ip-addr.json"), Route4: readFile(t, "netns/ip-route.json"),
		Route6: readFile(t, "netns/ip6-route.json"),
	}
	all := Files{Addr: main.Addr, Route4: readFile(t, "netns/ip-route-all.json")}
	bare := Files{Route4: all.Route4}
	for name, files := range map[string]Files{"main table": main, "all tables": all, "all tables, no addresses": bare} {
		n := mustParse(t, files)
		s := bufio.NewScanner(bytes.NewReader(readFile(t, "netns/route-get.txt")))
		for s.Scan() {
			dst, out, _ := strings.Cut(s.Text(), " ")
			got, known, why := n.Route(netip.MustParseAddr(dst))
			if dst == "10.50.0.9" && name == "main table" {
				continue // AnyIP is in the table local, which a plain ip route does not print
			}
			if !known {
				t.Errorf("%s: Route(%s) is not known: %s", name, dst, why)
				continue
			}
			var want []struct{ Type, Dev, PrefSrc string }
			if json.Unmarshal([]byte(out), &want) != nil {
				if slices.Contains([]RouteType{RouteUnicast, RouteLocal}, got.Type) {
					t.Errorf("%s: Route(%s) = %+v, the kernel said %s", name, dst, got, out)
				}
				continue
			}
			w := want[0]
			if w.Type == "" {
				w.Type = "unicast"
			}
			if string(got.Type) != w.Type || got.Dev != "" && got.Dev != w.Dev ||
				got.PrefSrc.IsValid() && got.PrefSrc.String() != w.PrefSrc {
				t.Errorf("%s: Route(%s) = %+v, the kernel said %s", name, dst, got, out)
			}
		}
	}
}

func TestLocal(t *testing.T) {
	node := realNode(t)
	ipvs := mustParse(t, Files{Addr: readFile(t, "ipvs/ip-addr.json"), Route4: readFile(t, "ipvs/ip-route.json")})
	ns := mustParse(t, Files{Addr: readFile(t, "netns/ip-addr.json")})
	weak := mustParse(t, Files{}).WithAPI([]netip.Addr{ip("192.0.2.9")}, nil)
	for _, c := range []struct {
		name         string
		n            *Network
		a            string
		local, known bool
	}{
		{"own", node, "10.77.0.11", true, true},
		{"pod", node, "10.244.1.7", false, true},
		{"own, mapped", node, "::ffff:10.77.0.11", true, true},
		{"link-local with zone", node, "fe80::cc23:43ff:feb7:59aa%cni0", true, true},
		{"broadcast", node, "10.244.1.255", false, true},
		{"VIP on an interface that is down", ipvs, "10.96.0.1", true, true},
		{"not a VIP", ipvs, "10.96.0.2", false, true},
		{"a subnet on lo is all the node's", ns, "10.9.0.77", true, true},
		{"but for its broadcast", ns, "10.9.0.255", false, true},
		{"tentative", ns, "fd00::3", false, true},
		{"secondary", ns, "10.1.0.2", true, true},
		{"Node status", weak, "192.0.2.9", true, true},
		{"beyond Node status", weak, "192.0.2.10", false, false},
		{"loopback without anything", &Network{}, "127.1.2.3", true, true},
		{"IPv6 loopback without anything", &Network{}, "::1", true, true},
		{"nothing known", &Network{}, "10.0.0.1", false, false},
		{"multicast", &Network{}, "224.0.0.1", false, true},
	} {
		if local, known := c.n.Local(ip(c.a)); local != c.local || known != c.known {
			t.Errorf("%s: Local(%s) = %v, %v; want %v, %v", c.name, c.a, local, known, c.local, c.known)
		}
	}
	if local, known := node.Local(netip.Addr{}); local || known {
		t.Error("Local knows the zero address")
	}
}

func TestAddrType(t *testing.T) {
	ns := mustParse(t, Files{
		Addr: readFile(t, "netns/ip-addr.json"), Route4: readFile(t, "netns/ip-route.json"),
		Route6: readFile(t, "netns/ip6-route.json"),
	})
	for a, want := range map[string]RouteType{
		"10.1.0.1":        RouteLocal,
		"10.1.0.9":        RouteUnicast,
		"10.1.0.255":      RouteBroadcast,
		"255.255.255.255": RouteBroadcast,
		"0.0.0.0":         RouteBroadcast,
		"239.1.1.1":       RouteMulticast,
		"172.17.0.1":      RouteUnicast, // a blackhole of main: inet_addr_type uses the table local only
		"::":              RouteNone,
		"ff02::1":         RouteMulticast,
		"fd00:1::1":       RouteLocal,
		"fd00:1::9":       RouteUnicast,
		"fd00:6::1":       RouteUnreachable,
		"fd00:9::1":       RouteUnreachable,
	} {
		if got, known := ns.AddrType(ip(a)); !known || got != want {
			t.Errorf("AddrType(%s) = %s, %v; want %s", a, got, known, want)
		}
	}
	if got, known := (&Network{}).AddrType(ip("10.0.0.1")); known {
		t.Errorf("the zero Network knows 10.0.0.1 as %s", got)
	}
}

func TestRouteUnknown(t *testing.T) {
	addr := readFile(t, "real/ip-addr.json")
	for name, c := range map[string]struct {
		files Files
		dst   string
		why   string
	}{
		"nothing":        {Files{}, "10.0.0.1", "ip-addr.json"},
		"no addresses":   {Files{Route4: readFile(t, "real/ip-route.json")}, "10.0.0.1", "ip-addr.json"},
		"no routes":      {Files{Addr: addr}, "10.0.0.1", "ip-route.json"},
		"no IPv6 routes": {Files{Addr: addr, Route4: readFile(t, "real/ip-route.json")}, "fd00::1", "ip6-route.json"},
		"source-specific": {
			Files{Addr: addr, Route6: readFile(t, "netns/ip6-route.json")}, "fd00:7::1", "fd00:7::/64 from fd00:1::/64",
		},
		"unknown type": {Files{Addr: addr, Route4: []byte(`[{"type":"nat","dst":"10.1.0.0/16"}]`)}, "10.1.2.3", `"nat"`},
	} {
		if r, known, why := mustParse(t, c.files).Route(ip(c.dst)); known || !strings.Contains(why, c.why) {
			t.Errorf("%s: Route = %+v, %v, %q; want why to have %q", name, r, known, why, c.why)
		}
	}
}

func TestDeadAndEqualRoutes(t *testing.T) {
	n := mustParse(t, Files{
		Addr: []byte(`[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]}]`),
		Route4: []byte(`[{"dst":"default","dev":"a","metric":200,"flags":[]},
			{"dst":"default","dev":"b","metric":100,"flags":["dead","linkdown"]},
			{"dst":"default","dev":"c","metric":150,"flags":["linkdown"]},{"dst":"10.0.0.0/8","dev":"d","flags":["dead"]},
			{"dst":"11.0.0.0/8","nexthops":[{"dev":"e","gateway":"1.1.1.1","flags":["dead"]},
			{"dev":"f","gateway":"1.1.1.2","flags":[]}]}]`),
		Route6: []byte(
			`[{"dst":"default","dev":"a","metric":1024,"gateway":"fe80::1","pref":"medium"},
				{"dst":"default","dev":"a","metric":1024,"gateway":"fe80::2","pref":"medium"}]`),
	})
	for dst, want := range map[string]Route{
		"9.9.9.9":     {Type: RouteUnicast, Dev: "c"},
		"10.9.9.9":    {Type: RouteUnicast, Dev: "c"},
		"11.9.9.9":    {Type: RouteUnicast, Dev: "f", Gateway: ip("1.1.1.2")},
		"2001:db8::1": {Type: RouteUnicast, Dev: "a"},
	} {
		if got, known, why := n.Route(ip(dst)); !known || got != want {
			t.Errorf("Route(%s) = %+v, %v, %q; want %+v", dst, got, known, why, want)
		}
	}
	if dev := n.Uplink(true); dev != "c" {
		t.Errorf("Uplink = %q", dev)
	}
}

func TestLinksAndSources(t *testing.T) {
	n := realNode(t)
	if m := n.Master("veth6946d7ba"); m != "cni0" {
		t.Errorf("Master = %q", m)
	}
	if has, known := n.HasLink("eth9"); has || !known || !n.HasLinks() {
		t.Errorf("HasLink(eth9) = %v, %v", has, known)
	}
	if n.Uplink(true) != "eth0" || n.Uplink(false) != "eth0" || (&Network{}).Uplink(true) != "" {
		t.Error("Uplink")
	}
	for src, want := range map[string]string{
		"10.244.1.9": "cni0", "10.244.2.9": "eth0", "10.77.0.11": "lo",
		"fd00:10:244:1::9": "cni0",
	} {
		if dev, known := n.IfaceOf(ip(src)); dev != want || !known {
			t.Errorf("IfaceOf(%s) = %q, %v; want %q", src, dev, known, want)
		}
	}
	if _, known := n.IfaceOf(ip("fe80::1")); known {
		t.Error("a link-local source may come in anywhere")
	}
	if a := n.PrimaryAddress("cni0", true); a != ip("10.244.1.1") {
		t.Errorf("PrimaryAddress = %s", a)
	}
	if a := n.PrimaryAddress("cni0", false); a != ip("fd00:10:244:1::1") {
		t.Errorf("PrimaryAddress = %s", a)
	}
	if a := n.PrimaryAddress("veth6946d7ba", false); a != ip("fe80::b008:4aff:fede:ca21") {
		t.Errorf("PrimaryAddress = %s", a)
	}
	if a := n.PrimaryAddress("lo", true); a.IsValid() {
		t.Errorf("PrimaryAddress of lo = %s", a)
	}
	two := mustParse(t, Files{Addr: []byte(`[{"ifname":"e","flags":["UP"],
		"addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,"scope":"global"},
		{"family":"inet","local":"10.0.0.2","prefixlen":24,"scope":"global","secondary":true},
		{"family":"inet","local":"10.0.1.1","prefixlen":24,"scope":"global"}]}]`)})
	for hop, want := range map[string]string{"10.0.1.9": "10.0.1.1", "10.0.0.9": "10.0.0.1", "9.9.9.9": "10.0.0.1"} {
		if a := two.MasqueradeAddress("e", ip(hop)); a != ip(want) {
			t.Errorf("MasqueradeAddress(%s) = %s; want %s", hop, a, want)
		}
	}
	if a := two.RedirectAddress("e", true); a != ip("10.0.0.1") {
		t.Errorf("RedirectAddress = %s", a)
	}
	if a := two.RedirectAddress("", true); a != localhost4 {
		t.Errorf("RedirectAddress = %s", a)
	}
	if got := len(n.Addresses()); got < 8 {
		t.Errorf("%d addresses", got)
	}
	if (&Network{}).Addresses() != nil {
		t.Error("the zero Network has addresses")
	}
	onlyLinks := mustParse(t, Files{Link: readFile(t, "netns/ip-link.json")})
	if has, known := onlyLinks.HasLink("d0"); !has || !known || onlyLinks.Addresses() != nil ||
		!slices.Contains(onlyLinks.Devs(), "d1") {
		t.Error("ip-link.json tells links, and no addresses")
	}
}

// A packet to ::1 that is masqueraded when it leaves by lo gets the source ::1, and no address of another interface.
func TestSourceOfPacketsToTheIPv6LoopbackIsItself(t *testing.T) {
	n := mustParse(t, Files{Addr: []byte(`[{"ifname":"lo","flags":["LOOPBACK","UP"],
		"addr_info":[{"family":"inet6","local":"::1","prefixlen":128,"scope":"host"}]},
		{"ifname":"eth0","flags":["UP"],"addr_info":[{"family":"inet6","local":"fd00::2","prefixlen":64,"scope":"global"},
		{"family":"inet6","local":"fe80::2","prefixlen":64,"scope":"link"}]}]`)})
	for dst, want := range map[string]string{"::1": "::1", "fd00::2": "fd00::2"} {
		if got := n.MasqueradeAddress("lo", ip(dst)); got != ip(want) {
			t.Errorf("to %s: from %s, want %s", dst, got, want)
		}
	}
}

// A packet to an address of the node that a rule sends out has that address as its source, too (RFC 6724, rule 1),
// whatever addresses the outgoing interface has.
func TestSourceOfPacketsToAnOwnAddressThatLeaveByAnotherInterface(t *testing.T) {
	n := mustParse(t, Files{Addr: []byte(`[{"ifname":"eth1","flags":["UP"],
		"addr_info":[{"family":"inet6","local":"fd00:88::11","prefixlen":64,"scope":"global"}]},
		{"ifname":"eth0","flags":["UP"],"addr_info":[
		{"family":"inet6","local":"fd00:77::11","prefixlen":64,"scope":"global"}]}]`)})
	for dst, want := range map[string]string{"fd00:88::11": "fd00:88::11", "fd00:88::12": "fd00:77::11"} {
		if got := n.MasqueradeAddress("eth0", ip(dst)); got != ip(want) {
			t.Errorf("to %s: from %s, want %s", dst, got, want)
		}
	}
}

func TestMartian(t *testing.T) {
	sysctl := func(s string) Files { return Files{Sysctl: []byte(s)} }
	off := "net.ipv4.conf.all.route_localnet = 0\nnet.ipv4.conf.eth0.route_localnet = 0\n" +
		"net.ipv4.conf.pod0.route_localnet = 1\n"
	routes := Files{
		Route6: []byte(`[{"dst":"default","gateway":"fd00::1","dev":"eth0","metric":1024,"flags":[],"pref":"medium"}]`),
	}
	for _, c := range []struct {
		files          Files
		dev, dst       string
		martian, known bool
	}{
		{Files{}, "eth0", "10.0.0.1", false, true},
		{Files{}, "lo", "127.0.0.1", false, true},
		{Files{}, "eth0", "127.0.0.1", true, false},
		{sysctl(off), "eth0", "127.0.0.1", true, true},
		{sysctl(off), "pod0", "127.0.0.1", false, true},
		{sysctl(off), "eth1", "127.0.0.1", true, false},
		{sysctl("net.ipv4.conf.all.route_localnet = 1\n"), "eth0", "127.0.0.1", false, true},
		{Files{}, "lo", "::1", false, true},
		{Files{}, "pod0", "::1", true, false},
		{routes, "pod0", "::1", true, true},
		{routes, "eth0", "::1", true, false},
		{Files{Route6: []byte(`[]`)}, "eth0", "::1", true, true},
	} {
		martian, known := mustParse(t, c.files).Martian(c.dev, ip(c.dst))
		if martian != c.martian || known != c.known {
			t.Errorf("%s by %s: %v %v, want %v %v", c.dst, c.dev, martian, known, c.martian, c.known)
		}
	}
}

func TestSysctl(t *testing.T) {
	n := mustParse(t, Files{
		Sysctl: []byte("net/ipv4/ip_forward=1\nnet.ipv4.conf.eth0/100.rp_filter = 2\n# x\n" +
			"sysctl: permission denied on key 'x'\n\nnet.ipv4.ip_local_port_range = 32768\t60999\n"),
	})
	for key, want := range map[string]string{
		"net.ipv4.ip_forward": "1", "net/ipv4/ip_forward": "1", "net/ipv4/conf/eth0.100/rp_filter": "2",
		"net.ipv4.ip_local_port_range": "32768\t60999",
	} {
		if got, ok := n.Sysctl(key); got != want || !ok {
			t.Errorf("Sysctl(%s) = %q, %v", key, got, ok)
		}
	}
	if _, ok := n.Sysctl("net.ipv4.absent"); ok {
		t.Error("an absent key is there")
	}
}

// A file that is no good is as if it were not there, and the error names it and what makes a good one.
func TestBadFiles(t *testing.T) {
	good := readFile(t, "real/ip-addr.json")
	for name, c := range map[string]struct {
		files Files
		want  []string
	}{
		"cut off":    {Files{Addr: good[:500]}, []string{"ip-addr.json", "cut off at byte 500", "ip -j addr"}},
		"empty":      {Files{Addr: []byte("\n")}, []string{"ip-addr.json", "empty"}},
		"text":       {Files{Addr: []byte("1: lo: <LOOPBACK>")}, []string{"ip-addr.json", "ip -j addr"}},
		"object":     {Files{Route4: []byte("{}")}, []string{"ip-route.json", "object", "ip -j route"}},
		"wrong type": {Files{Route4: []byte(`[{"dst":5}]`)}, []string{"ip-route.json", "number", "dst"}},
		"null":       {Files{Route6: []byte("null")}, []string{"ip6-route.json", "null"}},
		"two lists":  {Files{Route6: []byte("[][]")}, []string{"after the list"}},
		"bad address": {
			Files{Addr: []byte(`[{"ifname":"e","addr_info":[{"family":"inet","local":"10.0.0","prefixlen":8}]}]`)}, []string{
				`"10.0.0"`,
			},
		},
		"bad length": {
			Files{Addr: []byte(`[{"ifname":"e","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":80}]}]`)}, []string{
				"80",
			},
		},
		"bad route":    {Files{Route4: []byte(`[{"dst":"default"},{"dst":"10/8"}]`)}, []string{"route 2", `"10/8"`}},
		"wrong family": {Files{Route6: readFile(t, "real/ip-route.json")}, []string{"ip6-route.json", "other IP family"}},
		"no rules":     {Files{Rule4: []byte(`[]`)}, []string{"ip-rule.json", "no rule"}},
		"no priority":  {Files{Rule4: []byte(`[{"src":"all","table":"main"}]`)}, []string{"rule 1", "priority"}},
		"bad sysctl":   {Files{Sysctl: []byte("net.ipv4.ip_forward=1\nfoo\n")}, []string{"sysctl.txt", "line 2"}},
		"empty sysctl": {Files{Sysctl: []byte{}}, []string{"sysctl.txt", "empty"}},
	} {
		n, errs := Parse(c.files)
		if n == nil || len(errs) != 1 {
			t.Errorf("%s: %v", name, errs)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(errs[0].Error(), w) {
				t.Errorf("%s: error %q lacks %q", name, errs[0], w)
			}
		}
		if _, known := n.Local(ip("10.0.0.1")); known || n.Addresses() != nil || n.HasLinks() {
			t.Errorf("%s: the file was used", name)
		}
		if _, known, _ := n.Route(ip("10.0.0.1")); known {
			t.Errorf("%s: the file was used", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, dir := range []string{"real", "netns", "ipvs"} {
		add := func(name string) []byte {
			data, err := os.ReadFile(filepath.Join("testdata", dir, name))
			if err != nil {
				return nil
			}
			return data
		}
		f.Add(add("ip-addr.json"), add("ip-route.json"), add("ip-rule.json"), add("sysctl.txt"), "10.0.0.1")
		f.Add(add("ip-addr.json"), add("ip6-route.json"), add("ip-rule.json"), add("sysctl.txt"), "fe80::1%eth0")
		f.Add(add("ip-link.json"), add("ip-route-all.json"), add("ip-rule.json"), add("sysctl.txt"), "::ffff:10.0.0.1")
	}
	f.Fuzz(func(t *testing.T, addr, route, rule, sysctl []byte, dst string) {
		n, _ := Parse(Files{Addr: addr, Link: addr, Route4: route, Route6: route, Rule4: rule, Rule6: rule, Sysctl: sysctl})
		a, _ := netip.ParseAddr(dst)
		for _, a := range append(n.Addresses(), a, ip("10.1.2.3"), ip("fd00::1")) {
			local, lk := n.Local(a)
			if r, known, why := n.Route(a); known != (why == "") || known && r.Type == "" ||
				lk && local && known && n.fam[famOf(a.Unmap())].rules == nil && r.Type != RouteLocal {
				t.Errorf("Route(%s) = %+v, %v, %q while Local = %v, %v", a, r, known, why, local, lk)
			}
			n.AddrType(a)
			n.IfaceOf(a)
		}
		for _, dev := range append(n.Devs(), "x") {
			n.PrimaryAddress(dev, true)
			n.MasqueradeAddress(dev, a)
			n.RedirectAddress(dev, false)
		}
	})
}

func BenchmarkRoute(b *testing.B) {
	n := realNode(b)
	dsts := []netip.Addr{ip("10.244.1.7"), ip("8.8.8.8"), ip("10.77.0.11"), ip("fd00:10:244:2::7")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.Route(dsts[i%len(dsts)])
	}
}
