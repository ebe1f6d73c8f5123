// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// save6 is what iptables-save would show of rulesets6.
const save6 = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SVC - [0:0]
:TWO - [0:0]
:NAMES - [0:0]
-A PREROUTING -j SVC
-A OUTPUT -j SVC
-A SVC -d fd00::1/128 -p tcp -m tcp --dport 80 -j TWO
-A SVC -d fd00::1/128 -p udp -m udp --dport 53 -j NAMES
-A SVC -d fd00::1/128 -p tcp -m tcp --dport 81 -j DNAT --to-destination [fd00:9::1]:9999
-A SVC -d fd00::1/128 -p udp -m udp --dport 54 -j DNAT --to-destination [fd00:9::1]:9999
-A TWO -p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination [fd00:9::1]:8080
-A TWO -p tcp -j DNAT --to-destination [fd00:9::2]:8080
-A NAMES -p udp -m statistic --mode random --probability 0.5 -j DNAT --to-destination [fd00:9::1]:5353
-A NAMES -p udp -j DNAT --to-destination [fd00:9::2]:5353
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A OUTPUT -d fd00:9::3/128 -j DROP
COMMIT
`

// rulesets6 are one Service with two endpoints for TCP and one for UDP, and ports that are dropped or have no endpoint,
// as rules of either kind.
var rulesets6 = []struct {
	name, load, rules, undo string
	// steps are "chain rule verdict" of the connections' first packets, from the node and from a pod: of TCP and of UDP.
	node, pod map[string][]string
}{
	{
		"nft", "nft -f -", `table ip6 t {
	chain pre { type nat hook prerouting priority dstnat; jump services; }
	chain out { type nat hook output priority -100; jump services; }
	chain services {
		ip6 daddr fd00::1 tcp dport 80 dnat to numgen random mod 2 map { 0 : fd00:9::1 . 8080, 1 : fd00:9::2 . 8080 }
		ip6 daddr fd00::1 udp dport 53 dnat to numgen random mod 2 map { 0 : fd00:9::1 . 5353, 1 : fd00:9::2 . 5353 }
		ip6 daddr fd00::1 tcp dport 81 dnat to [fd00:9::1]:9999
		ip6 daddr fd00::1 udp dport 54 dnat to [fd00:9::1]:9999
	}
	chain filter { type filter hook output priority 0; ip6 daddr fd00:9::3 drop; }
}
`, "nft delete table ip6 t",
		map[string][]string{"TCP": {"out 1 jump", "services 1 accept"}, "UDP": {"out 1 jump", "services 2 accept"}},
		map[string][]string{"TCP": {"pre 1 jump", "services 1 accept"}, "UDP": {"pre 1 jump", "services 2 accept"}},
	},
	{
		"ip6tables-nft", "ip6tables-nft-restore", save6, "nft flush ruleset",
		map[string][]string{"TCP": {"OUTPUT 1 jump", "SVC 1 jump"}, "UDP": {"OUTPUT 1 jump", "SVC 2 jump"}},
		map[string][]string{"TCP": {"PREROUTING 1 jump", "SVC 1 jump"}, "UDP": {"PREROUTING 1 jump", "SVC 2 jump"}},
	},
	{ // of which the kernel tells no verdicts
		"ip6tables-legacy", "ip6tables-legacy-restore", save6, "true",
		map[string][]string{"TCP": {"OUTPUT 1", "SVC 1"}, "UDP": {"OUTPUT 1", "SVC 2"}},
		map[string][]string{"TCP": {"PREROUTING 1", "SVC 1"}, "UDP": {"PREROUTING 1", "SVC 2"}},
	},
}

// TestIPv6 connects by IPv6, where either kind of rules translates: what became of it, to which endpoint, by which
// rules of the kernel's own trace.
func TestIPv6(t *testing.T) {
	if !testutil.Isolate(
		t, unix.CLONE_NEWNET, "nft", "ip", "nsenter", "ip6tables-nft-restore", "ip6tables-legacy-restore",
	) {
		return
	}
	for _, words := range []string{
		"link set lo up", "-6 addr add fd00:9::1/128 dev lo nodad", "-6 addr add fd00:9::2/128 dev lo nodad",
		"-6 route add fd00::/64 dev lo", "-6 route add fd00:9::3/128 dev lo",
	} {
		must(t, "ip "+words)
	}
	in := podNamespace(t)
	must(t, "ip -6 addr add fd00:244::1/64 dev veth0 nodad")
	for _, words := range []string{
		"link set lo up", "link set eth0 up", "-6 addr add fd00:244::5/64 dev eth0 nodad",
		"-6 route add default via fd00:244::1",
	} {
		in.Run(t, append([]string{"ip"}, strings.Fields(words)...)...)
	}
	for _, at := range []string{"[fd00:9::1]:8080", "[fd00:9::2]:8080"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	for _, at := range []string{"[fd00:9::1]:5353", "[fd00:9::2]:5353"} {
		testutil.Echo(t, nil, "udp", at)
	}
	for _, r := range rulesets6 {
		t.Run(r.name, func(t *testing.T) {
			must(t, r.load, r.rules)
			defer must(t, r.undo)
			client := netip.MustParseAddr("fd00:244::5")
			connections6(t, netip.Addr{}, r.node)
			connections6(t, client, r.pod)
			for _, tt := range []struct{ protocol, to, result string }{
				{"TCP", "[fd00::1]:81", snapshot.ProbeRefused},
				{"UDP", "[fd00::1]:54", snapshot.ProbeRefused},
				{"TCP", "[fd00:9::3]:80", snapshot.ProbeTimeout},
				{"TCP", "[2001:db8::1]:80", snapshot.ProbeNoRoute},
			} {
				done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{
					{Protocol: tt.protocol, To: netip.MustParseAddrPort(tt.to), Probes: 1},
				})
				if err != nil || done.Targets[0].Error != "" || done.Targets[0].List[0].Result != tt.result {
					t.Errorf("%s %s: %+v %v, want %s", tt.protocol, tt.to, done.Targets, err, tt.result)
				}
			}
		})
	}
}

// connections6 makes connections to the Service and expects both of its endpoints, in the probes and in the kernel's
// traces.
func connections6(t *testing.T, from netip.Addr, steps map[string][]string) {
	t.Helper()
	for protocol, to := range map[string]string{"TCP": "[fd00::1]:80", "UDP": "[fd00::1]:53"} {
		const n = 40 // of two endpoints, one is missed less than once in 10^11 times
		done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{
			{Protocol: protocol, To: netip.MustParseAddrPort(to), From: from, Probes: n, Trace: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		p := &done.Targets[0]
		if p.Error != "" || p.TraceError != "" || len(p.List) != n {
			t.Fatalf("%s from %s: %+v", protocol, from, p)
		}
		port := map[string]string{"TCP": "8080", "UDP": "5353"}[protocol]
		want := []string{"[fd00:9::1]:" + port, "[fd00:9::2]:" + port}
		var probed, traced []string
		for i := range p.List {
			x := &p.List[i]
			if x.Result != snapshot.ProbeConnected || x.Unreplied || from.IsValid() && x.Local.Addr() != from {
				t.Errorf("%s from %s: %+v", protocol, from, x)
			}
			probed = append(probed, x.Endpoint.String())
		}
		for i := range p.Traces {
			trace := &p.Traces[i]
			traced = append(traced, trace.Endpoint.String())
			var met []string
			for _, s := range trace.Steps {
				if s.Family != "ip6" {
					t.Errorf("a rule of the family %s", s.Family)
				}
				met = append(met, strings.TrimSpace(s.Chain+" "+strconv.Itoa(s.Rule)+" "+s.Verdict))
			}
			for _, s := range steps[protocol] {
				if n := strings.Count(strings.Join(met, "\n")+"\n", s+"\n"); n != 1 {
					t.Errorf("%s from %s: %d times %q in %q", protocol, from, n, s, met)
				}
			}
		}
		for what, got := range map[string][]string{"probes": probed, "traces": traced} {
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("%s from %s: the %s came to %q, want %q", protocol, from, what, got, want)
			}
		}
	}
}
