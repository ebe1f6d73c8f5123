// SPDX-License-Identifier: Apache-2.0

package live

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func readlink(t *testing.T, path string) string {
	t.Helper()
	s, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, words string, stdin ...string) {
	t.Helper()
	testutil.Run(t, strings.Join(stdin, ""), strings.Fields(words)...)
}

// podNamespace makes a network namespace with an interface eth0 whose other end is veth0 here.
func podNamespace(t *testing.T) *testutil.Namespace {
	t.Helper()
	in := testutil.NewNamespace(t)
	must(t, "ip link add veth0 type veth peer name eth0 netns "+in.PID)
	must(t, "ip link set veth0 up")
	return in
}

// pod makes a pod with an address.
func pod(t *testing.T) {
	t.Helper()
	in := podNamespace(t)
	must(t, "ip addr add 10.244.1.1/24 dev veth0")
	for _, words := range []string{
		"link set lo up", "link set eth0 up", "addr add 10.244.1.5/24 dev eth0", "route add default via 10.244.1.1",
	} {
		in.Run(t, append([]string{"ip"}, strings.Fields(words)...)...)
	}
}

// rules have a Service of two endpoints, ports of others, one address that is dropped, and one that is rejected.
const rules = `table ip t {
	chain pre { type nat hook prerouting priority dstnat; jump services; }
	chain out { type nat hook output priority -100; jump services; }
	chain services {
		ip daddr 10.96.0.1 tcp dport 80 dnat to numgen random mod 2 map { 0 : 10.244.9.1 . 8080, 1 : 10.244.9.2 . 8080 }
		ip daddr 10.96.0.1 tcp dport 81 dnat to 10.244.9.1:9999
		ip daddr 10.96.0.1 udp dport 53 dnat to 10.244.9.1:5353
		ip daddr 10.96.0.1 udp dport 54 dnat to 10.244.9.1:9999
		ip daddr 10.96.0.1 udp dport 55 dnat to 10.244.9.2:5353
	}
	chain filter {
		type filter hook output priority 0
		ip daddr 10.244.9.3 drop
		ip daddr 10.244.9.4 meta l4proto tcp reject with tcp reset
	}
}
table ip6 t {
	chain out { type filter hook output priority 0; ct state new counter; }
}
`

