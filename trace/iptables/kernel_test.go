// SPDX-License-Identifier: Apache-2.0

//go:build linux

package iptables

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// A kernelPath is the path of one packet: the hooks that it passes, and its interfaces there.
type kernelPath struct {
	name     string
	send     string // the namespace: client, or node
	src, dst string
	hooks    []kernelHook
	local    bool
}

type kernelHook struct {
	hook    netfilter.Hook
	in, out string
}

var kernelPaths = []kernelPath{
	{
		"through", "client", "10.1.0.2", "10.2.0.2", []kernelHook{
			{netfilter.Prerouting, "vea", ""}, {netfilter.Forward, "vea", "veb"}, {netfilter.Postrouting, "", "veb"},
		}, false,
	},
	{
		"to the node", "client", "10.1.0.2", "10.1.0.1", []kernelHook{
			{netfilter.Prerouting, "vea", ""}, {netfilter.Input, "vea", ""},
		}, false,
	},
	{
		"to the node's other address", "client", "10.1.0.2", "10.2.0.1", []kernelHook{
			{netfilter.Prerouting, "vea", ""}, {netfilter.Input, "vea", ""},
		}, false,
	},
	{
		"from the node", "node", "10.2.0.1", "10.2.0.2", []kernelHook{
			{netfilter.Output, "", "veb"}, {netfilter.Postrouting, "", "veb"},
		}, true,
	},
	{
		"node to itself", "node", "10.1.0.1", "10.1.0.1",
		[]kernelHook{{netfilter.Output, "", "lo"}, {netfilter.Postrouting, "", "lo"}, {netfilter.Prerouting, "lo", ""}, {
			netfilter.Input, "lo", "",
		}},
		true,
	},
}

// kernelScript makes a node between a client and a server that answers nothing (processes in their namespaces), and
// sends packets one by one. Its argument are lines of "namespace protocol address"; the rules come on standard input. A
// SYN without an answer is sent again after a second, and that is another packet: each is given up well before.
const kernelScript = `
set -e
cat >/dev/shm/rules.$$
trap 'rm -f /dev/shm/rules.$$' EXIT
at() { pid=$1; shift; nsenter -t $pid -n "$@"; }
ip link set lo up
ip link add vea type veth peer name eth0 netns $client
ip link add veb type veth peer name eth0 netns $server
ip addr add 10.1.0.1/24 dev vea; ip addr add 10.2.0.1/24 dev veb
ip link set vea up; ip link set veb up
at $client ip addr add 10.1.0.2/24 dev eth0; at $client ip link set eth0 up
at $client ip route add default via 10.1.0.1
at $server ip addr add 10.2.0.2/24 dev eth0; at $server ip link set eth0 up
at $server ip route add default via 10.2.0.1
at $server iptables-nft -P INPUT DROP
sysctl -qw net.ipv4.ip_forward=1
ipset create pods hash:net; ipset add pods 10.1.0.0/24; ipset create seen hash:ip
ip -j addr; echo; echo ROUTE; ip -j route show table all; echo
while read -r ns proto addr; do
	iptables-$BACKEND-restore </dev/shm/rules.$$
	pid=$$; [ $ns = node ] || pid=$client
	at $pid timeout 0.6 bash -c "echo x >/dev/$proto/$addr/80" 2>/dev/null || true
	echo SENT; iptables-$BACKEND-save -c
done <<END
$1
END
`

type kernelRule struct{ only, text string }

// at tells whether a rule may stand at a hook of a table.
func (r kernelRule) at(table string, h netfilter.Hook) bool {
	switch r.only {
	case "", table:
		return true
	case "raw", "mangle":
		return false
	}
	return strings.ContainsRune(r.only, rune("pifot"[h]))
}

func readKernelRules() (rules []kernelRule) {
	for line := range strings.SplitSeq(strings.TrimSpace(kernelRules), "\n") {
		r := kernelRule{text: line}
		if line[0] != '-' && line[0] != '!' {
			r.only, r.text, _ = strings.Cut(line, " ")
		}
		rules = append(rules, r)
	}
	return rules
}

