// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// A packet that connection tracking has seen stays tracked.
func TestNotrackBehindConnectionTracking(t *testing.T) {
	for prio, want := range map[int]bool{-300: true, -150: false, 0: false} {
		rs := ruleset(t, "ip", "filter", "prerouting", prio, "", `{"notrack":null}`)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if len(res.Outcomes) != 1 || res.Outcomes[0].Packet.Untracked != want {
			t.Errorf("priority %d: %+v", prio, res.Outcomes)
		}
	}
	rs := ruleset(t, "ip", "filter", "prerouting", -200, "", `{"notrack":null}`)
	if res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{}); len(res.Uncertain) != 1 {
		t.Errorf("at the priority of connection tracking: %+v", res)
	}
}

// Unlike iptables' CT, nft's zone takes a packet back that was not to be tracked.
func TestZoneTakesBackNotrack(t *testing.T) {
	rs := ruleset(t, "ip", "filter", "prerouting", -300, "", `{"notrack":null}`,
		`{"mangle":{"key":{"ct":{"key":"zone"}},"value":5}}`)
	res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
	if len(res.Outcomes) != 1 || res.Outcomes[0].Packet.Untracked {
		t.Errorf("%+v", res.Outcomes)
	}
}

// A packet that has got a template of its connection, with its zone, cannot be taken out of connection tracking any
// more.
func TestNotrackBehindATemplate(t *testing.T) {
	rs := ruleset(t, "ip", "filter", "prerouting", -300, "", `{"mangle":{"key":{"ct":{"key":"zone"}},"value":5}}`,
		`{"notrack":null}`)
	res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
	for _, o := range res.Outcomes {
		if o.Certain && o.Packet.Untracked {
			t.Errorf("%+v", o)
		}
	}
}

// Before connection tracking a packet has no connection; at its own priority it depends on what was loaded last.
func TestConnectionTracking(t *testing.T) {
	for prio, want := range map[int]string{-300: "100% sent", -200: "100% dropped?, 100% sent?", -150: "100% dropped"} {
		rs := ruleset(t, "inet", "filter", "prerouting", prio, "",
			`{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":"new"}},{"drop":null}`)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != want {
			t.Errorf("priority %d: got %s, want %s", prio, got, want)
		}
	}
}

// A client that kube-proxy has not seen is sent anywhere, one that comes back to where it was.
func TestAffinity(t *testing.T) {
	tables, err := Parse(readFile(t, "../../../testdata/snapshots/nftables/nodes/node1/nft-ruleset.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	rs := &netfilter.Ruleset{Tables: tables}
	rs.Link()
	w := netfilter.NewWalker(rs, smallHost(t), nil, netfilter.WithClientLists("kube-proxy@affinity-"))
	start := starts[0]
	start.Packet.Dst = netip.MustParseAddr("10.96.32.7") // shop/affinity
	first := w.Walk(start, netfilter.Options{})
	if len(first.Outcomes) != 3 || len(first.Uncertain) != 0 {
		t.Fatalf("%s, %v", ends(&first), first.Uncertain)
	}
	for _, o := range slices.Clone(first.Outcomes) {
		back := w.Walk(start, netfilter.Options{Listed: o.Packet.Recent, Steps: true})
		if len(back.Outcomes) != 1 || back.Outcomes[0].Packet.Dst != o.Packet.Dst ||
			!strings.HasPrefix(o.Packet.Recent, "kube-proxy@affinity-") {
			t.Errorf("%q comes back to %s", o.Packet.Recent, ends(&back))
		}
		seconds := uint32(0)
		for i := range back.Steps {
			if s := &back.Steps[i]; s.Asked.Name != "" {
				seconds = s.Asked.Seconds
			}
		}
		if seconds != 600 {
			t.Errorf("remembered for %d seconds, want 600", seconds)
		}
	}
}

// iptables-nft hooks its table security in elsewhere than iptables-legacy: with the other priority the table was walked
// twice, as one that iptables-save does not show.
func TestSecurityTableOfIPTablesIsItsOwn(t *testing.T) {
	rs := `{"nftables":[{"metainfo":{"json_schema_version":1}},{"table":{"family":"ip","name":"security"}},` +
		`{"chain":{"family":"ip","table":"security","name":"INPUT","type":"filter","hook":"input","prio":150,
			"policy":"accept"}}]}`
	tables, err := Parse([]byte(rs), IPTables)
	if err != nil || len(tables) != 0 {
		t.Errorf("%v, %v", lines(tables), err)
	}
}
