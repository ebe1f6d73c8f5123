// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

const clusterFirst = "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n" +
	"options ndots:5\n"

func TestParse(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	dns := netip.MustParseAddr("10.96.0.10")
	for _, c := range []struct {
		text string
		want Config
	}{
		{"", Config{Servers: []netip.Addr{local}, NoServer: true, Ndots: 1}},
		{clusterFirst, Config{
			Servers: []netip.Addr{dns}, Ndots: 5,
			Search: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
		}},
		// The last of search and domain counts, domain has one word; what comes behind the third server does not count.
		{"search a b\ndomain c. d\nnameserver ::1\nnameserver x\nnameserver 192.0.2.1 # 1\nnameserver 192.0.2.2\n" +
			"nameserver 192.0.2.3\n", Config{
			Servers: []netip.Addr{
				netip.IPv6Loopback(), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"),
			}, Search: []string{"c"}, Ndots: 1,
		}},
		{"nameserver ::ffff:10.96.0.10\noptions ndots:99 use-vc", Config{Servers: []netip.Addr{dns}, Ndots: 15, TCP: true}},
		{"nameserver fe80::1%eth0\noptions ndots:-1 ndots:x\nsearch .\nsearch\n", Config{
			Servers: []netip.Addr{netip.MustParseAddr("fe80::1")}, Ndots: 1,
		}},
	} {
		got, err := Parse([]byte(c.text))
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
	for _, text := range []string{"nameserver \xff\n", "search a\x00b\n"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// The order in which names are asked is that of the C library: musl does not search for a name with ndots dots.
func TestNames(t *testing.T) {
	few := strings.Replace(clusterFirst, "ndots:5", "ndots:1", 1)
	for _, c := range []struct{ text, name, glibc, musl string }{
		{
			clusterFirst, "web", "web.shop.svc.cluster.local web.svc.cluster.local web.cluster.local web",
			"web.shop.svc.cluster.local web.svc.cluster.local web.cluster.local web",
		},
		{
			few, "web.shop", "web.shop web.shop.shop.svc.cluster.local web.shop.svc.cluster.local web.shop.cluster.local",
			"web.shop",
		},
		{clusterFirst, "web.shop.", "web.shop", "web.shop"},
		{"options ndots:0\nsearch a", "web", "web web.a", "web"},
		{"", "web", "web", "web"},
	} {
		conf, err := Parse([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		glibc, musl := strings.Join(conf.Glibc(c.name), " "), strings.Join(conf.Musl(c.name), " ")
		if glibc != c.glibc || musl != c.musl {
			t.Errorf("%q %s: %s; %s", c.text, c.name, glibc, musl)
		}
	}
}

func TestClusterDomain(t *testing.T) {
	for text, want := range map[string]string{
		clusterFirst: "cluster.local", "search other.svc.k8s.example svc.k8s.example": "k8s.example",
		"search example.org svc.": "", "": "", "search shop.svc.": "", "search shop.svc.one": "one",
	} {
		conf, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := conf.ClusterDomain("shop"); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(clusterFirst))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err == nil && (len(c.Servers) == 0 || len(c.Servers) > maxServers || c.Ndots > maxNdots) {
			t.Errorf("%+v", c)
		}
	})
}
