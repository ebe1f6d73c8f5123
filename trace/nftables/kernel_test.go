// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nftables

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
)

// kernelRules are given to the kernel at every hook where it takes them, and to the ops; which of them a packet has
// passed the counter behind each tells.
const kernelRules = `
meta l4proto tcp
meta l4proto != tcp
meta l4proto { tcp, udp }
meta l4proto @alive
meta l4proto != @alive
meta l4proto @over
meta l4proto != @over
meta l4proto . th dport vmap @timed meta mark set meta mark
meta nfproto ipv4
meta protocol ip6
ip saddr 10.1.0.0/24
ip saddr != 10.1.0.0/24
ip saddr & 255.0.0.255 == 10.0.0.2
ip saddr { 10.1.0.0/24, 10.9.0.1-10.9.0.7, 10.2.0.1 }
ip saddr != { 10.1.0.0/24, 10.9.0.1-10.9.0.7 }
ip daddr 10.2.0.2
ip daddr < 10.2.0.2
ip6 daddr fd00:2::2
ip6 saddr != fd00:1::/64
iifname "vea"
iifname != "vea"
iifname "ve*"
iifname { "lo", "vea" }
oifname "veb"
oifname != "lo"
oifname @names
iif "lo"
oif != "veb"
tcp dport 80
tcp dport != 80
tcp dport 81-90
tcp dport >= 80
tcp dport < 80
th dport 80
udp dport { 53, 80-90 }
udp dport != { 53, 80-90 }
tcp sport 1024-65535
tcp flags syn
tcp flags & (fin|syn|rst|ack) == syn
tcp flags & (syn|ack) == (syn|ack)
tcp flags ! syn
tcp flags != ack
ct state new
ct state invalid
ct state established,related
ct state != established
ct state { new, untracked }
ct state untracked
ct state vmap { new : continue }
ct status dnat
ct status ! dnat
ct status confirmed
ct direction original
ct direction reply
ct mark 0
ct original ip daddr 10.2.0.2
ct original ip6 saddr fd00:1::2
ct original proto-dst 80
ct reply ip saddr 10.2.0.2
ct protocol tcp
ct l3proto ipv4
meta pkttype host
meta skuid 0
ip protocol tcp
ip6 nexthdr udp
ip version 4
ip hdrlength 5
exthdr frag exists
exthdr frag missing
fib daddr type local
fib saddr type local
fib daddr type unicast
fib daddr type != local
fib daddr type { local, unicast }
fib daddr . iif type local
fib saddr . iif oif missing
fib saddr . iif oif exists
fib saddr oif missing
fib saddr . iif oifname missing
fib daddr oifname "veb"
fib daddr oif != "vea"
ct zone 5
ct original zone != 5
ct reply zone 0
meta iifkind "veth"
meta oifkind "veth"
ip daddr . meta l4proto . th dport { 10.2.0.2 . tcp . 80, 10.2.0.1 . udp . 80 }
ip saddr . tcp dport @pairs
ip saddr . tcp dport != @pairs
ip saddr @nets
ip daddr != @nets
ip daddr vmap { 10.2.0.2 : continue }
ip saddr vmap { 10.1.0.0/24 : jump aside, 10.2.0.1 : continue }
meta mark set tcp dport map { 80 : 0x7 }
meta mark 0x7
meta mark set 0x4001
meta mark & 0x4000 != 0
meta mark set meta mark & 0xff
meta mark 0x1
ct mark set 0x30
ct mark 0x30
meta mark set ct mark
meta mark 0x30
meta mark set meta mark | 0x100
meta mark set meta mark ^ 0x30
meta mark 0x100
meta mark > 0xff
meta mark set 0
numgen random mod 1 == 0
numgen random mod 2 offset 4 < 4
counter name ip daddr map { 10.2.0.2 : "tally" }
counter name ip saddr map @tallies
meta priority set ip daddr map { 10.2.0.2 : 1:1 }
tcp option maxseg size set tcp dport map { 80 : 1000 }
add @full { ip saddr }
update @full { ip daddr }
jump aside
update @seen { ip saddr }
notrack
ct state untracked
`

// kernelChains are where the rules stand: name, hook and priority; raw is ahead of connection tracking.
var kernelChains = []struct {
	name, hook, priority string
	at                   netfilter.Hook
}{
	{"raw-prerouting", "prerouting", "-300", netfilter.Prerouting},
	{"prerouting", "prerouting", "-150", netfilter.Prerouting},
	{"input", "input", "0", netfilter.Input},
	{"forward", "forward", "0", netfilter.Forward},
	{"raw-output", "output", "-300", netfilter.Output},
	{"output", "output", "-150", netfilter.Output},
	{"postrouting", "postrouting", "0", netfilter.Postrouting},
}

