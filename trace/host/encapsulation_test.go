// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"testing"
)

// Tunnels as ip -j -d link of iproute2 6.1 prints them, with Linux 6.1.
func TestTunnels(t *testing.T) {
	const listing = `[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP"],"mtu":65536},
{"ifindex":2,"link":null,"ifname":"tunl0","flags":["NOARP"],"mtu":1480,"linkinfo":{"info_kind":"ipip",
"info_data":{"proto":"any","remote":"any","local":"any","ttl":0,"pmtudisc":false}}},
{"ifindex":7,"link":null,"ifname":"gre1","flags":["POINTOPOINT","NOARP"],"mtu":1472,"linkinfo":{"info_kind":"gre",
"info_data":{"remote":"10.0.0.2","local":"10.0.0.1","ttl":3,"pmtudisc":true,"ikey":"0.0.0.5","okey":"0.0.0.6"}}},
{"ifindex":9,"ifname":"gnv","flags":["BROADCAST"],"mtu":1500,"linkinfo":{"info_kind":"geneve","info_data":{"id":7,
"remote":"10.0.0.2","ttl":0,"df":"unset","port":6081,"udp_csum":false}}},
{"ifindex":10,"ifname":"gnv6","flags":["BROADCAST"],"mtu":1500,"linkinfo":{"info_kind":"geneve","info_data":{"id":8,
"remote6":"fd00::2","ttl":"auto","port":6081}}},
{"ifindex":11,"ifname":"genev_sys_6081","flags":["UP"],"linkinfo":{"info_kind":"geneve","info_data":{"external":true,
"id":0,"ttl":0,"port":6081}}},
{"ifindex":12,"ifname":"odd","linkinfo":{"info_kind":"ipip","info_data":{"remote":7}}},
{"ifindex":13,"ifname":"t6","linkinfo":{"info_kind":"ip6tnl","info_data":{"remote":"fd00::2"}}}]`
	n, errs := Parse(Files{Link: []byte(listing)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	want := map[string]Tunnel{
		"tunl0":          {Kind: "ipip"},
		"gre1":           {Kind: "gre", Local: a, Remote: b, InKey: "0.0.0.5", OutKey: "0.0.0.6", TTL: 3},
		"gnv":            {Kind: "geneve", Remote: b, ID: 7, Port: 6081},
		"gnv6":           {Kind: "geneve", Remote: netip.MustParseAddr("fd00::2"), ID: 8, Port: 6081},
		"genev_sys_6081": {Kind: "geneve", Port: 6081, External: true},
	}
	for _, dev := range n.Devs() {
		got, ok := n.Tunnel(dev)
		if x, there := want[dev]; ok != there || got != x {
			t.Errorf("%s: %+v, %v", dev, got, ok)
		}
	}
}