func TestProbes(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter") {
		return
	}
	for _, words := range []string{
		"ip link set lo up", "ip addr add 10.244.9.1/32 dev lo", "ip addr add 10.244.9.2/32 dev lo",
		"ip -6 addr add fd00::1/128 dev lo nodad", "ip route add 10.96.0.0/16 dev lo", "ip route add 10.244.9.3 dev lo",
		"ip route add 10.244.9.4 dev lo",
	} {
		must(t, words)
	}
	pod(t)
	must(t, "nft -f -", rules)
	tracingTime = time.Minute // a busy machine has no time for all of them in less
	for _, at := range []string{"10.244.9.1:8080", "10.244.9.2:8080", "[fd00::1]:80"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		// What nobody accepts stays in the queue, also where it was reset, until that is full.
		testutil.Serve(t, l, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	}
	silent, err := net.ListenPacket("udp", "10.244.9.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	testutil.Echo(t, nil, "udp", "10.244.9.2:5353")

	var node netip.Addr
	client := netip.MustParseAddr("10.244.1.5")
	for _, tt := range []struct {
		name         string
		protocol, to string
		from         netip.Addr
		n            int
		result       string
		endpoints    []string // any of them; none: there is no entry
		unreplied    bool
	}{
		{
			"a Service", "TCP", "10.96.0.1:80", node, 40, snapshot.ProbeConnected,
			[]string{"10.244.9.1:8080", "10.244.9.2:8080"},
			false,
		},
		{
			"from a pod", "TCP", "10.96.0.1:80", client, 40, snapshot.ProbeConnected,
			[]string{"10.244.9.1:8080", "10.244.9.2:8080"},
			false,
		},
		// its entry goes with the reset
		{"nothing listens", "TCP", "10.96.0.1:81", node, 2, snapshot.ProbeRefused, []string{"10.244.9.1:9999"}, false},
		{"dropped", "TCP", "10.244.9.3:80", node, 2, snapshot.ProbeTimeout, nil, false},
		{"rejected", "TCP", "10.244.9.4:80", node, 2, snapshot.ProbeRefused, nil, false},
		{"no route", "TCP", "192.0.2.1:80", node, 1, snapshot.ProbeNoRoute, nil, false},
		{"IPv6", "TCP", "[fd00::1]:80", node, 2, snapshot.ProbeConnected, []string{"[fd00::1]:80"}, false},
		{"UDP without an answer", "UDP", "10.96.0.1:53", node, 2, snapshot.ProbeSent, []string{"10.244.9.1:5353"}, true},
		{"UDP refused", "UDP", "10.96.0.1:54", node, 2, snapshot.ProbeRefused, []string{"10.244.9.1:9999"}, true},
		{"UDP with an answer", "UDP", "10.96.0.1:55", client, 2, snapshot.ProbeConnected, []string{"10.244.9.2:5353"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{
				{Protocol: tt.protocol, To: netip.MustParseAddrPort(tt.to), From: tt.from, Probes: tt.n},
			})
			got := done.Targets
			if err != nil || len(got) != 1 || got[0].Error != "" || len(got[0].List) != tt.n {
				t.Fatalf("%+v %v", got, err)
			}
			seen := map[string]bool{}
			for _, p := range got[0].List {
				if p.Result != tt.result || tt.from.IsValid() && p.Local.Addr() != tt.from {
					t.Errorf("%+v", p)
				}
				if p.Endpoint.IsValid() != (len(tt.endpoints) > 0) ||
					p.Endpoint.IsValid() && (!slices.Contains(tt.endpoints, p.Endpoint.String()) || p.Unreplied != tt.unreplied) {
					t.Errorf("endpoint: %+v", p)
				}
				seen[p.Endpoint.String()] = true
			}
			if len(tt.endpoints) > 1 && len(seen) != len(tt.endpoints) {
				t.Errorf("of %v only %v was seen: with %d probes that is chance less than once in 10^11", tt.endpoints, seen, tt.n)
			}
		})
	}
	// No thread stays in a pod, the first one least of all.
	reused(t)
	end := traffic(t, "10.96.0.1:80")
	traces(t, client)
	end()
	if own, first := readlink(t, "/proc/thread-self/ns/net"), readlink(t, "/proc/self/ns/net"); own != first {
		t.Errorf("the process is in %s, and this thread in %s", first, own)
	}
	for want, bad := range map[string]snapshot.ProbeTarget{
		`protocol "ICMP"`: {Protocol: "ICMP", To: netip.MustParseAddrPort("10.96.0.1:80"), Probes: 1},
		"not an address":  {Protocol: "TCP", Probes: 1},
		"0 probes":        {Protocol: "TCP", To: netip.MustParseAddrPort("10.96.0.1:80")},
		"no process on the node": {
			Protocol: "TCP", To: netip.MustParseAddrPort("10.96.0.1:80"), From: netip.MustParseAddr("10.244.1.99"), Probes: 1,
		},
	} {
		done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{bad})
		got := done.Targets
		if err != nil || !strings.Contains(got[0].Error, want) || got[0].List != nil {
			t.Errorf("%s: %+v %v", want, got, err)
		}
	}
}

