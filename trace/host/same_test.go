// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"testing"
)

// The states of an entry that works are one to packets; another address, a failure and a question without an answer so
// far are not.
func TestStatesOfANeighbourThatAreTheSame(t *testing.T) {
	read := func(mac, state string) *Network {
		t.Helper()
		n := &Network{}
		line := `[{"dst":"10.0.0.1","dev":"eth0","lladdr":"%s","state":["%s"]},` +
			`{"dst":"10.0.0.1","dev":"eth1","lladdr":"0a:00:00:00:00:09","state":["REACHABLE"]}]`
		if err := n.readNeighbours(fmt.Appendf(nil, line, mac, state)); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const mac, other = "0a:00:00:00:00:01", "0a:00:00:00:00:02"
	for _, tt := range []struct {
		mac, state string
		want       bool
	}{
		{mac, "REACHABLE", true},
		{mac, "STALE", true},
		{mac, "DELAY", true},
		{mac, "PROBE", false},
		{mac, "FAILED", false},
		{mac, "INCOMPLETE", false},
		{mac, "PERMANENT", false},
		{mac, "NOARP", false},
		{other, "STALE", false},
	} {
		for range 20 { // whatever the order of a map
			if got := read(mac, "REACHABLE").Same(read(tt.mac, tt.state)); got != tt.want {
				t.Fatalf("%s %s: the same %t, want %t", tt.mac, tt.state, got, tt.want)
			}
		}
	}
	n := read(mac, "STALE")
	n.Same(n)
	if e := n.neighbours[neighbourKey{"eth0", netip.MustParseAddr("10.0.0.1")}]; e.State != "STALE" {
		t.Errorf("the comparison has changed the state to %q", e.State)
	}
}
