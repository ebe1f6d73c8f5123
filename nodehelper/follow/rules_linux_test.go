// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/collect"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/kerneltrace"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// podAt is the pod of clientAndPod, and a port at which nobody listens.
var podAt = netip.MustParseAddrPort("10.246.2.9:8080")

// requestOf follows connections to the pod in the node's and the pod's namespace.
func requestOf(root string) Request {
	return Request{
		Servers: []snapshot.FollowTarget{{Protocol: "TCP", At: podAt}},
		Clients: []netip.Addr{netip.MustParseAddr("10.246.1.9")},
		Pods:    map[string]podns.Pod{"shop/web": {Addresses: []netip.Addr{podAt.Addr()}}},
		Rules:   true, Root: root,
	}
}

// loggers are the kernel's of both families, by name.
func loggers(t *testing.T) (out string) {
	t.Helper()
	for _, family := range []string{"2", "10"} {
		name, err := os.ReadFile("/proc/sys/net/netfilter/nf_log/" + family)
		if err != nil {
			t.Fatal(err)
		}
		out += strings.TrimSpace(string(name)) + " "
	}
	return out
}

// untouched checks that nothing of a trace is left in the node's and the pod's namespace.
func untouched(t *testing.T, pod *testutil.Namespace, root, before string) {
	t.Helper()
	for _, tables := range []string{testutil.Run(t, "", "nft", "list", "tables"), pod.Run(t, "nft", "list", "tables")} {
		if strings.Contains(tables, kerneltrace.TableName) {
			t.Errorf("left: %s", tables)
		}
	}
	if now := loggers(t); now != before {
		t.Errorf("the loggers were %s and are %s", before, now)
	}
	if left, err := os.ReadDir(root + "/run/svcproxy-trace"); len(left) > 0 {
		t.Errorf("journals are left: %v %v", left, err)
	}
}

