// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func TestNeighbours(t *testing.T) {
	n, errs := Parse(Files{Neighbours: []byte(`[
		{"dst":"10.0.0.2","dev":"eth0","lladdr":"02:00:00:00:00:02","state":["PERMANENT"]},
		{"dst":"10.0.0.3","dev":"eth0","state":["FAILED"]},
		{"dst":"10.0.0.4","dev":"eth0","state":["INCOMPLETE"]},
		{"dst":"fd00::5","dev":"eth0","lladdr":"02:00:00:00:00:05","router":null,"state":["STALE"]},
		{"dst":"10.0.0.6","dev":"tun0","lladdr":"0.0.0.0","state":["NOARP"]}]`)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, tt := range []struct {
		dev, ip string
		want    Neighbour
		ok      bool
	}{
		{"eth0", "10.0.0.2", Neighbour{MAC: "02:00:00:00:00:02", Static: true, State: "PERMANENT"}, true},
		{"eth0", "10.0.0.3", Neighbour{Failed: true, State: "FAILED"}, true},
		{"eth0", "10.0.0.4", Neighbour{Failed: true, State: "INCOMPLETE"}, true},
		{"eth0", "fd00::5", Neighbour{MAC: "02:00:00:00:00:05", State: "STALE"}, true},
		{"tun0", "10.0.0.6", Neighbour{MAC: "0.0.0.0", Static: true, State: "NOARP"}, true},
		{"eth1", "10.0.0.2", Neighbour{}, false},
	} {
		got, ok := n.Neighbour(tt.dev, netip.MustParseAddr(tt.ip))
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s dev %s: %+v %t", tt.ip, tt.dev, got, ok)
		}
	}
	for _, bad := range []string{"", "null", `[{"dst":"x","dev":"a"}]`, `[{"dst":"10.0.0.1"}]`, `[{"dst":"10.0.0.1","dev":`} {
		if _, errs := Parse(Files{Neighbours: []byte(bad)}); len(errs) != 1 {
			t.Errorf("%q: %v", bad, errs)
		}
	}
	if _, errs := Parse(Files{Neighbours: []byte("[]")}); len(errs) != 0 {
		t.Errorf("no neighbour at all: %v", errs)
	}
}

func TestTunnelEnds(t *testing.T) {
	n, errs := Parse(Files{BridgeFDB: []byte(`[
		{"mac":"33:33:00:00:00:01","ifname":"eth0","flags":["self"],"state":"permanent"},
		{"mac":"02:00:00:00:00:02","ifname":"flannel.1","dst":"10.0.0.2","flags":["self"],"state":"permanent"},
		{"mac":"00:00:00:00:00:00","ifname":"vx0","dst":"10.0.0.9","flags":["self"],"state":"permanent"},
		{"mac":"02:00:00:00:00:03","ifname":"vx0","dst":"fd00::3","flags":["self"],"state":"permanent"}]`)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, tt := range []struct {
		dev, mac string
		ends     []netip.Addr
		known    bool
	}{
		{"flannel.1", "02:00:00:00:00:02", []netip.Addr{netip.MustParseAddr("10.0.0.2")}, true},
		{"flannel.1", "02:00:00:00:00:07", nil, true},
		{"vx0", "02:00:00:00:00:03", []netip.Addr{netip.MustParseAddr("fd00::3")}, true},
		{"vx0", "02:00:00:00:00:07", []netip.Addr{netip.MustParseAddr("10.0.0.9")}, true},
		{"eth0", "02:00:00:00:00:02", nil, false},
		{"cni0", "02:00:00:00:00:02", nil, false},
	} {
		if ends, known := n.TunnelEnds(tt.dev, tt.mac); !slices.Equal(ends, tt.ends) || known != tt.known {
			t.Errorf("%s %s: %v %t", tt.dev, tt.mac, ends, known)
		}
	}
	for _, bad := range []string{"", "[]", "{}", `[{"mac":"a","ifname":"b","dst":"c"}]`} {
		if _, errs := Parse(Files{BridgeFDB: []byte(bad)}); len(errs) != 1 {
			t.Errorf("%q: %v", bad, errs)
		}
	}
}

func TestLinksThemselves(t *testing.T) {
	n, errs := Parse(Files{Link: []byte(`[
		{"ifname":"v0","flags":["NO-CARRIER","BROADCAST","UP"],"mtu":1450,"address":"02:00:00:00:00:01"},
		{"ifname":"v1","flags":["NO-CARRIER","BROADCAST"],"mtu":1500},
		{"ifname":"v2","flags":["BROADCAST","UP","LOWER_UP"]},{"ifname":"v3"}]`)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for dev, want := range map[string]bool{"v0": true, "v1": false, "v2": false, "v3": false, "v9": false} {
		if n.NoCarrier(dev) != want {
			t.Errorf("%s has no carrier: %t", dev, !want)
		}
	}
	if n.MTU("v0") != 1450 || n.MTU("v2") != 0 || n.MAC("v0") != "02:00:00:00:00:01" || n.MAC("v9") != "" {
		t.Error("MTU or MAC")
	}
}

// A locked port takes frames from addresses that the bridge itself knows there, in the frames' VLAN.
func TestLockedPorts(t *testing.T) {
	const mac = "02:00:00:00:02:09"
	for _, c := range []struct {
		name, entry           string
		filters               int
		refuses, known, alone bool
	}{
		{"none", `"mac":"02:00:00:00:00:01","ifname":"eth9"`, 0, true, true, true},
		{"learned", `"mac":"` + mac + `","ifname":"v0","master":"cni0"`, 0, false, true, false},
		{"of the port's own", `"mac":"` + mac + `","ifname":"v0","flags":["self"]`, 0, true, true, true},
		{"in a VLAN for nothing", `"mac":"` + mac + `","ifname":"v0","master":"cni0","vlan":7`, 0, true, true, false},
		{"in a VLAN", `"mac":"` + mac + `","ifname":"v0","master":"cni0","vlan":7`, 1, false, false, false},
		{"in none", `"mac":"` + mac + `","ifname":"v0","master":"cni0"`, 1, true, true, false},
		{"locked", `"mac":"` + mac + `","ifname":"v0","master":"cni0","flags":["locked"]`, 0, true, true, false},
	} {
		n, errs := Parse(Files{
			Link: fmt.Appendf(nil, `[{"ifname":"cni0","linkinfo":{"info_kind":"bridge","info_data":{"vlan_filtering":%d}}},
				{"ifname":"v0","master":"cni0","address":"02:00:00:00:00:07","linkinfo":{"info_kind":"veth",
				"info_slave_kind":"bridge","info_slave_data":{"state":"forwarding","locked":true}}}]`, c.filters),
			BridgeFDB: []byte("[{" + c.entry + "}]"),
		})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		refuses, known := n.Refuses("cni0", "v0", mac)
		if alone := n.LockedOut("cni0", "v0"); refuses != c.refuses || known != c.known || alone != c.alone {
			t.Errorf("%s: refuses %v, known %v, lets nobody in %v", c.name, refuses, known, alone)
		}
	}
}
