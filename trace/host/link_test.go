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

// A pod is behind the interface where the kernel has found it, else behind the bridge in whose subnet it is.
func TestPodsAreBehindInterfaces(t *testing.T) {
	veth := func(name, master string) string {
		return `{"ifname":"` + name + `","master":"` + master + `","link_netnsid":1,"flags":["UP"],` +
			`"linkinfo":{"info_kind":"veth","info_slave_kind":"bridge","info_slave_data":{}}},`
	}
	read := func(bridge string) *Network {
		n, errs := Parse(Files{
			Addr: []byte(`[{"ifname":"cni0","addr_info":[{"family":"inet","local":"10.244.1.1","prefixlen":24,"scope":"global"}]},` +
				`{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.77.0.11","prefixlen":24,"scope":"global"}]}]`),
			Link: []byte(`[` + veth("v1", "cni0") + veth("v2", "br1") + `{"ifname":"cni0","flags":[` + bridge +
				`],"linkinfo":{"info_kind":"bridge"}},{"ifname":"br1","flags":["UP"],"linkinfo":{"info_kind":"bridge"}},` +
				`{"ifname":"eth0","flags":["UP"]}]`),
			Route4: []byte(`[{"dst":"default","gateway":"10.77.0.1","dev":"eth0","flags":[]}]`),
			Neighbours: []byte(`[{"dst":"10.244.1.2","dev":"br1","lladdr":"02:00:00:00:00:02","state":["STALE"]},` +
				`{"dst":"10.244.1.3","dev":"eth0","lladdr":"02:00:00:00:00:03","state":["REACHABLE"]},` +
				`{"dst":"10.244.1.4","dev":"br1","state":["FAILED"]},` +
				`{"dst":"10.244.1.5","dev":"br1","lladdr":"02:00:00:00:00:05","state":["PERMANENT"]},` +
				`{"dst":"10.244.1.6","dev":"br1","lladdr":"02:00:00:00:00:06","state":["STALE"]},` +
				`{"dst":"10.244.1.6","dev":"cni0","lladdr":"02:00:00:00:00:06","state":["STALE"]}]`),
		})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return n
	}
	n, down := read(`"UP"`), read(``)
	for a, want := range map[string]string{
		"10.244.1.2": "br1",  // found there
		"10.244.1.3": "",     // found where others are, too
		"10.244.1.4": "cni0", // nowhere
		"10.244.1.5": "cni0", // set by hand
		"10.244.1.6": "",     // at two
		"10.244.1.9": "cni0",
		"10.77.0.12": "", // behind eth0 are others
	} {
		if got := n.Behind(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s is behind %q, want %q", a, got, want)
		}
	}
	if got := down.Behind(netip.MustParseAddr("10.244.1.9")); got != "" {
		t.Errorf("behind %q, which is down", got)
	}
}

// An interface takes frames from the one below it by its kind and mode, where that one is to get any.
func TestWhatTakesFramesAway(t *testing.T) {
	on := func(name, lower, kind, data string) string {
		return `,{"ifname":"` + name + `","link":"` + lower + `","flags":[],"linkinfo":{"info_kind":"` + kind +
			`","info_data":{` + data + `}}}`
	}
	n, errs := Parse(Files{
		Addr: []byte(`[{"ifname":"eth0","flags":["UP"],"addr_info":[{"family":"inet","local":"192.0.2.2","prefixlen":24,` +
			`"scope":"global"}]},{"ifname":"eth1","flags":["UP"],"addr_info":[{"family":"inet6","local":"fe80::1",` +
			`"prefixlen":64,"scope":"link"}]}]`),
		Link: []byte(`[{"ifname":"eth0","flags":["UP"]},{"ifname":"eth1","flags":["UP"]}` +
			on("m1", "eth0", "macvlan", `"mode":"passthru","nopromisc":true`) +
			on("m2", "eth0", "macvtap", `"mode":"source","nodst":true,"macaddr_data":["02:00:00:00:00:01","02:00:00:00:00:02"]`) +
			on("m3", "eth0", "macvlan", `"mode":"source","macaddr_data":["02:00:00:00:00:01"]`) +
			on("m4", "eth0", "macvlan", `"mode":"source","nodst":true`) +
			on("m5", "eth0", "macvlan", `"mode":"private"`) + on("m6", "eth1", "macvlan", `"mode":"passthru"`) +
			on("i0", "eth0", "ipvlan", `"mode":"l2"`) + on("x0", "eth0", "other", `"mode":1`) + `]`),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := []Taker{
		{"m1", "eth0", "all frames for one host", "macvlan m1 on eth0"},
		{"m2", "eth0", "the frames from 02:00:00:00:00:01, 02:00:00:00:00:02", "macvtap m2 on eth0"},
	}
	if got := n.Takers(); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