const kernelSets = `
table inet t {
	set nets { type ipv4_addr; flags interval; elements = { 10.1.0.0/24, 10.9.0.0/16 } }
	set names { type ifname; flags interval; elements = { "veb", "x*" } }
	set pairs { type ipv4_addr . inet_service; flags interval; elements = { 10.1.0.0/24 . 80-90, 10.2.0.1 . 81 } }
	set alive { type inet_proto; flags timeout; elements = { tcp timeout 1h comment "for an hour" } }
	set over { type inet_proto; flags timeout; elements = { tcp timeout 1ms, udp timeout 1h } }
	map timed {
		type inet_proto . inet_service : verdict; flags timeout
		elements = { tcp . 80 timeout 1h comment "for an hour" : continue, udp . 80 timeout 1ms : continue }
	}
	set seen { type ipv4_addr; flags dynamic,timeout; timeout 1m; }
	set full { type ipv4_addr; size 1; flags dynamic; elements = { 10.2.0.2 } }
	counter tally { }
	map tallies { type ipv4_addr : counter; elements = { 10.2.0.2 : "tally" } }
	chain aside { meta mark set meta mark | 0x1000; }
}
`

// kernelScript makes a node between a client and a server that answers nothing, loads sets, chains and the rules that
// the kernel takes, and sends packets one by one. Its argument are lines of "namespace protocol address seconds", the
// time until the sender gives up; what is to be loaded comes on standard input: a ruleset, an empty line, and rules one
// by one. Where the sender lives for a second it sends its SYN again, whose connection is confirmed by then: only the
// first packet of each comes to the rules (net.ipv4.tcp_syn_retries is 1 at least).
const kernelScript = `
set -e
exec 3<&0
at() { pid=$1; shift; nsenter -t $pid -n "$@"; }
ip link set lo up
ip link add vea type veth peer name eth0 netns $client
ip link add veb type veth peer name eth0 netns $server
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip addr add 10.1.0.1/24 dev vea; ip addr add 10.2.0.1/24 dev veb
ip addr add fd00:1::1/64 dev vea nodad; ip addr add fd00:2::1/64 dev veb nodad
ip link set vea up; ip link set veb up
at $client ip addr add 10.1.0.2/24 dev eth0; at $client ip addr add fd00:1::2/64 dev eth0 nodad
at $client ip link set eth0 up
at $client ip route add default via 10.1.0.1; at $client ip route add default via fd00:1::1
at $server ip addr add 10.2.0.2/24 dev eth0; at $server ip addr add fd00:2::2/64 dev eth0 nodad
at $server ip link set eth0 up
at $server ip route add default via 10.2.0.1; at $server ip route add default via fd00:2::1
at $server nft 'add table inet s; add chain inet s i { type filter hook input priority 0; policy accept; }
add rule inet s i meta l4proto { tcp, udp } drop'
# What comes to the node is dropped behind the rules, so that nothing is answered.
sets=""
while IFS= read -r line <&3 && [ "$line" != "END" ]; do sets="$sets
$line"; done
echo "$sets" | nft -f -
while IFS= read -r line <&3; do nft add rule inet t $line 2>/dev/null || true; done
nft 'add table inet last; add chain inet last i { type filter hook input priority 100; policy accept; }
add rule inet last i meta l4proto { tcp, udp } drop'
for pid in $client $$; do
	at $pid nft 'add table inet once; add set inet once sent { type inet_proto . inet_service; flags dynamic; size 64; }
add chain inet once o { type filter hook output priority -1000; policy accept; }
add rule inet once o meta l4proto . th sport @sent drop
add rule inet once o meta l4proto { tcp, udp } add @sent { meta l4proto . th sport }'
done
sleep 1 # until the links are up, and nothing of IPv6's own is under way
at $client ping -qc1 -W2 10.2.0.2 >/dev/null 2>&1 || true
at $client ping -qc1 -W2 fd00:2::2 >/dev/null 2>&1 || true
ping -qc1 -W2 10.2.0.2 >/dev/null 2>&1 || true
ping -qc1 -W2 fd00:2::2 >/dev/null 2>&1 || true
ip -j addr; echo; echo PART; ip -j route show table all; echo; echo PART; ip -j -6 route show table all; echo; echo PART
nft -j list table inet t
while read -r ns proto addr seconds; do
	pid=$$; [ $ns = node ] || pid=$client
	at $pid nft flush set inet once sent
	at $pid timeout $seconds bash -c "echo x >/dev/$proto/$addr/80" 2>/dev/null || true
	echo PART; nft -j list table inet t
done <<PROBES
$1
PROBES
`

