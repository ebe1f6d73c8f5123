// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

// What wg prints, which TestWireGuardAsWGPrintsIt compares with wg itself.
func TestWireGuardIsPrinted(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	d := wgDevice{public: key, private: true, port: 51820, mark: 0x77, peers: []*wgPeer{
		{public: key, allowed: nil},
		{
			public: key, preshared: true, endpoint: netip.MustParseAddrPort("[fd00::2]:51820"), keepalive: 70,
			handshake: 1_000_000 - 3661, rx: 1239, tx: 5 << 30, allowed: []string{"10.0.0.0/8", "fd00::/64"},
		},
	}}
	var out bytes.Buffer
	d.print(&out, "wg0", time.Unix(1_000_000, 0))
	const want = `interface: wg0
  public key: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
  private key: (hidden)
  listening port: 51820
  fwmark: 0x77

peer: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
  preshared key: (hidden)
  endpoint: [fd00::2]:51820
  allowed ips: 10.0.0.0/8, fd00::/64
  latest handshake: 1 hour, 1 minute, 1 second ago
  transfer: 1.21 KiB received, 5.00 GiB sent
  persistent keepalive: every 1 minute, 10 seconds

peer: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
  allowed ips: (none)
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
