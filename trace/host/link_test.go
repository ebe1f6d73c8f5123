// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"slices"
	"testing"
)

// What is behind an interface follows from its kind, from its other end, and from its bridge's ports.
func TestBehindInterfaces(t *testing.T) {
	port := func(name, kind, more string) string {
		return `{"ifname":"` + name + `",` + more + `"flags":["UP"],"address":"02:00:00:00:00:0` + name[len(name)-1:] +
			`","linkinfo":{"info_kind":"` + kind + `","info_slave_kind":"bridge","info_slave_data":{}}},`
	}
	away := `"link_netnsid":1,`
	n, errs := Parse(Files{
		Addr: []byte(`[{"ifname":"eth0","flags":["UP"],"addr_info":[{"family":"inet","local":"192.0.2.2","prefixlen":24,` +
			`"scope":"global"}]}]`),
		Link: []byte(`[` + port("v1", "veth", `"master":"pods",`+away) + port("v2", "veth", `"master":"mixed",`+away) +
			port("x3", "vxlan", `"master":"mixed",`) + port("v4", "veth", `"master":"here",`) + port("v5", "veth", away) +
			`{"ifname":"v6","link_netnsid":2,"master":"pods","flags":[],"linkinfo":{"info_kind":"veth",` +
			`"info_slave_kind":"bridge","info_slave_data":{}}},` +
			`{"ifname":"eth0","link_netnsid":0,"flags":["UP"],"linkinfo":{"info_kind":"veth"}},` +
			`{"ifname":"pods","flags":["UP"],"linkinfo":{"info_kind":"bridge"}},` +
			`{"ifname":"tun0","flags":["UP","NOARP"],"linkinfo":{"info_kind":"ipip"}},` +
			`{"ifname":"flannel.1","flags":["UP"],"linkinfo":{"info_kind":"vxlan"}},` +
			`{"ifname":"hw0","flags":["UP"]},{"ifname":"lo","flags":["UP"]}]`),
		Route4:     []byte(`[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]}]`),
		BridgeFDB:  []byte(`[{"mac":"0a:00:00:00:00:01","ifname":"v1"},{"mac":"02:00:00:00:00:01","ifname":"v1"}]`),
		Neighbours: []byte(`[{"dst":"192.0.2.1","dev":"eth0","lladdr":"0A:00:00:00:00:09","state":["STALE"]}]`),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for dev, want := range map[string]bool{
		"pods": true, "mixed": false, "here": false, "v5": true, "eth0": false, "hw0": false, "none": false,
	} {
		if got := n.PodsOnly(dev, true); got != want {
			t.Errorf("%s: for pods only: %v", dev, got)
		}
	}
	for dev, want := range map[string]bool{
		"pods": true, "eth0": true, "hw0": true, "tun0": false, "flannel.1": false, "lo": false, "none": false,
	} {
		if got := n.Resolves(dev); got != want {
			t.Errorf("%s: resolves: %v", dev, got)
		}
	}
	if !n.BehindPort("pods", "0A:00:00:00:00:01") || n.BehindPort("pods", "02:00:00:00:00:01") ||
		n.BehindPort("mixed", "0a:00:00:00:00:01") {
		t.Error("a port's own address is behind no port, another one is")
	}
	if !n.HasForwarding("pods") || n.HasForwarding("mixed") {
		t.Error("the forwarding table of one bridge was collected")
	}
	if down, stray := n.LostPorts("pods"); !slices.Equal(down, []string{"v6"}) || !slices.Equal(stray, []string{"v5"}) {
		t.Errorf("down %v, stray %v", down, stray)
	}
	gateway := netip.MustParseAddr("192.0.2.1")
	if !n.DefaultGateway(gateway) || n.DefaultGateway(netip.MustParseAddr("192.0.2.9")) {
		t.Error("the gateway of the default route is one")
	}
	if got := n.Neighbours("eth0", "0a:00:00:00:00:09"); !slices.Equal(got, []netip.Addr{gateway}) {
		t.Errorf("neighbours: %v", got)
	}
	if dev, prefix := n.HasAddress(netip.MustParseAddr("192.0.2.2")); dev != "eth0" || prefix.String() != "192.0.2.2/24" {
		t.Errorf("%s %s", dev, prefix)
	}
}