// Of two network namespaces that have a pod's address, each with a link to the node, the pod's is the one that the
// kubelet has for its UID.
func TestAPodIsFoundByItsUID(t *testing.T) {
	if !testutil.IsolateProcesses(t, "ip", "nsenter") {
		return
	}
	const uid = "0a1b2c3d-0000-4000-8000-000000000003"
	at := netip.MustParseAddr("192.0.2.90")
	procs := testutil.ControlGroup(t, "kubepods/pod"+uid, 0)
	podIs := ""
	for i, port := range []string{"81", "80"} { // the last one is the pod
		in := testutil.NewNamespace(t)
		must(t, "ip link add veth"+port+" type veth peer name eth0 netns "+in.PID)
		in.Run(t, "ip", "link", "set", "lo", "up")
		in.Run(t, "ip", "addr", "add", at.String()+"/32", "dev", "lo")
		if i == 1 {
			if err := os.WriteFile(procs, []byte(in.PID), 0); err != nil {
				t.Fatal(err)
			}
			podIs = readlink(t, in.Path)
		}
	}
	target := snapshot.ProbeTarget{Protocol: "TCP", To: netip.AddrPortFrom(at, 80), From: at, Probes: 1}
	probe := func(pods ...podns.Pod) *snapshot.Probes {
		done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{target}, pods...)
		if err != nil {
			t.Fatal(err)
		}
		return &done.Targets[0]
	}
	if got := probe(); !strings.Contains(got.Error, podns.ErrSeveral.Error()) {
		t.Errorf("by its address: %+v", got)
	}
	ended := podns.Pod{UIDs: []string{strings.Replace(uid, "0a1b", "ffff", 1)}, Addresses: []netip.Addr{at}}
	own := podns.Pod{UIDs: []string{uid}, Addresses: []netip.Addr{at}}
	if got := probe(ended, own); got.Error != "" || len(got.List) != 1 || got.List[0].Result != snapshot.ProbeRefused {
		t.Errorf("by its UID: %+v", got)
	}
	spaces := &namespaces{[]podns.Pod{ended, own}, map[netip.Addr]*namespace{}}
	defer spaces.close()
	s, err := spaces.of(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.pod.Within(func() error {
		if got := readlink(t, "/proc/thread-self/ns/net"); got != podIs {
			t.Errorf("it is %s, want %s", got, podIs)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// traces asks for the kernel's own trace, from the node and from a pod.
func traces(t *testing.T, client netip.Addr) {
	t.Helper()
	target := func(to string, from netip.Addr, n int) snapshot.ProbeTarget {
		return snapshot.ProbeTarget{Protocol: "TCP", To: netip.MustParseAddrPort(to), From: from, Probes: n, Trace: true}
	}
	done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{
		target("10.96.0.1:80", netip.Addr{}, 30), target("10.96.0.1:80", client, 30),
		target("10.244.9.3:80", netip.Addr{}, 1), target("192.0.2.1:80", netip.Addr{}, 1),
		target("[fd00::1]:80", netip.Addr{}, 2),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := done.Targets
	for i, want := range []struct {
		steps []string // "chain rule verdict", in every trace
		ends  int      // different endpoints
	}{
		{[]string{"out 1 jump", "services 1 accept"}, 2},
		{[]string{"pre 1 jump", "services 1 accept"}, 2},
		{[]string{"out 1 jump", "filter 1 drop"}, 0},
		{nil, 0},
		{[]string{"out 1 continue"}, 1},
	} {
		p := &got[i]
		if p.TraceError != "" || len(p.Traces) == 0 {
			t.Errorf("%s from %s: %d traces, %q", p.To, p.From, len(p.Traces), p.TraceError)
		}
		ends := map[netip.AddrPort]bool{}
		for k := range p.Traces {
			trace := &p.Traces[k]
			if trace.Endpoint.IsValid() {
				ends[trace.Endpoint] = true
			}
			var met []string
			for _, s := range trace.Steps {
				met = append(met, s.Chain+" "+strconv.Itoa(s.Rule)+" "+s.Verdict)
			}
			for _, s := range want.steps {
				if n := strings.Count(strings.Join(met, "\n")+"\n", s+"\n"); n != 1 {
					t.Errorf("%s from %s: %d times %q in %q", p.To, p.From, n, s, met)
				}
			}
		}
		if len(ends) != want.ends {
			t.Errorf("%s from %s: the traces came to %v", p.To, p.From, ends)
		}
	}
}

// Where the kernel has few ports to give, each run gets those that the one before had: a packet of UDP from there met
// no rule, as its connection was known.
func reused(t *testing.T) {
	t.Helper()
	const setting = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(setting)
	if err != nil {
		t.Fatal(err)
	}
	set := func(s string) {
		if err := os.WriteFile(setting, []byte(s), 0); err != nil {
			t.Fatal(err)
		}
	}
	defer set(string(before))
	set("40000 40019")
	ask := func(to string) *snapshot.Probes {
		done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{
			{Protocol: "UDP", To: netip.MustParseAddrPort(to), Probes: 4, Trace: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		return &done.Targets[0]
	}
	for round := range 3 {
		p := ask("10.96.0.1:53")
		if p.TraceError != "" || len(p.Traces) != 1 ||
			!slices.ContainsFunc(p.Traces[0].Steps, func(s snapshot.TraceStep) bool { return s.Chain == "services" }) {
			t.Errorf("round %d: %+v", round, p)
		}
	}
	for range 3 { // until all are known
		ask("10.96.0.1:53")
	}
	const taken = "connection tracking already has an entry for each of"
	if p := ask("10.96.0.1:53"); !strings.Contains(p.List[0].Error, taken) {
		t.Errorf("no port was left: %+v", p)
	}
}

// TestProbesLostBeforeConnectionTrackingWereSentNowhere: of a SYN that was dropped before connection tracking saw it,
// the entry of an earlier connection from the same port told where it was sent, and the walk seemed to be wrong.
func TestProbesLostBeforeConnectionTrackingWereSentNowhere(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip") {
		return
	}
	for _, words := range []string{
		"ip link set lo up", "ip addr add 10.244.9.1/32 dev lo", "ip route add 10.96.0.0/16 dev lo",
		"sysctl -qw net.ipv4.tcp_max_tw_buckets=0",
	} {
		must(t, words)
	}
	must(t, "nft -f -", `table ip t {
	chain out { type nat hook output priority -100; ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.9.1:8080; }
}
`)
	l, err := net.Listen("tcp", "10.244.9.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ask := func(ports string, probes int) []snapshot.Probe {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(ports), 0); err != nil {
			t.Fatal(err)
		}
		done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{
			{Protocol: "TCP", To: netip.MustParseAddrPort("10.96.0.1:80"), Probes: probes},
		})
		if err != nil || done.Targets[0].Error != "" {
			t.Fatalf("%v %+v", err, done)
		}
		return done.Targets[0].List
	}
	for _, p := range ask("40000 40039", 30) {
		if p.Result != snapshot.ProbeConnected || p.Endpoint != netip.MustParseAddrPort("10.244.9.1:8080") {
			t.Errorf("%+v", p)
		}
	}
	must(t, "nft -f -", `table ip early { chain raw { type filter hook output priority -300; ip daddr 10.96.0.1 drop; }; }
`)
	for _, p := range ask("40000 40059", 12) {
		if p.Result != snapshot.ProbeTimeout || p.Endpoint.IsValid() {
			t.Errorf("a probe that was dropped before connection tracking: %+v", p)
		}
	}
}

// traffic opens connections of others, 1,000 a second as far as the machine gets that far, until end is called: none
// may fail.
func traffic(t *testing.T, to string) (end func()) {
	t.Helper()
	const clients, each = 10, 10 * time.Millisecond
	done := make(chan bool)
	var opened, failed atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			tick := time.NewTicker(each)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", to)
				opened.Add(1)
				if err != nil {
					failed.Add(1)
					t.Errorf("a connection of others: %v", err)
					continue
				}
				_ = c.(*net.TCPConn).SetLinger(0) // its port is free at once
				_ = c.Close()
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
		took := time.Since(begin)
		t.Logf("%d connections of others in %s, %.0f a second, %d failed", opened.Load(), took.Round(time.Millisecond),
			float64(opened.Load())/took.Seconds(), failed.Load())
		if opened.Load() < 100 {
			t.Error("there was next to no traffic of others")
		}
	}
}