// On a node with rules of iptables-legacy the last one that dropped packets met is told; of those in a pod it is said
// that they are not.
func TestRulesOfLegacyAreTraced(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter", "sysctl", "iptables-legacy") {
		return
	}
	client, pod := clientAndPod(t)
	run(t, nil, "iptables-legacy -A FORWARD -p udp -j DROP", "iptables-legacy -A FORWARD -d 10.246.2.9 -j DROP")
	run(t, pod, "iptables-legacy -A INPUT -p udp -j DROP")
	root, before := t.TempDir(), loggers(t)
	f, err := Begin(requestOf(root))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	local := netip.AddrPortFrom(netip.MustParseAddr("10.246.1.9"), uint16(ports()))
	testutil.NewThread(t, client.Path).Do(func() {
		d := net.Dialer{Timeout: 200 * time.Millisecond, LocalAddr: net.TCPAddrFromAddrPort(local)}
		_, err = d.DialContext(t.Context(), "tcp4", podAt.String())
	})
	if err == nil {
		t.Fatal("the node forwards what its rules drop")
	}
	got, err := f.End(t.Context(), []snapshot.Flow{{
		Protocol: "TCP", Clients: []netip.AddrPort{local}, Servers: []netip.AddrPort{podAt},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if rules := rulesOf(got); !sameTexts(rules, []string{"node forward stayed ip filter FORWARD 2 request"}) ||
		!got.Traced[0].Last.Legacy {
		t.Errorf("%q", rules)
	}
	if len(got.Untraced) != 1 || !strings.Contains(got.Untraced["shop/web"], "iptables-legacy") {
		t.Errorf("%v", got.Untraced)
	}
	untouched(t, pod, root, before)
}

// killedEnv is the node's root of a process that is going to be killed.
const killedEnv = "SVCPROXY_TEST_FOLLOWER"

// Of a follower that is killed nothing stays, in the node's network namespace and in the pod's: the kernel removes the
// tables, and the loggers are restored from the journal.
func TestNothingStaysOfAKilledFollower(t *testing.T) {
	if root := os.Getenv(killedEnv); root != "" {
		f, err := Begin(requestOf(root))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range f.places {
			if p.untraced != "" {
				t.Fatal(p.untraced)
			}
		}
		_, _ = os.Stdout.WriteString("follows\n")
		time.Sleep(time.Minute)
		return
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter", "sysctl", "iptables-legacy") {
		return
	}
	_, pod := clientAndPod(t)
	run(t, nil, "iptables-legacy -A FORWARD -p udp -j DROP")
	root, before := t.TempDir(), loggers(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), killedEnv+"="+root)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if text := string(line[:n]); err != nil || text != "follows\n" {
		t.Errorf("%q %v", text, err)
	}
	for _, tables := range []string{testutil.Run(t, "", "nft", "list", "tables"), pod.Run(t, "nft", "list", "tables")} {
		if !strings.Contains(tables, kerneltrace.TableName) {
			t.Errorf("nothing is traced: %s", tables)
		}
	}
	if loggers(t) == before {
		t.Error("rules of iptables-legacy are not traced")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := kerneltrace.Restore(root); err != nil {
		t.Error(err)
	}
	untouched(t, pod, root, before)
}

// Who reads the node meanwhile, as the agent does, is not led astray by the table: the walk knows that it does nothing
// to a packet, by the kernel's messages and by nft's listing.
func TestTheTableIsNothingToAWalk(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter", "sysctl") {
		return
	}
	clientAndPod(t)
	run(t, nil, "ip -6 addr add fd00:46::1/64 dev veth1 nodad", "ip -6 addr add fd00:48::1/64 dev veth2 nodad",
		"sysctl -qw net.ipv6.conf.all.forwarding=1")
	web6, client6 := netip.MustParseAddrPort("[fd00:48::9]:8080"), netip.MustParseAddr("fd00:46::9")
	client4 := netip.MustParseAddr("10.246.1.9")
	trace, err := traceRules(t.TempDir(), kerneltrace.Flows{
		Servers: []kerneltrace.End{
			{Protocol: unix.IPPROTO_TCP, At: podAt},
			{Protocol: unix.IPPROTO_UDP, At: podAt},
			{Protocol: unix.IPPROTO_TCP, At: web6},
			{Protocol: unix.IPPROTO_UDP, At: web6},
		},
		Clients: []netip.Addr{client4, client6}, Tunnels: []uint16{8472},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := trace.finish(); err != nil {
			t.Error(err)
		}
	}()
	for _, byNFT := range []bool{false, true} {
		files := map[string][]byte{}
		err := collect.Collect(t.Context(), collect.Options{Root: "/", Files: []string{
			snapshot.NFTFile, snapshot.AddrFile, snapshot.LinkFile, snapshot.RouteFile, snapshot.Route6File, snapshot.RuleFile,
			snapshot.Rule6File, snapshot.SysctlFile,
		}}, func(f collect.File) error {
			if f.Unread != "" {
				t.Errorf("%s: %s", f.Name, f.Unread)
			}
			files[f.Name] = f.Data
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if byNFT {
			files[snapshot.NFTFile] = []byte(testutil.Run(t, "", "nft", "-j", "list", "ruleset"))
		}
		s, err := nodestate.Load(snapshot.NewNode("node", files))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []netfilter.Packet{
			{Family: netfilter.IPv4, Proto: netfilter.TCP, Src: client4, Dst: podAt.Addr(), DstPort: 8080},
			{Family: netfilter.IPv6, Proto: netfilter.UDP, Src: client6, Dst: web6.Addr(), DstPort: 8080},
			{Family: netfilter.IPv4, Proto: netfilter.UDP, Src: client4, Dst: podAt.Addr(), DstPort: 8472},
		} {
			p.In = "veth1"
			res := netfilter.NewWalker(s.Rules, s.Host, nil).Walk(netfilter.Start{Hook: netfilter.Prerouting, Packet: p},
				netfilter.Options{})
			if len(res.Uncertain) > 0 || len(res.Outcomes) != 1 || res.Outcomes[0].End != netfilter.Sent ||
				!res.Outcomes[0].Certain {
				t.Errorf("as nft prints it: %t: %v: %+v", byNFT, p.Dst, res)
			}
		}
	}
}
