// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// servedNode is a node with endpoints that answer with their own addresses, and a pod beside it.
func servedNode(t *testing.T, endpoints ...string) (pod *testutil.Namespace) {
	t.Helper()
	for _, words := range []string{
		"ip link set lo up", "ip link add uplink type veth peer name beyond", "ip link set uplink up",
		"ip link set beyond up", "ip addr add 192.0.2.10/24 dev uplink", "ip route add default via 192.0.2.1",
		"ip addr add 2001:db8:1::10/64 dev uplink nodad", "ip -6 route add default via 2001:db8:1::1",
		"sysctl -qw net.ipv4.ip_forward=1",
	} {
		testutil.Run(t, "", strings.Fields(words)...)
	}
	for _, e := range endpoints {
		at := netip.MustParseAddrPort(e)
		words := []string{"ip", "addr", "add", netip.PrefixFrom(at.Addr(), at.Addr().BitLen()).String(), "dev", "lo"}
		if at.Addr().Is6() {
			words = append(words, "nodad")
		}
		testutil.Run(t, "", words...)
		for _, network := range []string{"tcp", "udp"} {
			testutil.Echo(t, nil, network, e)
		}
	}
	pod = testutil.NewNamespace(t)
	for _, words := range []string{
		"ip link add veth0 type veth peer name eth0 netns " + pod.PID, "ip link set veth0 up",
		"ip addr add 10.244.0.1/24 dev veth0",
	} {
		testutil.Run(t, "", strings.Fields(words)...)
	}
	for _, words := range []string{
		"link set lo up", "link set eth0 up", "addr add 10.244.0.5/24 dev eth0", "route add default via 10.244.0.1",
	} {
		pod.Run(t, append([]string{"ip"}, strings.Fields(words)...)...)
	}
	return pod
}

// ask opens a connection, and returns which endpoint answers.
func ask(t *testing.T, network, to string) (endpoint string, err error) {
	t.Helper()
	who, err := testutil.Ask(nil, network, netip.Addr{}, to, 2*time.Second)
	if err != nil {
		return "", err
	}
	return who.Server.String(), nil
}

func udp(p *plan.Plan) *plan.Plan {
	for i := range p.Frontends {
		f := p.Frontends[i]
		f.Protocol = "UDP"
		p.Frontends = append(p.Frontends, f)
	}
	return p
}

const (
	one   = "10.244.1.1:8080"
	two   = "10.244.2.2:8080"
	three = "10.244.3.3:8080"
)

