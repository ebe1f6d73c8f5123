// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"testing"
)

// The text is what ip -j -d link prints of a bridge with two ports, cut down.
func TestBridge(t *testing.T) {
	const cni0 = `{"ifname":"cni0","promiscuity":0,"linkinfo":{"info_kind":"bridge","info_data":{"stp_state":0}}}`
	for _, tt := range []struct {
		name              string
		links             string
		bridge, on, known bool
	}{
		{
			"hairpin off", `[` + cni0 +
				`,{"ifname":"veth1","master":"cni0","linkinfo":{"info_slave_kind":"bridge","info_slave_data":{"hairpin":false}}}]`,
			true, false, true,
		},
		{
			"hairpin on", `[` + cni0 +
				`,{"ifname":"veth1","master":"cni0","linkinfo":{"info_slave_kind":"bridge","info_slave_data":{"hairpin":true}}}]`,
			true, true, true,
		},
		{
			"promiscuous",
			`[{"ifname":"cni0","promiscuity":1},
				{"ifname":"veth1","master":"cni0",
				"linkinfo":{"info_slave_kind":"bridge","info_slave_data":{"hairpin":false}}}]`, true, false, true,
		},
		{
			"an ip that does not tell",
			`[` + cni0 + `,{"ifname":"veth1","master":"cni0","linkinfo":{"info_slave_kind":"bridge","info_slave_data":{}}}]`,
			true, false, false,
		},
		{
			"hairpin on for one of two", `[` + cni0 +
				`,{"ifname":"veth1","master":"cni0","linkinfo":{"info_kind":"veth","info_slave_kind":"bridge",` +
				`"info_slave_data":{"hairpin":true}}},{"ifname":"veth2","master":"cni0","linkinfo":{"info_kind":"veth",` +
				`"info_slave_kind":"bridge","info_slave_data":{"hairpin":false}}}]`,
			true, true, false,
		},
		{
			"hairpin on for the pod, and off for an uplink", `[` + cni0 +
				`,{"ifname":"veth1","master":"cni0","linkinfo":{"info_kind":"veth","info_slave_kind":"bridge",` +
				`"info_slave_data":{"hairpin":true}}},{"ifname":"eth1","master":"cni0","linkinfo":{` +
				`"info_slave_kind":"bridge","info_slave_data":{"hairpin":false}}}]`,
			true, true, true,
		},
		{
			"a bond", `[{"ifname":"cni0"},{"ifname":"eth0","master":"cni0","linkinfo":{"info_slave_kind":"bond"}}]`, false,
			false, false,
		},
		{"without -d", `[{"ifname":"cni0"},{"ifname":"veth1","master":"cni0"}]`, false, false, false},
	} {
		n, errs := Parse(Files{Link: []byte(tt.links)})
		if len(errs) > 0 {
			t.Fatal(tt.name, errs)
		}
		on, known := n.Hairpin("cni0", "")
		if n.Bridge("cni0") != tt.bridge || known != tt.known || known && on != tt.on {
			t.Errorf("%s: bridge %v, hairpin %v, known %v", tt.name, n.Bridge("cni0"), on, known)
		}
	}
}

// TestUntaughtPorts: a port that neither learns nor floods, and has no entry but its own, sends frames to nobody.
func TestUntaughtPorts(t *testing.T) {
	const own = `{"mac":"02:00:00:00:00:01","ifname":"veth1","master":"cni0","state":"permanent"}`
	for _, c := range []struct {
		learning, flood bool
		fdb             string
		untaught        bool
	}{
		{false, false, "[" + own + "]", true},
		{true, false, "[" + own + "]", false},
		{false, true, "[" + own + "]", false},
		{false, false, "[" + own + `,{"mac":"02:00:00:00:00:09","ifname":"veth1","master":"cni0","state":"static"}]`, false},
	} {
		n, errs := Parse(Files{
			Link: fmt.Appendf(nil, `[{"ifname":"cni0","linkinfo":{"info_kind":"bridge"}},{"ifname":"veth1","master":"cni0",`+
				`"address":"02:00:00:00:00:01","linkinfo":{"info_kind":"veth","info_slave_kind":"bridge","info_slave_data":`+
				`{"learning":%v,"flood":%v}}}]`, c.learning, c.flood),
			BridgeFDB: []byte(c.fdb),
		})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := n.Untaught("cni0"); (len(got) == 1) != c.untaught {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
