// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

func must(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

const legacyText = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:MINE - [0:0]
-A OUTPUT -d 127.9.9.9/32 -j RETURN
-A OUTPUT -p udp -m comment --comment "to mine" -j MINE
-A MINE -p udp -m udp --dport 9999 -j RETURN
-A MINE -p udp -m udp --dport 7001 -j DNAT --to-destination 127.0.0.1:7002
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A OUTPUT -p udp -m udp --dport 7002 -j MARK --set-xmark 0x7/0x7
COMMIT
`

const nativeText = `table inet own {
	chain c {
		type filter hook input priority 10; policy accept;
		ip daddr 127.9.9.9 drop
		udp dport 7002 counter accept
	}
}
`

// testConnection is the connection that is traced.
var testConnection = Connection{
	Protocol: unix.IPPROTO_UDP,
	From:     netip.MustParseAddrPort("127.0.0.1:6001"),
	To:       netip.MustParseAddrPort("127.0.0.1:7001"),
}

// texts writes events as "family table chain rule verdict", without those of our own table.
func texts(t *testing.T, own string, events []Event) []string {
	t.Helper()
	var numbers Numbers
	var out []string
	for i := range events {
		e := &events[i]
		if e.Table == own {
			continue
		}
		number := 0
		if e.Handle != 0 {
			var err error
			if number, err = numbers.Of(e); err != nil {
				t.Fatal(err)
			}
		}
		text := fmt.Sprintf("%s %s %s %d %s %s", e.Family, e.Table, e.Chain, number, e.Verdict, e.To)
		out = append(out, strings.TrimSpace(text))
	}
	return out
}

// listening is a Listener until the test ends.
func listening(t *testing.T) *Listener {
	t.Helper()
	l, err := Listen(ReceiveBuffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// opened is a Table until the test ends.
func opened(t *testing.T) *Table {
	t.Helper()
	table, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

func send(t *testing.T, from, to string) {
	t.Helper()
	local, remote := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(local), net.UDPAddrFromAddrPort(remote))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(nil); err != nil {
		t.Fatal(err)
	}
}

// The kernel reports the rules of iptables-nft and of nft that the packets of one connection traverse, and those of no
// other connection.
func TestOneConnectionIsTraced(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "iptables-nft-restore", "nft", "ip") {
		return
	}
	must(t, "", "ip", "link", "set", "lo", "up")
	must(t, legacyText, "iptables-nft-restore")
	must(t, nativeText, "nft", "-f", "-")
	before := must(t, "", "nft", "-s", "list", "ruleset")
	listener := listening(t)
	table, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, "", "nft", "list", "tables"); !strings.Contains(out, table.Name()) {
		t.Errorf("the table is not there: %s", out)
	}
	foreign := exec.CommandContext(t.Context(), "nft", "delete", "table", "inet", table.Name())
	if out, err := foreign.CombinedOutput(); err == nil {
		t.Errorf("someone else may delete the table: %s", out)
	}
	if err := table.Trace(testConnection); err != nil {
		t.Fatal(err)
	}
	send(t, "127.0.0.1:6002", "127.0.0.1:7001")
	send(t, "127.0.0.1:6001", "127.0.0.1:7001")
	events, err := listener.Collect(50 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	got := texts(t, table.Name(), events)
	for _, want := range []string{
		"ip nat OUTPUT 2 jump MINE", "ip nat MINE 2 accept", "ip filter OUTPUT 1 continue", "inet own c 2 accept",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no event: %s", want)
		}
	}
	for _, e := range got {
		if strings.Contains(e, "MINE 1") || strings.Contains(e, "OUTPUT 1 return") {
			t.Errorf("an event of a rule that the packet did not meet: %s", e)
		}
	}
	if n := strings.Count(strings.Join(got, "\n"), "ip nat MINE 2"); n != 1 {
		t.Errorf("%d connections were traced", n)
	}
	if err := table.Stop(); err != nil {
		t.Fatal(err)
	}
	send(t, "127.0.0.1:6001", "127.0.0.1:7001")
	if events, err := listener.Collect(50 * time.Millisecond); err != nil || len(events) > 0 {
		t.Errorf("after the end: %v, %v", texts(t, table.Name(), events), err)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if after := must(t, "", "nft", "-s", "list", "ruleset"); after != before {
		t.Errorf("after it there is\n%s\nbefore it there was\n%s", after, before)
	}
}

// What the kernel has reported is read to the end by a process that comes late, too; it used to read one datagram.
func TestEventsThatAreReadLate(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip") {
		return
	}
	must(t, "", "ip", "link", "set", "lo", "up")
	must(t, nativeText, "nft", "-f", "-")
	listener := listening(t)
	table := opened(t)
	if err := table.Trace(testConnection); err != nil {
		t.Fatal(err)
	}
	const packets = 20
	for range packets {
		send(t, "127.0.0.1:6001", "127.0.0.1:7001")
	}
	events, err := listener.collect(50*time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(texts(t, table.Name(), events), "\n")
	if n := strings.Count(got, "inet own c 0 accept"); n != packets {
		t.Errorf("events of %d packets were read, %d were sent", n, packets)
	}
}

// killedEnv is set in the process that is killed.
const killedEnv = "SVCPROXY_TEST_KILLED"

// TestNothingStaysOfAKilledProcess kills processes that trace, at different moments.
func TestNothingStaysOfAKilledProcess(t *testing.T) {
	testutil.Long(t)
	if os.Getenv(killedEnv) != "" {
		table, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("open\n")
		for i := range uint16(50_000) {
			at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), i+1)
			if err := errorsOf(table.Trace(Connection{unix.IPPROTO_TCP, at, at}), table.Stop()); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft") {
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), killedEnv+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i%40) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if left := must(t, "", "nft", "list", "tables"); left != "" {
			t.Fatalf("after %d ms: %s", i%40, left)
		}
	}
}

func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}
