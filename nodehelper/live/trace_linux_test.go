// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A packet of a connection that comes when its events have been collected already, as some of SCTP's do, is none of the
// next connection's.
func TestLatePacketsAreNotOfTheNextConnection(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip") {
		return
	}
	must(t, "ip link set lo up")
	must(t, "nft -f -", `table ip t {
	chain out { type nat hook output priority -100; udp dport 53 dnat to 127.0.0.2:5353; }
	chain filter { type filter hook output priority 0; udp dport 53 counter; udp dport 5353 counter; }
}
`)
	testutil.Echo(t, nil, "udp", "127.0.0.2:5353")
	to := netip.MustParseAddrPort("127.0.0.1:53")
	tracer, err := newTracing(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.close()
	late, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	send := func() {
		if _, err := late.Write(nil); err != nil {
			t.Fatal(err)
		}
	}
	send() // the next one meets no NAT any more
	err = tracer.table.Trace(kerneltrace.Connection{
		Protocol: unix.IPPROTO_UDP, From: netip.MustParseAddrPort(late.LocalAddr().String()), To: to,
	})
	if err != nil {
		t.Fatal(err)
	}
	send()
	if err := tracer.table.Stop(); err != nil {
		t.Fatal(err)
	}
	trace, err := tracer.connection(t.Context(), &namespace{}, snapshot.ProbeTarget{Protocol: "UDP", To: to}, nil)
	if err != nil || trace.Result != snapshot.ProbeConnected {
		t.Fatalf("%+v %v", trace, err)
	}
	var met []string
	for _, s := range trace.Steps {
		met = append(met, s.Chain+" "+strconv.Itoa(s.Rule)+" "+s.Verdict)
	}
	got, want := strings.Join(met, ", "), "out 1 accept, filter 2 continue, filter 0 continue, filter 0 accept"
	if got != want {
		t.Errorf("it met %q, want %q", got, want)
	}
}

// Packets that others trace meanwhile, as a helper does that follows connections to this node, are none of the
// connection's; nor are the rules by which others trace its own packets, and what these meet is not told twice.
func TestPacketsThatOthersTrace(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip") {
		return
	}
	must(t, "ip link set lo up")
	must(t, "nft -f -", `table ip t {
	chain filter { type filter hook output priority 0; udp dport 53 counter; tcp dport 80 counter; tcp dport 80 accept; }
}
table inet svcproxy-trace-0 {
	chain output {
		type filter hook output priority -400
		tcp dport 80 meta nftrace set 1
		udp dport 53 meta nftrace set 1
	}
}
`)
	testutil.Echo(t, nil, "udp", "127.0.0.1:53")
	l, err := net.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, l, func(net.Conn) {})
	tracer, err := newTracing(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.close()
	done := make(chan bool)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	wg.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			if c, err := net.Dial("tcp", "127.0.0.1:80"); err == nil {
				c.Close()
			}
		}
	})
	to := netip.MustParseAddrPort("127.0.0.1:53")
	lost := 20 // events, on a machine that is too busy to read them in time: such a connection is made again
	for range 20 {
		trace, err := tracer.connection(t.Context(), &namespace{}, snapshot.ProbeTarget{Protocol: "UDP", To: to}, nil)
		for ; errors.Is(err, unix.ENOBUFS) && lost > 0; lost-- {
			trace, err = tracer.connection(t.Context(), &namespace{}, snapshot.ProbeTarget{Protocol: "UDP", To: to}, nil)
		}
		if err != nil || trace.Result != snapshot.ProbeConnected {
			t.Fatalf("%+v %v", trace, err)
		}
		var met []string
		for _, s := range trace.Steps {
			met = append(met, s.Table+" "+s.Chain+" "+strconv.Itoa(s.Rule)+" "+s.Verdict)
		}
		got, want := strings.Join(met, ", "), "t filter 1 continue, t filter 0 continue, t filter 0 accept"
		if got != want {
			t.Fatalf("it met %q, want %q", got, want)
		}
	}
}

// A connection that is masqueraded and comes in by lo again has another source there: what it meets then in
// iptables-legacy is its own all the same.
func TestLegacyRulesBehindMasquerade(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "iptables-legacy-restore") {
		return
	}
	must(t, "ip link set lo up")
	must(t, "ip addr add 192.0.2.10/32 dev lo")
	must(t, "ip route add 10.96.0.0/16 dev lo")
	must(t, "iptables-legacy-restore", `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A OUTPUT -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 192.0.2.10:6443
-A POSTROUTING -j MASQUERADE --random-fully
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:MINE - [0:0]
-A INPUT -j MINE
COMMIT
`)
	l, err := net.Listen("tcp", "192.0.2.10:6443")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done, err := Run(t.Context(), t.TempDir(), []snapshot.ProbeTarget{
		{Protocol: "TCP", To: netip.MustParseAddrPort("10.96.0.1:443"), Probes: 1, Trace: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &done.Targets[0]
	if p.TraceError+p.LegacyError != "" || len(p.Traces) != 1 {
		t.Fatalf("%+v", p)
	}
	var met []string
	for _, s := range p.Traces[0].Steps {
		if !s.Policy {
			met = append(met, s.Table+" "+s.Chain+" "+strconv.Itoa(s.Rule))
		}
	}
	got, want := strings.Join(met, ", "), "nat OUTPUT 1, nat POSTROUTING 1, filter INPUT 1, filter MINE 1"
	if got != want {
		t.Errorf("it met %q, want %q", got, want)
	}
}

// TestTargetsThatTheTimeForTracingDoesNotReachSaySo: they had neither a trace nor a reason.
func TestTargetsThatTheTimeForTracingDoesNotReachSaySo(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip") {
		return
	}
	must(t, "ip link set lo up")
	tracingTime = 0
	var asked []snapshot.ProbeTarget
	for _, to := range []string{"127.0.0.1:9", "127.0.0.2:9"} {
		asked = append(asked, snapshot.ProbeTarget{
			Protocol: "TCP", To: netip.MustParseAddrPort(to), Probes: 1, Trace: true,
		})
	}
	done, err := Run(t.Context(), t.TempDir(), asked)
	if err != nil || len(done.Targets) != len(asked) {
		t.Fatalf("%+v %v", done, err)
	}
	for i := range done.Targets {
		if p := &done.Targets[i]; len(p.Traces) > 0 || !strings.Contains(p.TraceError, "for tracing were over") {
			t.Errorf("%s: %d traces, %q", p.To, len(p.Traces), p.TraceError)
		}
	}
}
