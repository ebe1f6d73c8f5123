// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"testing"
)

// TestSourcesOfIPv6 compares the source of packets by eth0 with what the kernel chooses (ipv6_get_saddr_eval in
// net/ipv6/addrconf.c).
func TestSourcesOfIPv6(t *testing.T) {
	address := func(a, more string) string {
		return `{"family":"inet6","local":"` + a + `","prefixlen":64,"scope":"global"` + more + `}`
	}
	file := func(more string, addresses ...string) string {
		s := `[{"ifname":"eth0","flags":["UP"],"addr_info":[`
		for i, a := range addresses {
			if i > 0 {
				s += ","
			}
			s += a
		}
		return s + "]}]" + more
	}
	const (
		unset    = `[{"address":"fc00::","prefixlen":7,"label":5},{"address":"::","prefixlen":0,"label":1}]`
		together = `[{"address":"fd00:10::","prefixlen":32,"label":99},{"address":"2001:db8::","prefixlen":32,"label":99},` +
			`{"address":"::","prefixlen":0,"label":1}]`
		onEth1 = `[{"address":"fd00:10::","prefixlen":32,"label":99},` +
			`{"address":"2001:db8::","prefixlen":32,"ifname":"eth1","label":99},{"address":"::","prefixlen":0,"label":1}]`
		none = `[]`
	)
	local, global := address("fd00:79::11", ""), address("2001:db8::11", "")
	temporary := address("fd00:79::77", `,"temporary":true`)
	for name, c := range map[string]struct{ addr, sysctl, dst, want string }{
		"the kernel's own labels":           {file("", local, global), "", "fd00:10::1", "fd00:79::11"},
		"labels that nobody has set":        {file(unset, local, global), "", "fd00:10::1", "fd00:79::11"},
		"a label of two networks":           {file(together, local, global), "", "fd00:10::1", "2001:db8::11"},
		"a label of another interface":      {file(onEth1, local, global), "", "fd00:10::1", "fd00:79::11"},
		"no labels, and the longest prefix": {file(none, local, global), "", "fd00:10::1", "fd00:79::11"},
		"no labels, and a longer prefix":    {file(none, local, global), "", "2001:ff::1", "2001:db8::11"},
		"an address that another host has": {
			file("", address("fd00:10::99", `,"tentative":true,"dadfailed":true`), local), "", "fd00:10::1", "fd00:79::11",
		},
		"an address that is tentative": {
			file("", address("fd00:10::99", `,"tentative":true`), local), "", "fd00:10::1", "fd00:79::11",
		},
		"an address that is optimistic": {
			file("", address("fd00:10::99", `,"tentative":true,"optimistic":true`), local), "", "fd00:10::1", "fd00:10::99",
		},
		"temporary addresses are not preferred": {
			file("", temporary, local), "net/ipv6/conf/eth0/use_tempaddr=1\n", "fd00:10::1", "fd00:79::11",
		},
		"temporary addresses are preferred": {
			file("", local, temporary), "net/ipv6/conf/eth0/use_tempaddr=2\n", "fd00:10::1", "fd00:79::77",
		},
		"whether temporary addresses are preferred was not collected": {file("", local, temporary), "", "fd00:10::1", ""},
		"it was not collected, and rule 6 decides": {
			file(unset, global, temporary), "", "2001:ff::1", "2001:db8::11",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := Files{Addr: []byte(c.addr)}
			if c.sysctl != "" {
				files.Sysctl = []byte(c.sysctl)
			}
			var want netip.Addr
			if c.want != "" {
				want = ip(c.want)
			}
			if got := mustParse(t, files).MasqueradeAddress("eth0", ip(c.dst)); got != want {
				t.Errorf("from %s, want %s", got, c.want)
			}
		})
	}
}

// TestAddressLabelsThatSomebodyHasSet: the kernel's own ones are none of them.
func TestAddressLabelsThatSomebodyHasSet(t *testing.T) {
	const addresses = `[{"ifname":"lo","addr_info":[{"family":"inet6","local":"::1","prefixlen":128,"scope":"host"}]}]`
	n := mustParse(t, Files{Addr: []byte(addresses + `
		[{"address":"::1","prefixlen":128,"label":0},{"address":"::","prefixlen":96,"label":3},
		{"address":"::ffff:0.0.0.0","prefixlen":96,"label":4},
		{"address":"fd00::","prefixlen":32,"ifname":"lo","label":4000000000},
		{"address":"2001::","prefixlen":32,"label":6},{"address":"2001:10::","prefixlen":28,"label":7},
		{"address":"3ffe::","prefixlen":16,"label":12},{"address":"2002::","prefixlen":16,"label":2},
		{"address":"fec0::","prefixlen":10,"label":11},{"address":"::","prefixlen":0,"label":1}]`)})
	want := map[string]string{"prefix fd00::/32 dev lo": "4000000000", "prefix fc00::/7": "none"}
	for entry, label := range n.AddressLabels() {
		if want[entry] != label {
			t.Errorf("%s: %s, want %q", entry, label, want[entry])
		}
		delete(want, entry)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	for _, bad := range []string{
		`[{"address":"x","prefixlen":8,"label":1}]`, `[{"address":"fd00::","label":1}]`, `[{"address":"fd00::","prefixlen":129,` +
			`"label":1}]`, `[{"address":"fd00::","prefixlen":8}]`, `null`, `[] []`,
	} {
		if _, errs := Parse(Files{Addr: []byte(addresses + bad)}); len(errs) != 1 {
			t.Errorf("%s: %v", bad, errs)
		}
	}
}
