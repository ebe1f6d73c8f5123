// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func TestEbtables(t *testing.T) {
	tables, err := parseEbtables([]byte("# by hand\nebtables filter FORWARD 3 rules policy accept\n" +
		"ebtables nat PREROUTING -p IPv4 -j DROP\nebtables nat PREROUTING -p ARP -j DROP\n"))
	if err != nil || len(tables) != 2 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for i, want := range []struct {
		chain, text string
		hook        netfilter.Hook
		priority    int
	}{
		{"filter FORWARD", "3 rules policy accept", netfilter.BridgeForward, -200},
		{"nat PREROUTING", "-p IPv4 -j DROP; -p ARP -j DROP", netfilter.BridgePrerouting, -300},
	} {
		c := tables[i].Chains[0]
		if c.Name != want.chain || c.Rules[0].Text != want.text || c.Base.Hook != want.hook ||
			c.Base.Priority != want.priority {
			t.Errorf("%s %+v: %q", c.Name, c.Base, c.Rules[0].Text)
		}
	}
	for _, bad := range []string{"ebtables filter FORWARD\n", "ebtables filter forward 1\n", "404 page not found\n"} {
		if tables, err := parseEbtables([]byte(bad)); err == nil || len(tables) > 0 {
			t.Errorf("%q: %v, %v", bad, tables, err)
		}
	}
}