// The proxy, to which one rule for each frontend redirects connections: balancing, session affinity, update, draining
// and removal.
func TestUserspace(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl", "bash")...) {
		return
	}
	pod := servedNode(t, one, two, three, "[fd00:244::1]:8080")
	// Without other rules that need connection tracking, the kernel stops translating open connections when the last rule
	// is removed.
	for _, chain := range []string{"PREROUTING", "OUTPUT", "POSTROUTING"} {
		testutil.Run(t, "", "iptables-nft", "-t", "nat", "-A", chain, "-m", "conntrack", "--ctstate", "INVALID", "-j",
			"ACCEPT")
	}
	prog := newProgrammer(t, t.TempDir())
	before := testutil.Listing(t, testutil.Rules...)
	apply := func(p *plan.Plan, scheduler string) {
		t.Helper()
		req := params(p, wire.Userspace, wire.BackendNFT, "a")
		req.Scheduler = scheduler
		if _, err := prog.Apply(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	many := func(network, to string, n int) map[string]int {
		t.Helper()
		got := map[string]int{}
		for range n {
			e, err := ask(t, network, to)
			if err != nil {
				t.Fatal(err)
			}
			got[e]++
		}
		return got
	}
	apply(udp(web(0, one, two)), "")
	for _, network := range []string{"tcp", "udp"} {
		for _, to := range []string{"10.96.0.10:80", "192.0.2.10:30080"} {
			if got := many(network, to, 10); got[one] != 5 || got[two] != 5 {
				t.Errorf("round-robin of 10, %s to %s: %v", network, to, got)
			}
		}
	}
	// From a pod.
	out := pod.Run(t, "bash", "-c", "exec 3<>/dev/tcp/10.96.0.10/80; echo hello >&3; head -1 <&3")
	if !strings.Contains(out, ":8080 ") || !strings.HasSuffix(out, " hello\n") {
		t.Errorf("a pod gets %q", out)
	}
	// A connection to the proxy's port that was not redirected is refused.
	x := prog.modes[wire.Userspace].(*userspace).proxies["0123abcd"] //nolint:forcetypeassert // it is
	own := x.port(&plan.Frontend{Address: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: "TCP"})
	if e, err := ask(t, "tcp", "192.0.2.10:"+own); err == nil {
		t.Errorf("the proxy's own port leads to %s", e)
	}
	// A connection that is open stays through an update.
	c, err := net.Dial("tcp", "10.96.0.10:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	echo := func() (string, error) {
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := io.WriteString(c, "still\n"); err != nil {
			return "", err
		}
		return r.ReadString('\n')
	}
	first, err := echo()
	if err != nil {
		t.Fatal(err)
	}
	apply(udp(web(600, three)), "")
	if again, err := echo(); err != nil || again != first {
		t.Errorf("a connection that was open went from %q to %q: %v", first, again, err)
	}
	for _, network := range []string{"tcp", "udp"} {
		if got := many(network, "10.96.0.10:80", 3); got[three] != 3 {
			t.Errorf("after an update, %s: %v", network, got)
		}
	}
	// Undone while a connection is open: it may continue for drainTime.
	begin, drained := time.Now(), make(chan struct{})
	go func() {
		defer close(drained)
		time.Sleep(500 * time.Millisecond)
		if _, err := echo(); err != nil {
			t.Errorf("a connection is not drained: %v", err)
		}
		c.Close()
	}()
	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
	<-drained
	if took := time.Since(begin); took > drainTime {
		t.Errorf("draining took %s, though the connection was closed", took)
	}
	if got := testutil.Listing(t, testutil.Rules...); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
	if e, err := ask(t, "tcp", "192.0.2.10:30080"); err == nil {
		t.Errorf("%s still answers", e)
	}

	// The other schedulers, affinity, source ranges, an endpoint that is not there, IPv6.
	apply(web(600, one, two, three), "")
	if got := many("tcp", "10.96.0.10:80", 9); len(got) != 1 {
		t.Errorf("with affinity: %v", got)
	}
	undo(t, prog)
	apply(web(0, one, two, three), "sh")
	if got := many("tcp", "10.96.0.10:80", 9); len(got) != 1 {
		t.Errorf("by source hash: %v", got)
	}
	undo(t, prog)
	apply(web(0, one, two), "lc")
	hold, err := net.Dial("tcp", "10.96.0.10:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(hold, "x\n"); err != nil {
		t.Fatal(err)
	}
	held, err := bufio.NewReader(hold).ReadString(' ')
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if e, err := ask(t, "tcp", "10.96.0.10:80"); err != nil || e == strings.TrimSpace(held) {
			t.Errorf("by least connections, with one open at %s: %s %v", held, e, err)
		}
		time.Sleep(100 * time.Millisecond) // until the proxy has taken note of its end
	}
	hold.Close()
	undo(t, prog)
	away := web(0, "10.244.1.1:9", one)
	away.Frontends[0].Ranges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	apply(away, "")
	if e, err := ask(t, "tcp", "10.96.0.10:80"); err == nil {
		t.Errorf("who is outside the source ranges is served by %s", e)
	}
	undo(t, prog)
	away.Frontends[0].NodeExempt = true
	away.Frontends[0].ForOthers.Endpoints = away.Frontends[1].ForOthers.Endpoints
	away.Frontends[0].ForNode.Endpoints = away.Frontends[1].ForNode.Endpoints
	apply(away, "")
	if e, err := ask(t, "tcp", "10.96.0.10:80"); err != nil {
		t.Errorf("the node, which is not held to the ranges: %s %v", e, err)
	}
	if got := many("tcp", "192.0.2.10:30080", 4); got[one] != 4 {
		t.Errorf("an endpoint that refuses is not passed over: %v", got)
	}
	undo(t, prog)
	v6 := web(0, "[fd00:244::1]:8080")
	for i, at := range []string{"[fd00:96::10]:80", "[2001:db8:1::10]:30080"} {
		v6.Frontends[i].Address = netip.MustParseAddrPort(at)
		v6.Frontends[i].Pods.CIDR = netip.MustParsePrefix("fd00:244::/32")
	}
	apply(udp(v6), "")
	for _, network := range []string{"tcp", "udp"} {
		for _, to := range []string{"[fd00:96::10]:80", "[2001:db8:1::10]:30080"} {
			if got := many(network, to, 2); got["[fd00:244::1]:8080"] != 2 {
				t.Errorf("IPv6, %s to %s: %v", network, to, got)
			}
		}
	}
	undo(t, prog)
	if got := testutil.Listing(t, testutil.Rules...); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
}

// A path ends, although an endpoint neither reads nor closes a connection that is open: the wait for its answer once
// had no end.
func TestUserspaceEndsBesideAnEndpointThatNeverCloses(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, append(executables, "nsenter", "sysctl")...) {
		return
	}
	servedNode(t)
	testutil.Run(t, "", "ip", "addr", "add", "10.244.1.1/32", "dev", "lo")
	for _, busy := range []bool{false, true} {
		endBesideASilentEndpoint(t, busy)
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func endBesideASilentEndpoint(t *testing.T, busy bool) {
	t.Helper()
	l, err := net.Listen("tcp", one)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	held := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			held <- c
		}
	}()
	prog := newProgrammer(t, t.TempDir())
	if _, err := prog.Apply(t.Context(), params(web(0, one), wire.Userspace, wire.BackendNFT, "a")); err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp", "10.96.0.10:80", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer (<-held).Close()
	if busy { // until nobody on the way takes more
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		if _, err := io.Copy(c, endless{}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the endpoint reads: %v", err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := prog.Undo(context.Background(), wire.UndoMine)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(drainTime + 30*time.Second):
		t.Error("the path does not end")
	}
}

func undo(t *testing.T, prog *Programmer) {
	t.Helper()
	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
}
