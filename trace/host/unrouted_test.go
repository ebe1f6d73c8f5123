// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"testing"
)

// An interface's address is the node's own by the local route that the kernel adds with it.
func TestUnrouted(t *testing.T) {
	const (
		addr = `[{"ifname":"eth0","flags":["UP"],"addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,
			"scope":"global"},{"family":"inet","local":"10.0.0.2","prefixlen":24,"scope":"global"}]},
			{"ifname":"eth1","flags":[],"addr_info":[{"family":"inet","local":"10.1.0.1","prefixlen":24,"scope":"global"}]}]`
		one = `[{"type":"local","dst":"10.0.0.2","dev":"eth0","table":"local","scope":"host","flags":[]}]`
	)
	for _, tt := range []struct {
		name, routes, address string
		want                  bool
	}{
		{"no route", one, "10.0.0.1", true},
		{"its route", one, "10.0.0.2", false},
		{
			"a local network", `[{"type":"local","dst":"10.0.0.0/24","dev":"lo","table":"local","scope":"host","flags":[]}]`,
			"10.0.0.1", false,
		},
		{"an interface that is down", one, "10.1.0.1", false},
		{"no address of the node", one, "10.0.0.3", false},
		{"the table main alone", `[{"dst":"10.0.0.0/24","dev":"eth0","flags":[]}]`, "10.0.0.1", false},
	} {
		n, errs := Parse(Files{Addr: []byte(addr), Route4: []byte(tt.routes)})
		if len(errs) > 0 {
			t.Fatalf("%s: %v", tt.name, errs)
		}
		if got := n.Unrouted(netip.MustParseAddr(tt.address)); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
