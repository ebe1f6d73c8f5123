// SPDX-License-Identifier: Apache-2.0

package live

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestWherePacketsAreLost makes faults for real, between a client pod and an endpoint pod of one node, and asks the
// kernel where the packets of connections go.
func TestWherePacketsAreLost(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter") {
		return
	}
	must(t, "ip link set lo up")
	must(t, "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0")
	client, server := testutil.NewNamespace(t), testutil.NewNamespace(t)
	for i, ns := range []*testutil.Namespace{client, server} {
		veth, subnet := "veth"+string(rune('0'+i)), "10.244."+string(rune('1'+i))
		must(t, "ip link add "+veth+" type veth peer name eth0 netns "+ns.PID)
		must(t, "ip link set "+veth+" up")
		must(t, "ip addr add "+subnet+".1/24 dev "+veth)
		for _, words := range []string{
			"link set lo up", "link set eth0 up", "addr add " + subnet + ".5/24 dev eth0",
			"route add default via " + subnet + ".1",
		} {
			ns.Run(t, append([]string{"ip"}, strings.Fields(words)...)...)
		}
	}
	must(t, "nft -f -", `table ip t {
	chain pre { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.2.5:8080; }
	chain post { type nat hook postrouting priority srcnat; masquerade random; }
}
`)
	frozen := make(chan net.Listener)
	thread := testutil.NewThread(t, server.Path)
	go thread.Do(func() {
		l, err := net.Listen("tcp", "10.244.2.5:8080") // it accepts nothing: its kernel does
		if err != nil {
			t.Error(err)
		}
		frozen <- l
	})
	l := <-frozen
	t.Cleanup(func() { l.Close() })

	for _, tt := range []struct {
		name     string
		do, undo []string
		payload  string
		result   string
		data     string
		reasons  []string // one of the drops
		answer   bool
		rule     string // "CHAIN RULE" of a drop in the trace
		last     string // hook that the request passed last
	}{
		{name: "nothing is wrong", result: snapshot.ProbeConnected, last: "postrouting"},
		{
			name: "a rule drops it", do: []string{
				"nft add chain ip t f { type filter hook forward priority 0; }",
				"nft add rule ip t f ip daddr 10.244.2.5 drop",
			}, undo: []string{"nft delete chain ip t f"},
			result: snapshot.ProbeTimeout, reasons: []string{"NETFILTER_DROP"}, rule: "f 1", last: "prerouting",
		},
		{
			name: "a rule drops the answer", do: []string{
				"nft add chain ip t f { type filter hook forward priority 0; }",
				"nft add rule ip t f ip saddr 10.244.2.5 drop",
			}, undo: []string{"nft delete chain ip t f"},
			result: snapshot.ProbeTimeout, reasons: []string{"NETFILTER_DROP"}, answer: true, rule: "f 1", last: "postrouting",
		},
		{
			name: "the route to the endpoint is a blackhole", do: []string{"ip route add blackhole 10.244.2.5/32"},
			undo: []string{"ip route del blackhole 10.244.2.5/32"}, result: snapshot.ProbeTimeout,
			reasons: []string{"NOT_SPECIFIED", "IP_INNOROUTES"}, last: "prerouting",
		},
		{
			name: "the reverse path filter",
			do:   []string{"sysctl -qw net.ipv4.conf.veth0.rp_filter=1", "ip route add 10.244.1.5/32 dev veth1"},
			undo: []string{"sysctl -qw net.ipv4.conf.veth0.rp_filter=0", "ip route del 10.244.1.5/32 dev veth1"},

			result: snapshot.ProbeTimeout, reasons: []string{"IP_RPFILTER"}, last: "prerouting",
		},
		{
			name: "a process that is stopped, which is sent something", payload: "hello", result: snapshot.ProbeConnected,
			data: snapshot.ProbeSilent, last: "postrouting",
		},
		{
			name: "a process that is stopped, which is sent as much as may be", payload: strings.Repeat("x", MaxPayload),
			result: snapshot.ProbeConnected, data: snapshot.ProbeSilent, last: "postrouting",
		},
		{
			name: "large packets are lost", payload: strings.Repeat("x", 2000), do: []string{
				"nft add chain ip t f { type filter hook forward priority 0; }",
				"nft add rule ip t f ip daddr 10.244.2.5 meta length > 1000 drop",
			}, undo: []string{"nft delete chain ip t f"},
			result: snapshot.ProbeConnected, data: snapshot.ProbeUnacknowledged, reasons: []string{"NETFILTER_DROP"},
			last: "postrouting",
		},
		{
			name: "small ones are not", payload: "hello", do: []string{
				"nft add chain ip t f { type filter hook forward priority 0; }",
				"nft add rule ip t f ip daddr 10.244.2.5 meta length > 1000 drop",
			}, undo: []string{"nft delete chain ip t f"},
			result: snapshot.ProbeConnected, data: snapshot.ProbeSilent, last: "postrouting",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, words := range tt.do {
				must(t, words)
			}
			defer func() {
				for _, words := range tt.undo {
					must(t, words)
				}
			}()
			begin := time.Now()
			done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{{
				Protocol: "TCP", To: netip.MustParseAddrPort("10.96.0.1:80"), From: netip.MustParseAddr("10.244.1.5"),
				Probes: 20, Trace: true, Payload: tt.payload,
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", time.Since(begin).Round(time.Millisecond))
			p := &done.Targets[0]
			if p.TraceError+p.DropsError+p.Error != "" || len(p.Traces) == 0 {
				t.Fatalf("%+v", p)
			}
			for i := range p.List {
				if x := &p.List[i]; x.Result != tt.result || x.Data != tt.data || x.Endpoint.String() != "10.244.2.5:8080" &&
					tt.last == "postrouting" {
					t.Fatalf("%+v", x)
				}
			}
			trace := &p.Traces[0]
			if n := len(trace.Hooks); n == 0 || lastPassed(trace.Hooks) != tt.last {
				t.Errorf("hooks %+v, want to pass %s", trace.Hooks, tt.last)
			}
			if len(tt.reasons) > 0 && !slices.ContainsFunc(trace.Drops, func(d snapshot.Drop) bool {
				return slices.Contains(tt.reasons, d.Reason) && d.Answer == tt.answer && !d.InPod
			}) || len(tt.reasons) == 0 && len(trace.Drops) > 0 {
				t.Errorf("%+v, want %q", trace.Drops, tt.reasons)
			}
			steps := trace.Steps
			if tt.answer {
				steps = trace.Answer
			}
			got := ""
			for _, s := range steps {
				if s.Verdict == "drop" {
					got = s.Chain + " " + string(rune('0'+s.Rule))
				}
			}
			if got != tt.rule {
				t.Errorf("dropped by %q, want %q: %+v", got, tt.rule, steps)
			}
		})
	}
}

func lastPassed(hooks []snapshot.TraceHook) string {
	last := ""
	for _, h := range hooks {
		if h.Passed {
			last = h.Hook
		}
	}
	return last
}
