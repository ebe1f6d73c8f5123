// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func TestConnectionsOfIPVS(t *testing.T) {
	const table = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0AF401FE A3B0 0A60B44F 0050 0AF40214 1F90 FIN_WAIT          99
TCP 0AF401FE 0000 0A60B44F 0050 0AF40115 1F90 NONE              60
UDP 0AF401FE A3B0 0A60B44F 0050 0AF40113 0035 UDP              290
TCP 0AF401FE A3B1 0A60B44F 0051 0AF40113 1F90 FIN_WAIT          99
TCP fd00:0010:0244:0001:ffff:ffff:ffff:fffe A3B0 fd00:0010:0096:0000:0000:0000:0000:0007 0050 ` +
		`fd00:0010:0244:0002:0000:0000:0000:0014 1F90 FIN_WAIT          99
TCP fd00:0010:0244:0001:ffff:ffff:ffff:fffe A3B2 fd00:0010:0096:0000:0000:0000:0000:0007 0050 ` +
		`[fd00:0010:0244:0002:0000:0000:0000:0015] 1F90 FIN_WAIT          99
TCP nonsense
TCP 0AF401FE A3B9 0A60B44F 0050 nonsense 1F90 FIN_WAIT          99
`
	for _, tt := range []struct{ protocol, to, local, want string }{
		{"TCP", "10.96.180.79:80", "10.244.1.254:41904", "10.244.2.20:8080"},
		{"UDP", "10.96.180.79:80", "10.244.1.254:41904", "10.244.1.19:53"},
		{"SCTP", "10.96.180.79:80", "10.244.1.254:41904", ""},
		{"TCP", "10.96.180.79:80", "10.244.1.254:41905", ""}, // of another virtual server
		{"TCP", "10.96.180.79:80", "10.244.1.254:41913", ""}, // whose real server cannot be read
		{"TCP", "10.96.180.79:80", "", ""},
		{"TCP", "[fd00:10:96::7]:80", "[fd00:10:244:1:ffff:ffff:ffff:fffe]:41904", "[fd00:10:244:2::14]:8080"},
		{"TCP", "[fd00:10:96::7]:80", "[fd00:10:244:1:ffff:ffff:ffff:fffe]:41906", "[fd00:10:244:2::15]:8080"},
	} {
		p := &snapshot.Probe{}
		if tt.local != "" {
			p.Local = netip.MustParseAddrPort(tt.local)
		}
		other := &snapshot.Probe{Local: netip.MustParseAddrPort("10.244.1.254:1")}
		matchScheduled(strings.NewReader(table),
			snapshot.ProbeTarget{Protocol: tt.protocol, To: netip.MustParseAddrPort(tt.to)}, []*snapshot.Probe{p, other})
		got := ""
		if p.RealServer.IsValid() {
			got = p.RealServer.String()
		}
		if got != tt.want || other.RealServer.IsValid() {
			t.Errorf("%s %s > %s: %q, want %q; another one: %s", tt.protocol, tt.local, tt.to, got, tt.want, other.RealServer)
		}
	}
	// A connection that was open is none of a probe that nobody answered, and one that is being opened is.
	for state, want := range map[string]bool{"FIN_WAIT": false, "TIME_WAIT": false, "SYN_RECV": true} {
		p := &snapshot.Probe{Local: netip.MustParseAddrPort("10.244.1.254:41904"), Result: snapshot.ProbeTimeout}
		matchScheduled(strings.NewReader("TCP 0AF401FE A3B0 0A60B44F 0050 0AF40214 1F90 "+state+" 99\n"),
			snapshot.ProbeTarget{Protocol: "TCP", To: netip.MustParseAddrPort("10.96.180.79:80")}, []*snapshot.Probe{p})
		if p.RealServer.IsValid() != want {
			t.Errorf("in state %q a probe without an answer was sent to %s", state, p.RealServer)
		}
	}
}
