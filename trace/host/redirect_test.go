// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"strings"
	"testing"
)

// What the kernel has learned of a destination is a redirect, or a path MTU alone; of several next hops ip does not say
// which it belongs to.
func TestRedirects(t *testing.T) {
	const (
		main4 = `[{"dst":"default","gateway":"10.9.0.1","dev":"eth0","flags":[]}]`
		hops4 = `[{"dst":"default","flags":[],"nexthops":[{"gateway":"10.9.0.1","dev":"eth0","weight":1,"flags":[]},` +
			`{"gateway":"10.9.0.2","dev":"eth0","weight":1,"flags":[]}]}]`
		link4 = `[{"dst":"192.0.2.0/24","dev":"eth0","flags":[]}]`
		main6 = `[{"dst":"default","gateway":"fe80::1","dev":"eth0","flags":[]}]`
	)
	redirected := func(gateway string) string {
		return `[{"dst":"192.0.2.9","gateway":"` + gateway + `","dev":"eth0","flags":[],"cache":["redirected"],"expires":99}]`
	}
	for _, c := range []struct {
		name, routes, learned, dst, gateway string // "?" where it is not known
	}{
		{"a redirect", main4, redirected("10.9.0.3"), "192.0.2.9", "10.9.0.3"},
		{"to the destination itself", main4, redirected("192.0.2.9"), "192.0.2.9", "192.0.2.9"},
		{"for another destination", main4, redirected("10.9.0.3"), "192.0.2.8", "10.9.0.1"},
		{"a path MTU", main4, `[{"dst":"192.0.2.9","gateway":"10.9.0.7","dev":"eth0","flags":[],"cache":[],` +
			`"metrics":[{"mtu":1400}]}]`, "192.0.2.9", "10.9.0.1"},
		{"of one of two next hops", hops4, redirected("10.9.0.3"), "192.0.2.9", "?"},
		{"where nothing is sent by a gateway", link4, redirected("10.9.0.3"), "192.0.2.9", ""},
		{"IPv6", main6, `[{"dst":"2001:db8::9","gateway":"fe80::3","dev":"eth0","flags":[]}]`, "2001:db8::9", "fe80::3"},
		{
			"IPv6, to the destination itself", main6, `[{"dst":"2001:db8::9","dev":"eth0","flags":[]}]`, "2001:db8::9",
			"2001:db8::9",
		},
		{"IPv6, a path MTU", main6, `[{"dst":"2001:db8::9","gateway":"fe80::3","dev":"eth0","flags":[],` +
			`"metrics":[{"mtu":1400}]}]`, "2001:db8::9", "fe80::1"},
		{"nothing was learned", main4, "[]", "192.0.2.9", "10.9.0.1"},
	} {
		files := Files{Addr: []byte(`[{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.9.0.5","prefixlen":24}]}]`)}
		data := []byte(c.routes + "\n" + c.learned + "\n")
		if files.Route4 = data; strings.Contains(c.name, "IPv6") {
			files.Route4, files.Route6 = nil, data
		}
		n, errs := Parse(files)
		if len(errs) > 0 {
			t.Errorf("%s: %v", c.name, errs)
			continue
		}
		l := n.Lookup(Query{Dst: netip.MustParseAddr(c.dst), Local: true, Bare: true})
		got := "?"
		if l.Known {
			if got = ""; l.Gateway.IsValid() {
				got = l.Gateway.String()
			}
		}
		if got != c.gateway || l.By.Redirected().IsValid() != (c.gateway != "?" && strings.Contains(c.learned, `"`) &&
			got != "10.9.0.1" && got != "fe80::1" && got != "") {
			t.Errorf("%s: by %q (%s), redirected to %v; want %q", c.name, got, l.Why, l.By.Redirected(), c.gateway)
		}
	}
	for _, bad := range []string{`[{"dst":"x","dev":"a","cache":["redirected"]}]`, `[{"dst":3}]`, `[`} {
		if _, errs := Parse(Files{Route4: []byte(main4 + "\n" + bad)}); len(errs) == 0 {
			t.Errorf("%s was read", bad)
		}
	}
}