// A kernelPath is the path of one packet: the chains that it passes, and its interfaces there.
type kernelPath struct {
	name     string
	send     string // the namespace: client, or node
	src, dst string
	chains   []kernelHook
	local    bool
}

type kernelHook struct{ chain, in, out string }

var (
	through = []kernelHook{
		{"raw-prerouting", "vea", ""}, {"prerouting", "vea", ""}, {"forward", "vea", "veb"}, {"postrouting", "vea", "veb"},
	}
	inward  = []kernelHook{{"raw-prerouting", "vea", ""}, {"prerouting", "vea", ""}, {"input", "vea", ""}}
	outward = []kernelHook{{"raw-output", "", "veb"}, {"output", "", "veb"}, {"postrouting", "", "veb"}}
	itself  = []kernelHook{
		{"raw-output", "", "lo"},
		{"output", "", "lo"},
		{"postrouting", "", "lo"},
		{"raw-prerouting", "lo", ""},
		{"prerouting", "lo", ""},
		{"input", "lo", ""},
	}
	kernelPaths = []kernelPath{
		{"through", "client", "10.1.0.2", "10.2.0.2", through, false},
		{"to the node", "client", "10.1.0.2", "10.1.0.1", inward, false},
		{"to the node's other address", "client", "10.1.0.2", "10.2.0.1", inward, false},
		{"from the node", "node", "10.2.0.1", "10.2.0.2", outward, true},
		{"node to itself", "node", "10.1.0.1", "10.1.0.1", itself, true},
		{"IPv6 through", "client", "fd00:1::2", "fd00:2::2", through, false},
		{"IPv6 to the node", "client", "fd00:1::2", "fd00:2::1", inward, false},
		{"IPv6 from the node", "node", "fd00:2::1", "fd00:2::2", outward, true},
	}
)

// TestAgainstTheKernel sends packets through rules and compares what the ops say with what the kernel counted.
func TestAgainstTheKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, tool := range []string{"nsenter", "ip", "nft", "bash", "timeout", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	rules := strings.Split(strings.TrimSpace(kernelRules), "\n")
	t.Run("tracked", func(t *testing.T) { againstTheKernel(t, rules[:len(rules)-2]) })
	t.Run("untracked", func(t *testing.T) { againstTheKernel(t, rules) })
}