var kernelTables = map[string][]netfilter.Hook{
	"raw":    {netfilter.Prerouting, netfilter.Output},
	"mangle": {netfilter.Prerouting, netfilter.Input, netfilter.Forward, netfilter.Output, netfilter.Postrouting},
}

// kernelDump has every rule at every hook where it may stand; what comes to the node is dropped at the end.
func kernelDump(rules []kernelRule) string {
	var b strings.Builder
	for _, table := range []string{"raw", "mangle"} {
		fmt.Fprintf(&b, "*%s\n", table)
		for _, h := range kernelTables[table] {
			fmt.Fprintf(&b, ":%s ACCEPT [0:0]\n:T-%s - [0:0]\n-A %s -j T-%s\n", h, h, h, h)
		}
		for _, h := range kernelTables[table] {
			for _, r := range rules {
				if r.at(table, h) {
					fmt.Fprintf(&b, "-A T-%s %s\n", h, r.text)
				}
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String() + "*filter\n:INPUT DROP [0:0]\nCOMMIT\n"
}

// TestAgainstTheKernel sends packets through rules and compares what the ops say with what the kernel counted.
func TestAgainstTheKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, tool := range []string{"nsenter", "ip", "ipset", "bash", "timeout"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	for _, backend := range []netfilter.Backend{netfilter.BackendNFT, netfilter.BackendLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			if _, err := exec.LookPath("iptables-" + string(backend) + "-restore"); err != nil {
				t.Skip(err)
			}
			rules := loadable(t, backend, readKernelRules())
			againstTheKernel(t, backend, rules)
			const notrack = "-j CT --notrack"
			againstTheKernel(t, backend, slices.DeleteFunc(rules, func(r kernelRule) bool { return r.text == notrack }))
		})
	}
}

func againstTheKernel(t *testing.T, backend netfilter.Backend, rules []kernelRule) {
	t.Helper()
	type probe struct {
		path  kernelPath
		proto uint8
	}
	var probes []probe
	var sends []string
	for _, p := range kernelPaths {
		for _, proto := range []uint8{netfilter.TCP, netfilter.UDP} {
			name := map[uint8]string{netfilter.TCP: "tcp", netfilter.UDP: "udp"}[proto]
			probes = append(probes, probe{p, proto})
			sends = append(sends, p.send+" "+name+" "+p.dst)
		}
	}
	parts := strings.Split(runKernel(t, backend, strings.Join(sends, "\n"), kernelDump(rules)), "SENT\n")
	if len(parts) != len(sends)+1 {
		t.Fatalf("%d of %d packets were sent:\n%s", len(parts)-1, len(sends), parts)
	}
	addr, route, _ := strings.Cut(parts[0], "ROUTE\n")
	network, errs := host.Parse(host.Files{
		Addr: []byte(addr), Route4: []byte(route), Time: host.FormatClock(host.Clock{Now: time.Now()}),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	total := 0
	for i, p := range probes {
		compared, passed := compareCounters(t, &p.path, p.proto, network, parts[i+1])
		if passed == 0 {
			t.Errorf("%s: the packet did not come by", p.path.name)
		}
		total += compared
	}
	t.Logf("%d answers compared", total)
}

var failedLine = regexp.MustCompile(`line:? (\d+)`)

// loadable drops the rules that this kernel, or this iptables, does not take.
func loadable(t *testing.T, backend netfilter.Backend, rules []kernelRule) []kernelRule {
	t.Helper()
	for range 20 {
		dump := kernelDump(rules)
		cmd := testutil.Unshared(t, "sh", "-c", "ipset create pods hash:net; ipset create seen hash:ip; exec iptables-"+
			string(backend)+"-restore")
		cmd.Stdin = strings.NewReader(dump)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return rules
		}
		m := failedLine.FindSubmatch(out)
		if m == nil {
			t.Skipf("the rules cannot be loaded: %s", out)
		}
		n, _ := strconv.Atoi(string(m[1]))
		line := strings.Split(dump, "\n")[n-1]
		_, bad, _ := strings.Cut(strings.TrimPrefix(line, "-A "), " ")
		kept := slices.DeleteFunc(slices.Clone(rules), func(r kernelRule) bool { return r.text == bad })
		if len(kept) == len(rules) {
			t.Skipf("the rules cannot be loaded: %s\n%s", out, line)
		}
		t.Logf("not taken: %s: %s", bad, bytes.TrimSpace(out))
		rules = kept
	}
	t.Skip("too many rules are not taken")
	return nil
}

func runKernel(t *testing.T, backend netfilter.Backend, sends, rules string) string {
	t.Helper()
	cmd := testutil.Unshared(t, "bash", "-c", kernelScript, "sh", sends)
	cmd.Env = append(os.Environ(), "BACKEND="+string(backend), "client="+testutil.NewNamespace(t).PID,
		"server="+testutil.NewNamespace(t).PID)
	cmd.Stdin = strings.NewReader(rules)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return string(out)
}

// podNet is the set that the script makes.
type podNet struct{}

func (podNet) Match(c *netfilter.Context, _ string, flags []string) (in, known bool, why string) {
	a := c.Packet.Dst
	if flags[0] == "src" {
		a = c.Packet.Src
	}
	return netip.MustParsePrefix("10.1.0.0/24").Contains(a), true, ""
}

// compareCounters runs a packet through the ops of a dump with counters. It returns how many answers were compared, and
// how often the kernel's packet came by.
func compareCounters(
	t *testing.T, path *kernelPath, proto uint8, network *host.Network, dump string,
) (compared, passed int) {
	t.Helper()
	tables := map[string]*netfilter.Table{}
	for _, tb := range parse(t, dump) {
		tables[tb.Name] = tb
	}
	p := netfilter.Packet{
		Family: netfilter.IPv4, Proto: proto, Src: netip.MustParseAddr(path.src),
		Dst: netip.MustParseAddr(path.dst), DstPort: 80, Local: path.local,
	}
	p.OrigSrc, p.OrigDst, p.OrigDstPort = p.Src, p.Dst, p.DstPort
	for _, at := range path.hooks {
		p.In, p.Out = at.in, at.out
		c := &netfilter.Context{
			Packet: &p, Hook: at.hook, Host: network, Sets: podNet{}, Recent: func(string) (bool, bool) { return false, true },
		}
		for _, table := range []string{"raw", "mangle"} {
			for _, ch := range tables[table].Chains {
				if ch.Name != "T-"+at.hook.String() {
					continue
				}
				counts := countersOf(t, dump, table, ch.Name)
				for i, r := range ch.Rules {
					got := outcome(c, r)
					passed += counts[i]
					if got == maybe {
						continue
					}
					compared++
					if (got == yes) != (counts[i] > 0) {
						t.Errorf("%s, protocol %d, %s %s: %s: the ops say %v, the kernel counted %d", path.name, proto, table, at.hook,
							r.Text, got == yes, counts[i])
					}
				}
			}
		}
	}
	return compared, passed
}

// countersOf returns the packet counters of a chain's rules.
func countersOf(t *testing.T, dump, table, chain string) (counts []int) {
	t.Helper()
	_, dump, _ = strings.Cut(dump, "\n*"+table+"\n")
	dump, _, _ = strings.Cut(dump, "\nCOMMIT")
	for line := range strings.SplitSeq(dump, "\n") {
		count, rule, ok := strings.Cut(line, "] -A ")
		if !ok || !strings.HasPrefix(rule+" ", chain+" ") {
			continue
		}
		n, _, _ := strings.Cut(strings.TrimPrefix(count, "["), ":")
		packets, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(line)
		}
		counts = append(counts, packets)
	}
	return counts
}

// outcome tells whether a rule's matches all match.
func outcome(c *netfilter.Context, r *netfilter.Rule) truth {
	answer := yes
	for _, op := range r.Ops {
		switch e := op.Run(c); {
		case e.Kind == netfilter.Break, e.Kind == netfilter.Chance && e.P == 0:
			return no
		case e.Kind == netfilter.Unknown, e.Kind == netfilter.Chance && e.P < 1:
			answer = maybe
		}
	}
	return answer
}
