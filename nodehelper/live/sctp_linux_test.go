// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

const rulesSCTP = `table inet t {
	chain pre { type nat hook prerouting priority dstnat; jump services; }
	chain out { type nat hook output priority -100; jump services; }
	chain services {
		ip daddr 10.96.0.1 sctp dport 3868 dnat ip to numgen random mod 2 map { 0 : 10.244.9.1 . 3869, 1 : 10.244.9.2 . 3869 }
		ip daddr 10.96.0.1 sctp dport 3870 dnat ip to 10.244.9.1:9999
		ip6 daddr fd00::1 sctp dport 3868 dnat ip6 to [fd00:9::1]:3869
	}
	chain filter { type filter hook output priority 0; ip daddr 10.244.9.3 drop; }
}
`

// TestSCTP makes associations where the kernel has SCTP (that of test/vm has), and says in one sentence that it has
// none where not: no module is loaded for it.
func TestSCTP(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter") {
		return
	}
	target := func(to string, from netip.Addr, n int) snapshot.ProbeTarget {
		return snapshot.ProbeTarget{Protocol: "SCTP", To: netip.MustParseAddrPort(to), From: from, Probes: n, Trace: n > 1}
	}
	if _, err := os.Stat("/run/vm/inside"); err == nil { // the machine ends with the test
		must(t, "modprobe sctp")
	}
	if hasSCTP() != nil {
		before := modules(t)
		done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{target("10.96.0.1:3868", netip.Addr{}, 2)})
		if err != nil || !strings.Contains(done.Targets[0].Error, "the node's kernel has no SCTP") ||
			done.Targets[0].List != nil || done.Targets[0].Traces != nil {
			t.Errorf("%+v %v", done.Targets, err)
		}
		if after := modules(t); after != before || hasSCTP() == nil {
			t.Errorf("the kernel has modules that it did not have:\n%s\nbefore:\n%s", after, before)
		}
		return
	}
	for _, words := range []string{
		"link set lo up", "addr add 10.244.9.1/32 dev lo", "addr add 10.244.9.2/32 dev lo",
		"-6 addr add fd00:9::1/128 dev lo nodad",
		"route add 10.96.0.0/16 dev lo", "route add 10.244.9.3 dev lo", "-6 route add fd00::/64 dev lo",
	} {
		must(t, "ip "+words)
	}
	pod(t)
	must(t, "nft -f -", rulesSCTP)
	for _, at := range []string{"10.244.9.1:3869", "10.244.9.2:3869", "[fd00:9::1]:3869"} {
		testutil.HoldSCTP(t, nil, netip.MustParseAddrPort(at))
	}
	client := netip.MustParseAddr("10.244.1.5")
	both := []string{"10.244.9.1:3869", "10.244.9.2:3869"}
	for _, tt := range []struct {
		name      string
		target    snapshot.ProbeTarget
		result    string
		endpoints []string // all of them, in the probes and in the traces; none: not asked
		steps     []string // "chain rule verdict", once in every trace
	}{
		{
			"a Service", target("10.96.0.1:3868", netip.Addr{}, 40), snapshot.ProbeConnected, both,
			[]string{"out 1 jump", "services 1 accept"},
		},
		{
			"from a pod", target("10.96.0.1:3868", client, 40), snapshot.ProbeConnected, both,
			[]string{"pre 1 jump", "services 1 accept"},
		},
		{
			"IPv6", target("[fd00::1]:3868", netip.Addr{}, 2), snapshot.ProbeConnected,
			[]string{"[fd00:9::1]:3869"},
			[]string{"out 1 jump", "services 3 accept"},
		},
		{"nothing listens", target("10.96.0.1:3870", netip.Addr{}, 1), snapshot.ProbeRefused, nil, nil},
		{"dropped", target("10.244.9.3:3868", netip.Addr{}, 1), snapshot.ProbeTimeout, nil, nil},
		{"no route", target("192.0.2.1:3868", netip.Addr{}, 1), snapshot.ProbeNoRoute, nil, nil},
	} {
		begin := time.Now()
		done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{tt.target})
		took := time.Since(begin)
		if err != nil || done.Targets[0].Error != "" || done.Targets[0].TraceError != "" ||
			len(done.Targets[0].List) != tt.target.Probes {
			t.Fatalf("%s: %+v %v", tt.name, done.Targets, err)
		}
		p := &done.Targets[0]
		var probed, traced []string
		for i := range p.List {
			x := &p.List[i]
			if x.Result != tt.result || x.Result == snapshot.ProbeConnected && x.Unreplied ||
				tt.target.From.IsValid() && x.Local.Addr() != tt.target.From {
				t.Errorf("%s: %+v", tt.name, x)
			}
			probed = append(probed, x.Endpoint.String())
		}
		for i := range p.Traces {
			traced = append(traced, p.Traces[i].Endpoint.String())
			var met []string
			for _, s := range p.Traces[i].Steps {
				met = append(met, s.Chain+" "+strconv.Itoa(s.Rule)+" "+s.Verdict)
			}
			for _, s := range tt.steps {
				if n := strings.Count(strings.Join(met, "\n")+"\n", s+"\n"); n != 1 {
					t.Errorf("%s: %d times %q in %q", tt.name, n, s, met)
				}
			}
		}
		if took > tracingTime && len(traced) > 0 && len(traced) < tries*len(tt.endpoints) {
			// On a busy machine the time for tracing is over before chance has led a connection to each.
			traced = append(traced, tt.endpoints...)
		}
		for what, got := range map[string][]string{"probes": probed, "traces": traced} {
			slices.Sort(got)
			if got = slices.Compact(got); tt.endpoints != nil && !slices.Equal(got, tt.endpoints) {
				t.Errorf("%s: the %s came to %q, want %q", tt.name, what, got, tt.endpoints)
			}
		}
	}
}

// modules lists what the kernel has loaded.
func modules(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/sys/module")
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return strings.Join(names, " ")
}
