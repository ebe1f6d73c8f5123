// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"strings"
	"testing"
)

// As the kernel had it in a network namespace, where no connection got there.
func TestInterfacesBehindWhichNobodyIs(t *testing.T) {
	n, errs := Parse(Files{
		Addr: []byte(`[{"ifname":"lo","flags":["LOOPBACK","UP"],"addr_info":[{"family":"inet","local":"127.0.0.1",` +
			`"prefixlen":8,"scope":"host"}]},` +
			`{"ifname":"cni0","flags":["UP"],"addr_info":[{"family":"inet6","local":"fd00::1","prefixlen":64,` +
			`"scope":"global","dadfailed":true,"tentative":true},{"family":"inet6","local":"fe80::1","prefixlen":64,` +
			`"scope":"link"}]},` +
			`{"ifname":"eth0","flags":["UP"],"addr_info":[{"family":"inet6","local":"fd01::1","prefixlen":64,` +
			`"scope":"global"},{"family":"inet6","local":"fd02::1","prefixlen":64,"scope":"global","tentative":true}]},` +
			`{"ifname":"eth1","flags":["UP"],"addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,` +
			`"scope":"global"}]}]`),
		Link: []byte(`[{"ifname":"lo","flags":["LOOPBACK","UP"]},{"ifname":"cni0","flags":["UP"],` +
			`"linkinfo":{"info_kind":"bridge"}},{"ifname":"eth0","flags":["UP"],"address":"02:00:00:00:00:01"},` +
			`{"ifname":"eth1","flags":["NOARP","UP"],"address":"02:00:00:00:00:02"},` +
			`{"ifname":"ifb0","flags":["NOARP","UP"],"linkinfo":{"info_kind":"ifb"}}]`),
		Neighbours: []byte(`[{"dst":"10.0.0.7","dev":"eth1","lladdr":"02:00:00:00:00:02","state":["NOARP"]},` +
			`{"dst":"10.0.0.8","dev":"eth1","lladdr":"02:00:00:00:00:08","state":["PERMANENT"]}]`),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for dev, want := range map[string]string{"cni0": "fd00::1/64 dev cni0 dadfailed", "eth0": "", "eth1": "", "lo": ""} {
		if got := n.Unused(dev); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: its addresses are not in use: %q, want %q", dev, got, want)
		}
	}
	for _, c := range []struct{ dev, hop, want string }{
		{"lo", "10.0.0.7", "comes in through lo again"},
		{"ifb0", "10.0.0.7", "of the kind ifb"},
		{"eth1", "10.0.0.7", "eth1 has NOARP"},
		{"eth1", "10.0.0.8", ""}, // somebody has set it
		{"eth1", "10.0.0.9", ""}, // the kernel has none so far
		{"eth0", "10.0.0.7", ""},
		{"cni0", "10.0.0.7", ""},
	} {
		if got := n.Discards(c.dev, netip.MustParseAddr(c.hop)); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s by %s: %q, want %q", c.hop, c.dev, got, c.want)
		}
	}
	for a, want := range map[string]string{"10.0.0.9": "eth1", "10.0.1.9": "", "fd01::9": "eth0"} {
		if got := n.Within(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s is within the subnet of %q, want %q", a, got, want)
		}
	}
}
