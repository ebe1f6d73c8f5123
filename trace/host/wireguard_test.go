// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// wgShown is what wg show all of wireguard-tools 1.0.20210914 prints.
const wgShown = `interface: flannel-wg
  public key: 1X0cZK7a0sQHrx31GLSQx5c3S1q19k0dJ5sd4QuA0So=
  private key: (hidden)
  listening port: 51820
  fwmark: 0x77

peer: sLsYFpmnf8zfHgaOH3f4UcbtULCDNRzCqnSBIkrgDxU=
  preshared key: (hidden)
  endpoint: 192.168.50.2:51820
  allowed ips: 10.244.2.0/24, fd00:244:2::/64
  latest handshake: 1 minute, 3 seconds ago
  transfer: 1.21 KiB received, 148 B sent
  persistent keepalive: every 1 minute, 10 seconds

peer: zLsYFpmnf8zfHgaOH3f4UcbtULCDNRzCqnSBIkrgDxU=
  allowed ips: (none)

interface: wg1
`

func TestWireGuard(t *testing.T) {
	n, errs := Parse(Files{WireGuard: []byte(wgShown)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got := n.WireGuards(); !reflect.DeepEqual(got, []string{"flannel-wg", "wg1"}) {
		t.Errorf("%v", got)
	}
	want := &WireGuard{
		PublicKey: "1X0cZK7a0sQHrx31GLSQx5c3S1q19k0dJ5sd4QuA0So=", Port: 51820, Mark: 0x77, Peers: []WireGuardPeer{
			{
				PublicKey: "sLsYFpmnf8zfHgaOH3f4UcbtULCDNRzCqnSBIkrgDxU=", Preshared: true,
				Endpoint:  netip.MustParseAddrPort("192.168.50.2:51820"),
				Allowed:   []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("fd00:244:2::/64")},
				Handshake: "1 minute, 3 seconds ago", Received: "1.21 KiB", Sent: "148 B",
			},
			{PublicKey: "zLsYFpmnf8zfHgaOH3f4UcbtULCDNRzCqnSBIkrgDxU="},
		},
	}
	got := n.WireGuard("flannel-wg")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if w := n.WireGuard("wg1"); w == nil || len(w.Peers) > 0 || w.PublicKey != "" {
		t.Errorf("%+v", w)
	}
	if p := got.PeerFor(netip.MustParseAddr("10.244.2.9")); p != &got.Peers[0] {
		t.Errorf("%+v", p)
	}
	if p := got.PeerFor(netip.MustParseAddr("10.244.3.9")); p != nil {
		t.Errorf("%+v", p)
	}
}

// The longest prefix decides, whichever peer comes first.
func TestWireGuardPeerWithTheLongestPrefix(t *testing.T) {
	w := &WireGuard{Peers: []WireGuardPeer{
		{PublicKey: "all", Allowed: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}},
		{PublicKey: "one", Allowed: []netip.Prefix{netip.MustParsePrefix("10.244.2.9/32")}},
		{PublicKey: "net", Allowed: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}},
	}}
	for to, want := range map[string]string{"10.244.2.9": "one", "10.244.2.8": "net", "1.1.1.1": "all"} {
		if p := w.PeerFor(netip.MustParseAddr(to)); p == nil || p.PublicKey != want {
			t.Errorf("%s: %+v", to, p)
		}
	}
	if p := w.PeerFor(netip.MustParseAddr("fd00::1")); p != nil {
		t.Errorf("%+v", p)
	}
}

func TestWireGuardThatIsNotRead(t *testing.T) {
	for _, text := range []string{
		"", "no interface", "peer: x\n", "interface: a\n  listening port: 70000\n",
		"interface: a\n\npeer: b\n  allowed ips: 10.0.0.0/99\n", "interface: a\n\npeer: b\n  endpoint: nowhere\n",
	} {
		n, errs := Parse(Files{WireGuard: []byte(text)})
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "wg show all") || n.WireGuards() != nil {
			t.Errorf("%q: %v", text, errs)
		}
	}
}

func FuzzWireGuard(f *testing.F) {
	f.Add([]byte(wgShown))
	f.Fuzz(func(_ *testing.T, data []byte) {
		n, _ := Parse(Files{WireGuard: data})
		for _, d := range n.WireGuards() {
			n.WireGuard(d).PeerFor(netip.MustParseAddr("10.244.2.9"))
		}
	})
}