func againstTheKernel(t *testing.T, rules []string) {
	t.Helper()
	var in, sends strings.Builder
	in.WriteString(kernelSets + "table inet t {\n")
	for _, c := range kernelChains {
		in.WriteString("\tchain " + c.name + " { type filter hook " + c.hook + " priority " + c.priority + "; }\n")
	}
	in.WriteString("}\nEND\n")
	for _, c := range kernelChains {
		in.WriteString(c.name + " meta l4proto ipv6-icmp accept\n") // IPv6's own
		for _, r := range rules {
			if r == "notrack" && !strings.HasPrefix(c.name, "raw-") {
				continue
			}
			in.WriteString(c.name + " " + strings.ReplaceAll(counted(r), `"`, "") + "\n")
		}
	}
	type probe struct {
		path  *kernelPath
		proto uint8
	}
	var probes []probe
	for i := range kernelPaths {
		for proto, name := range map[uint8]string{netfilter.TCP: "tcp", netfilter.UDP: "udp"} {
			probes = append(probes, probe{&kernelPaths[i], proto})
			seconds := "0.3"
			if i == len(kernelPaths)-1 {
				seconds = "1.5" // it sends its SYN twice
			}
			sends.WriteString(kernelPaths[i].send + " " + name + " " + kernelPaths[i].dst + " " + seconds + "\n")
		}
	}
	cmd := testutil.Unshared(t, "bash", "-c", kernelScript, "sh", strings.TrimSpace(sends.String()))
	cmd.Env = append(os.Environ(), "client="+testutil.NewNamespace(t).PID, "server="+testutil.NewNamespace(t).PID)
	cmd.Stdin = strings.NewReader(in.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	parts := strings.Split(string(out), "PART\n")
	if len(parts) != len(probes)+4 {
		t.Fatalf("%d parts for %d packets:\n%.3000s", len(parts), len(probes), out)
	}
	network, errs := host.Parse(host.Files{Addr: []byte(parts[0]), Route4: []byte(parts[1]), Route6: []byte(parts[2])})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	compared, unsure := 0, 0
	for i, p := range probes {
		c, u := compareCounters(t, p.path, p.proto, network, parts[i+3], parts[i+4])
		compared, unsure = compared+c, unsure+u
	}
	t.Logf("%d answers compared, %d not known", compared, unsure)
	if compared < 10*unsure {
		t.Error("too few answers are known")
	}
}

// counted puts a counter behind a rule, and in front of what ends it.
func counted(r string) string {
	if strings.HasPrefix(r, "jump ") || strings.Contains(r, "jump aside,") {
		return "counter " + r
	}
	return r + " counter"
}

// packetCounts returns the counts of a listing, by chain, in the order of the rules.
func packetCounts(t *testing.T, listing string) map[string][]int {
	t.Helper()
	var all struct {
		Objects []struct {
			Rule *struct {
				Chain string           `json:"chain"`
				Expr  []map[string]any `json:"expr"`
			} `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(listing), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string][]int{}
	for _, o := range all.Objects {
		if o.Rule == nil {
			continue
		}
		n := 0
		for _, e := range o.Rule.Expr {
			if c, ok := e["counter"].(map[string]any); ok {
				packets, _ := c["packets"].(float64)
				n = int(packets)
			}
		}
		out[o.Rule.Chain] = append(out[o.Rule.Chain], n)
	}
	return out
}

// compareCounters runs a packet through the ops of the rules as they were before it, and compares with what was
// counted.
func compareCounters(
	t *testing.T, path *kernelPath, proto uint8, network *host.Network, before, after string,
) (compared, unsure int) {
	t.Helper()
	tables, err := Parse([]byte(before), nil)
	if err != nil {
		t.Fatal(err)
	}
	rs := &netfilter.Ruleset{Tables: tables}
	rs.Link()
	was, is := packetCounts(t, before), packetCounts(t, after)
	src := netip.MustParseAddr(path.src)
	p := netfilter.Packet{
		Family: netfilter.FamilyOf(src), Proto: proto, Src: src, Dst: netip.MustParseAddr(path.dst), DstPort: 80,
		Local: path.local,
	}
	p.OrigSrc, p.OrigDst, p.OrigDstPort = p.Src, p.Dst, p.DstPort
	for _, at := range path.chains {
		ch := tables[0].Chain(at.chain)
		p.In, p.Out = at.in, at.out
		c := &netfilter.Context{Packet: &p, Hook: ch.Base.Hook, Base: ch.Base, Host: network}
		came := false
		for i, r := range ch.Rules {
			n := is[at.chain][i] - was[at.chain][i]
			came = came || n > 0
			got := outcome(t, c, r)
			if got == op.Maybe {
				unsure++
				continue
			}
			compared++
			if n > 1 {
				t.Errorf("%s, protocol %d, %s: %s: the kernel counted %d packets of one", path.name, proto, at.chain, r.Text, n)
			}
			if (got == op.Yes) != (n > 0) {
				t.Errorf("%s, protocol %d, %s: %s: the ops say %v, the kernel counted %d",
					path.name, proto, at.chain, r.Text, got == op.Yes, n)
			}
		}
		if !came {
			t.Errorf("%s, protocol %d: the packet did not come to %s", path.name, proto, at.chain)
		}
	}
	return compared, unsure
}

// outcome runs a rule until it breaks off, and tells whether its counter is met; jumps are followed for what they do to
// the packet.
func outcome(t *testing.T, c *netfilter.Context, r *netfilter.Rule) op.Truth {
	t.Helper()
	answer := op.Yes
	for _, o := range r.Ops {
		switch e := o.Run(c); e.Kind {
		case netfilter.Next:
		case netfilter.Break:
			if strings.HasPrefix(r.Text, "counter ") && !strings.HasPrefix(r.Text, "counter name ") {
				return answer
			}
			return op.No
		case netfilter.Jump:
			for _, inner := range e.Chain.Rules {
				outcome(t, c, inner)
			}
		case netfilter.Chance:
			switch e.P {
			case 0:
				return op.No
			case 1:
			default:
				answer = op.Maybe
			}
		case netfilter.Unknown:
			answer = op.Maybe
		default:
			t.Errorf("%s: effect %d", r.Text, e.Kind)
		}
	}
	return answer
}
