// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// testNetwork is what is known of the node.
var testNetwork = sync.OnceValues(func() (*host.Network, []error) {
	return host.Parse(host.Files{
		Addr: []byte(
			`[{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,"scope":"global"}]},
				{"ifname":"eth0.7"},{"ifname":"br0"},{"ifname":"veth1","master":"br0"}]`),
		Route4: []byte(`[{"dst":"10.0.0.0/24",
				"dev":"eth0","protocol":"kernel","scope":"link","prefsrc":"10.0.0.1"},{"dst":"10.244.1.0/24","dev":"cni0"}]`),
	})
})

// testContext is the first packet of a TCP connection from a pod to 10.96.0.1:80, coming in by cni0.
func testContext(t testing.TB) *netfilter.Context {
	t.Helper()
	n, errs := testNetwork()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	p := &netfilter.Packet{
		Family: netfilter.IPv4, Proto: netfilter.TCP, Src: netip.MustParseAddr("10.244.1.5"),
		Dst:     netip.MustParseAddr("10.96.0.1"),
		DstPort: 80, In: "cni0", Mark: 0x4001, CTMark: 0x10,
	}
	p.OrigSrc, p.OrigDst, p.OrigDstPort = p.Src, p.Dst, p.DstPort
	return &netfilter.Context{Packet: p, Host: n, Recent: func(list string) (bool, bool) {
		return list == "KUBE-SEP-B", strings.HasPrefix(list, "KUBE-SEP-")
	}, Sets: testSets{}}
}

type testSets struct{}

func (testSets) Match(_ *netfilter.Context, set string, flags []string) (in, known bool, why string) {
	return set == "pods" && flags[0] == "src", set != "gone", "it was not collected"
}

func answer(t *testing.T, c *netfilter.Context, rule string) string {
	t.Helper()
	return answerIn(t, c, "nat", rule)
}

// answerIn runs a rule's ops and says how they end: "matches", "no", "chance 0.5", "unknown", or the verdict.
func answerIn(t *testing.T, c *netfilter.Context, table, rule string) string {
	t.Helper()
	ts, err := Parse([]byte("*"+table+"\n:X - [0:0]\n:CHAIN - [0:0]\n-A X "+rule+"\nCOMMIT\n"), netfilter.IPv4,
		netfilter.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	unknown := ""
	for _, op := range ts[0].Chains[0].Rules[0].Ops {
		switch e := op.Run(c); e.Kind {
		case netfilter.Next:
		case netfilter.Break:
			return "no"
		case netfilter.Chance:
			return fmt.Sprintf("chance %.11g", e.P)
		case netfilter.Unknown:
			if e.Why == "" {
				t.Errorf("%s is unknown without a reason", rule)
			}
			unknown = "unknown"
		case netfilter.Opaque:
			return "opaque"
		case netfilter.Split:
			s := fmt.Sprintf("split %g:", e.Alts[0].P)
			for _, a := range e.Alts {
				s += fmt.Sprintf(" %s:%d", a.Packet.Dst, a.Packet.DstPort)
			}
			return s
		default:
			return map[netfilter.Kind]string{
				netfilter.Accept: "accept", netfilter.Drop: "drop", netfilter.Reject: "reject", netfilter.Queue: "queue",
				netfilter.Stolen: "stolen", netfilter.Return: "return", netfilter.Jump: "jump", netfilter.Goto: "goto",
			}[e.Kind]
		}
	}
	if unknown != "" {
		return unknown
	}
	return "matches"
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct{ rule, want string }{
		{"", "matches"},
		{"-s 10.244.0.0/16", "matches"},
		{"! -s 10.244.0.0/16", "no"},
		{"-s 10.244.1.5/32 -d 10.96.0.1/32", "matches"},
		{"-d 10.96.0.2/32", "no"},
		{"-s 10.244.0.0/255.255.0.255", "no"},
		{"-s 10.0.1.0/255.0.255.0", "matches"},
		{"-s 0.0.0.0/0", "matches"},
		{"! -s 0.0.0.0/0", "no"},
		{"-s 10.244.0.0/33", "unknown"},
		{"-s what", "unknown"},
		{"-s 10.244.0.0/16 -s 10.244.0.0/16", "unknown"},
		{"-i cni0", "matches"},
		{"-i cni+", "matches"},
		{"-i eth0", "no"},
		{"! -i eth0", "matches"},
		{"-i +", "matches"},
		{"-o eth0", "no"},
		{"! -o eth0", "matches"},
		{"-p tcp", "matches"},
		{"-p udp", "no"},
		{"! -p udp", "matches"},
		{"-p 6", "matches"},
		{"-p all", "matches"},
		{"-p nonsense", "unknown"},
		{"-m tcp -p tcp --dport 80", "unknown"},
		{"-m tcp --dport 80 -p tcp -d 10.96.0.1/32", "matches"},
		{"-m tcp --dport 80 ! -s 10.244.1.5/32 -i cni0", "no"},
		{`-m comment --comment x -d 10.96.0.2/32`, "no"},
		{"-m mark ! --mark 0x1/0x1 ! -d 10.96.0.2/32", "no"},
		{"-f", "no"},
		{"! -f", "matches"},
		{"-p tcp -m tcp --dport 80", "matches"},
		{"-p tcp -m tcp --dport 80:90", "matches"},
		{"-p tcp -m tcp ! --dport 80", "no"},
		{"-p tcp -m tcp --dport :79", "no"},
		{"-p tcp -m tcp --sport 1024:65535", "unknown"},
		{"-p tcp -m tcp --sport 1:65535", "matches"},
		{"-p tcp -m tcp --sport 53", "unknown"},
		{"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "matches"},
		{"-p tcp -m tcp --tcp-flags RST,FIN RST", "no"},
		{"-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN", "no"},
		{"-p tcp -m tcp --tcp-flags ALL NONE", "no"},
		{"-p tcp -m tcp --tcp-flags RST NONE", "matches"},
		{"-p tcp -m tcp --tcp-flags FIN,SYN,ACK SYN,ACK", "no"},
		{"-p tcp -m tcp --tcp-flags TOMORROW SYN", "unknown"},
		{"-p tcp -m tcp --syn", "matches"},
		{"-p tcp -m tcp --dport 80 --syn", "matches"},
		{"-p tcp -m tcp --dport 81 --tcp-flags SYN,ACK SYN", "no"},
		{"-p tcp -m tcp --tcp-option 5", "unknown"},
		{"-p tcp -m tcp --dport 81 --tcp-option 5", "no"},
		{"-p tcp -m tcp --dport 90:80", "unknown"},
		{"-p tcp -m tcp --dport http", "unknown"},
		{"-p tcp -m tcp --sport 0", "no"},
		{"-p tcp -m tcp ! --sport 1:65535", "no"},
		{"-p tcp -m tcp --sport :65535", "matches"},
		{"-p sctp -m sctp --dport 80 --chunk-types any INIT", "no"},
		{"-p dccp -m dccp --dccp-types REQUEST", "no"},
		{"-p udp -m udp --dport 80", "no"},
		{"-m udp --dport 80", "no"},
		{"-p tcp -m tcp --option-of-tomorrow 7", "unknown"},
		{`-m comment --comment "a \" -j DROP"`, "matches"},
		{"-m nfacct --nfacct-name  ct_state_invalid_dropped_pkts", "matches"},
		{"-m nfacct --nfacct-name  localhost_nps_accepted_pkts", "matches"},
		{"-m nfacct --nfacct-name  ct_state", "unknown"},
		{"-m conntrack --ctstate NEW", "matches"},
		{"-m conntrack --ctstate RELATED,ESTABLISHED", "no"},
		{"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", "matches"},
		{"-m conntrack --ctstate INVALID", "no"},
		{"-m conntrack --ctstate TOMORROW", "unknown"},
		{"-m state --state NEW,RELATED", "matches"},
		{"-m conntrack --ctorigdst 10.96.0.1", "matches"},
		{"-m conntrack --ctorigdst 10.96.0.0/16 ! --ctorigsrc 10.244.0.0/16", "no"},
		{"-m conntrack --ctproto 6 --ctorigdstport 80", "matches"},
		{"-m conntrack --ctreplsrc 10.96.0.1 --ctrepldst 10.244.1.5 --ctreplsrcport 80", "matches"},
		{"-m conntrack --ctorigsrcport 1024:2048", "unknown"},
		{"-m conntrack --ctrepldstport 1:65535", "matches"},
		{"-m conntrack --ctstatus ASSURED", "no"},
		{"-m conntrack ! --ctstatus CONFIRMED", "matches"},
		{"-m conntrack --ctstatus TOMORROW", "unknown"},
		{"-m conntrack --ctstate DNAT", "no"},
		{"-m conntrack --ctstate NEW --ctdir REPLY", "no"},
		{"-m conntrack --ctdir ORIGINAL", "matches"},
		{"-m conntrack --ctstate NEW --tomorrow", "unknown"},
		{"-m state ! --state INVALID", "matches"},
		{"-m conntrack --ctdir REPLY", "no"},
		{"-m conntrack --ctexpire 1:2", "unknown"},
		{"-m mark --mark 0x4000/0x4000", "matches"},
		{"-m mark ! --mark 0x4000/0x4000", "no"},
		{"-m mark --mark 0x4001", "matches"},
		{"-m mark --mark 0x1", "no"},
		{"-m mark --mark what", "unknown"},
		{"-m connmark --mark 0x10/0xf0", "matches"},
		{"-m addrtype --dst-type LOCAL", "no"},
		{"-m addrtype ! --dst-type LOCAL", "matches"},
		{"-m addrtype --src-type UNICAST", "matches"},
		{"-m addrtype --dst-type TOMORROW", "unknown"},
		{"-m addrtype --dst-type LOCAL --limit-iface-in", "no"},
		{"-m addrtype --dst-type UNICAST,LOCAL --limit-iface-in", "matches"},
		{"-m addrtype --dst-type ANYCAST", "no"},
		{"-m addrtype ! --src-type LOCAL --dst-type LOCAL", "no"},
		{"-m addrtype --limit-iface-tomorrow", "unknown"},
		{"-p tcp -m multiport --dports 22,80:90", "matches"},
		{"-p tcp -m multiport --dports 22,443", "no"},
		{"-p tcp -m multiport ! --dports 22,443", "matches"},
		{"-p tcp -m multiport --sports 22", "unknown"},
		{"-p tcp -m multiport --ports 80", "matches"},
		{"-p tcp -m multiport --ports 22", "unknown"},
		{"-p tcp -m multiport --dports 22,", "unknown"},
		{"-p tcp -m multiport --sports 1:65535", "matches"},
		{"-m statistic --mode random --probability 0.33333333349", "chance 0.33333333349"},
		{"-m statistic --mode random ! --probability 0.25", "chance 0.75"},
		{"-m statistic --mode nth --every 4 --packet 0", "chance 0.25"},
		{"-m statistic --mode tomorrow", "unknown"},
		{"-m statistic --mode nth ! --every 4 --packet 0", "chance 0.75"},
		{"-m statistic --mode nth --every 0", "unknown"},
		{"-m statistic --mode nth --probability 0.5", "unknown"},
		{"-m statistic --mode random --probability NaN", "unknown"},
		{"-m statistic --mode random --probability 7", "unknown"},
		{"-m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-A --mask 255.255.255.255 --rsource", "no"},
		{"-m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-B --mask 255.255.255.255 --rsource", "matches"},
		{"-m recent --update --seconds 60 --hitcount 4 --name SSH --mask 255.255.255.255 --rsource", "unknown"},
		{"-m recent --set --name SSH --mask 255.255.255.255 --rsource", "matches"},
		{"-m recent --rcheck --name KUBE-SEP-B --mask 255.255.255.255 --rdest", "unknown"},
		{"-m recent --set --name KUBE-SEP-B --mask 255.255.255.255 --rdest", "matches"},
		{"-m recent ! --set --name SSH", "no"},
		{"-m recent ! --rcheck --name KUBE-SEP-A --rsource", "matches"},
		{"-m recent --update --hitcount 2 --name KUBE-SEP-B --rsource", "unknown"},
		{"-m recent --update --hitcount 2 --name KUBE-SEP-A --rsource", "no"},
		{"-m recent --rcheck --rttl --name KUBE-SEP-B", "unknown"},
		{"-m recent --rcheck --name KUBE-SEP-A --mask 255.255.255.0", "unknown"},
		{"-m recent --rcheck --name KUBE-SEP-B --mask 255.255.255.0", "matches"},
		{"-m recent --set --name L --rsource -m recent --rcheck --name L --rsource", "matches"},
		{"-m recent --remove --name KUBE-SEP-B -m recent --rcheck --name KUBE-SEP-B", "no"},
		{"-m recent --name X", "unknown"},
		{"-m recent --set --tomorrow", "unknown"},
		{"-m recent --set --name L --rsource -m tcp --dport 81", "no"},
		{"-m set --match-set pods src", "matches"},
		{"-m set ! --match-set pods src", "no"},
		{"-m set --match-set pods dst", "no"},
		{"-m set --match-set gone src", "unknown"},
		{"-m set --match-set pods src --return-nomatch", "unknown"},
		{"-m set --match-set pods src ! --update-counters", "matches"},
		{"-m set --match-set pods src --packets-gt 3", "unknown"},
		{"-m set --match-set pods dst --packets-gt 3", "no"},
		{"-m set --match-set pods", "unknown"},
		{"-m set --match-set pods src --tomorrow", "unknown"},
		{"-m iprange --src-range 10.244.1.1-10.244.1.9", "matches"},
		{"-m iprange ! --dst-range 10.96.0.0-10.96.255.255", "no"},
		{"-p icmp -m icmp --icmp-type 8", "no"},
		{"-m icmp --icmp-type 8", "no"},
		{"-m icmp6 --icmpv6-type 1", "no"},
		{"-m pkttype --pkt-type unicast", "matches"},
		{"-m pkttype --pkt-type broadcast", "no"},
		{"-m pkttype --pkt-type tomorrow", "unknown"},
		{"-m frag --fragfirst", "no"},
		{"-m rt ! --rt-type 0", "no"},
		{"-m ipvs --vproto 6 --vaddr 10.96.0.1 --vport 80", "no"},
		{"-m ipvs --ipvs", "no"},
		{"-m ipvs ! --ipvs", "matches"},
		{"-m ipvs ! --vport 80", "no"},
		{"-m ipvs --tomorrow", "unknown"},
		{"-m helper ! --helper ftp", "matches"},
		{"-p udp -m tcpmss --mss 1:2", "no"},
		{"-m iprange --src-range what", "unknown"},
		{"-m connmark ! --mark 0x10", "no"},
		{"-m mark --mark 010", "no"},
		{"-m limit --limit 5/min", "unknown"},
		{"-m physdev --physdev-in veth1", "unknown"},
		{"-m mac --mac-source 00:11:22:33:44:55", "unknown"},
		{"-m owner --uid-owner 0", "no"},
		{"-m owner ! --uid-owner 0 ! --gid-owner 0", "matches"},
		{"-m owner ! --socket-exists", "matches"},
		{"-m cgroup --cgroup 7", "unknown"},
		{"-m socket --transparent", "unknown"},
		{"-m ttl --ttl-eq 64", "unknown"},
		{"-m ttl --ttl-lt 2", "no"},
		{"-m hl ! --hl-eq 1", "matches"},
		{"-m hl --hl-gt 254", "unknown"},
		{"-m u32 --u32 0x0=0x1", "unknown"},
		{"-m rpfilter --invert", "no"},
		{"-m rpfilter", "matches"},
		{"-m rpfilter --loose --validmark --accept-local --invert", "no"},
		{"-m rpfilter --tomorrow", "unknown"},
		{"-m policy --dir in --pol none", "unknown"},
		{"-m hashlimit --hashlimit-upto 1/sec --hashlimit-name x", "unknown"},
		{"-m fancy --magic 7 ! --deep thought", "unknown"},
		{"-m", "unknown"},
		{"!", "unknown"},
		{"! -m", "unknown"},
		{"-m comment --comment -j -j DROP", "drop"},
		{"-m comment --comment -m", "matches"},
		{"-m comment --comment a --tomorrow", "unknown"},
		{"-m mark !", "unknown"},
		{"-m mark ! -j DROP", "drop"},
		{"! -j DROP", "drop"},
		{"-m tcp --dport 80 -p tcp -d 10.96.0.1 ! -i eth0 -m mark --mark 0x4001 -s 10.244.0.0/16", "matches"},
		{"-m comment --comment x ! -d 10.96.0.1", "no"},
		{"-m fancy --magic ! -d 10.96.0.1", "no"},
		{"-m mark ! -m mark", "unknown"},
		{"-m comment --comment -d -d 10.96.0.1", "matches"},
		{`"stray"`, "unknown"},
		{"--stray 7", "unknown"},
	} {
		if got := answer(t, testContext(t), tt.rule); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

// A message that a packet was too large: its type and code, and the state RELATED from its beginning.
func TestMessageAboutAPacket(t *testing.T) {
	message := func(c *netfilter.Context) {
		p := c.Packet
		p.Proto, p.Type, p.Turn, p.Local = netfilter.ICMP, netfilter.Unreachable, netfilter.Reply, true
		p.Conn, p.Tracking, c.Hook = &netfilter.Connection{DNAT: true}, netfilter.Found, netfilter.Output
	}
	for _, tt := range []struct{ table, rule, want string }{
		{"filter", "-p icmp", "matches"},
		{"filter", "-p tcp", "no"},
		{"filter", "-p icmp -m icmp --icmp-type any", "matches"},
		{"filter", "-p icmp -m icmp --icmp-type 3", "matches"},
		{"filter", "-p icmp -m icmp --icmp-type 3/4", "matches"},
		{"filter", "-p icmp -m icmp --icmp-type fragmentation-needed", "matches"},
		{"filter", "-p icmp -m icmp --icmp-type destination-unreachable", "matches"},
		{"filter", "-p icmp -m icmp --icmp-type 3/3", "no"},
		{"filter", "-p icmp -m icmp --icmp-type host-unreachable", "no"},
		{"filter", "-p icmp -m icmp --icmp-type 8", "no"},
		{"filter", "-p icmp -m icmp ! --icmp-type 8", "matches"},
		{"filter", "-p icmp -m icmp ! --icmp-type 3/4", "no"},
		{"filter", "-p icmp -m icmp --icmp-type 300", "unknown"},
		{"filter", "-p icmp -m icmp --icmp-type 3/x", "unknown"},
		{"filter", "-p icmp -m icmp --icmp-type tomorrow", "unknown"},
		{"filter", "-m conntrack --ctstate RELATED", "matches"},
		{"filter", "-m conntrack --ctstate ESTABLISHED", "no"},
		{"filter", "-m conntrack --ctstate NEW,INVALID", "no"},
		{"filter", "-m state --state RELATED,ESTABLISHED", "matches"},
		{"raw", "-m conntrack --ctstate RELATED", "matches"},
		{"filter", "-m conntrack --ctdir REPLY", "matches"},
	} {
		if got, _ := in(t, tt.table, tt.rule, message); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.table, tt.rule, got, tt.want)
		}
	}
	if _, c := in(t, "raw", "-p icmp -j CT --notrack", message); c.Packet.Untracked {
		t.Error("NOTRACK takes the connection away from a message about a packet of it")
	}
}

// in gives a rule to a packet that was changed by f, and says how it ends.
func in(t *testing.T, table, rule string, f func(c *netfilter.Context)) (string, *netfilter.Context) {
	t.Helper()
	c := testContext(t)
	f(c)
	return answerIn(t, c, table, rule), c
}

func TestPlaceMatters(t *testing.T) {
	unknownSource := func(c *netfilter.Context) { c.Packet.Src = netip.Addr{} }
	local := func(c *netfilter.Context) {
		c.Hook, c.Packet.Local, c.Packet.In, c.Packet.Out = netfilter.Output, true, "", "eth0"
	}
	back := func(c *netfilter.Context) { c.Packet.Local, c.Packet.In = true, "lo" }
	untracked := func(c *netfilter.Context) { c.Packet.Untracked = true }
	nat := func(c *netfilter.Context) {
		c.Packet.DNAT, c.Packet.Dst, c.Packet.DstPort = true, netip.MustParseAddr("10.244.2.2"), 8080
	}
	same := func(c *netfilter.Context) { c.Packet.DNAT = true }
	from := func(dev string) func(c *netfilter.Context) { return func(c *netfilter.Context) { c.Packet.In = dev } }
	sport := func(c *netfilter.Context) { c.Packet.SrcPort = 4000 }
	here := func(c *netfilter.Context) { c.Packet.Dst = netip.MustParseAddr("10.0.0.1"); c.Packet.In = "eth0" }
	loop := func(c *netfilter.Context) { c.Packet.Dst = netip.MustParseAddr("127.0.0.1"); c.Packet.In = "lo" }
	set := func(c *netfilter.Context) { c.Packet.Recent = "set:pods " }
	for _, tt := range []struct {
		table, rule string
		f           func(c *netfilter.Context)
		want        string
	}{
		{"filter", "-s 10.0.0.0/8", unknownSource, "unknown"},
		{"filter", "! -s 10.0.0.0/8 -d 10.96.0.2/32", unknownSource, "no"},
		{"filter", "-m iprange --src-range 10.0.0.1-10.0.0.9", unknownSource, "unknown"},
		{"filter", "-m addrtype --src-type LOCAL", unknownSource, "unknown"},
		{"filter", "-s 0.0.0.0/0", unknownSource, "matches"},
		{"filter", "-i eth0", from("?"), "unknown"},
		{"filter", "-i +", from("?"), "matches"},
		{"filter", "-i eth0", from(""), "no"},
		{"filter", "! -i eth0", from(""), "matches"},
		{"filter", "! -i ca+", from("cali0"), "no"},
		{"filter", "-p tcp -m tcp --sport 4000", sport, "matches"},
		{"filter", "-p tcp -m tcp ! --sport 4000", sport, "no"},
		{"filter", "-p tcp -m multiport --ports 4000", sport, "matches"},
		{"raw", "-m conntrack --ctstate NEW", sport, "no"},
		{"raw", "-m conntrack --ctstate INVALID", sport, "matches"},
		{"raw", "-m state --state INVALID", sport, "matches"},
		{"raw", "-m conntrack --ctstate NEW", back, "matches"},
		{"raw", "-m conntrack --ctdir REPLY", sport, "no"},
		{"raw", "-m conntrack --ctstate INVALID --ctdir REPLY", sport, "matches"},
		{"raw", "-m connmark ! --mark 0x7", sport, "no"},
		{"filter", "-m connmark ! --mark 0x7", untracked, "no"},
		{"raw", "-m connmark --mark 0x10", back, "matches"},
		{"filter", "-m conntrack --ctstate NEW", untracked, "no"},
		{"filter", "-m conntrack --ctstate UNTRACKED,NEW", untracked, "matches"},
		{"filter", "-m conntrack --ctstate INVALID", untracked, "no"},
		{"filter", "-m conntrack --ctstatus CONFIRMED", back, "matches"},
		{"filter", "-m conntrack --ctstate DNAT", nat, "matches"},
		{"filter", "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", nat, "no"},
		{"filter", "-m conntrack --ctstate DNAT", same, "no"},
		{
			"filter", "-m conntrack --ctorigdst 10.96.0.1 --ctorigdstport 80 --ctreplsrc 10.244.2.2 --ctreplsrcport 8080",
			nat, "matches",
		},
		{"filter", "-m addrtype --dst-type LOCAL", here, "matches"},
		{"filter", "-m addrtype --dst-type LOCAL --limit-iface-in", here, "matches"},
		{"filter", "-m addrtype --dst-type LOCAL --limit-iface-in", loop, "matches"},
		{
			"filter", "-m addrtype --dst-type LOCAL --limit-iface-in",
			func(c *netfilter.Context) { here(c); c.Packet.In = "cni0" }, "no",
		},
		{
			"filter", "-m addrtype --dst-type UNICAST --limit-iface-in",
			func(c *netfilter.Context) { here(c); c.Packet.In = "cni0" }, "matches",
		},
		{
			"filter", "-m addrtype --dst-type LOCAL --limit-iface-in", func(c *netfilter.Context) { here(c); c.Packet.In = "?" },
			"unknown",
		},
		{"filter", "-m owner --uid-owner 0", local, "unknown"},
		{"filter", "-m owner --socket-exists", local, "matches"},
		{"filter", "-m mac --mac-source 00:11:22:33:44:55", back, "no"},
		{"filter", "-m cgroup --cgroup 7", local, "unknown"},
		{"filter", "-m cgroup --cgroup 7", func(c *netfilter.Context) { c.Hook = netfilter.Forward }, "no"},
		{"filter", "-m physdev --physdev-is-in", local, "no"},
		{"nat", "-m physdev ! --physdev-is-in", local, "matches"},
		{"nat", "-m physdev --physdev-is-in", from("eth0"), "no"},
		{"nat", "-m physdev --physdev-is-in", from("br0"), "unknown"},
		{"nat", "-m physdev ! --physdev-in veth1 ! --physdev-is-bridged", from("eth0"), "matches"},
		{"nat", "-m physdev --physdev-is-in", from("?"), "unknown"},
		{"nat", "-m physdev --physdev-in veth1", from("br0"), "unknown"},
		{"nat", "-m physdev --physdev-in eth0", from("br0"), "no"},
		{"nat", "-m physdev ! --physdev-in eth0", from("br0"), "matches"},
		{"nat", "-m physdev --physdev-in eth+", from("br0"), "unknown"},
		{"nat", "-m physdev --physdev-is-in", from("eth0.7"), "unknown"},
		{"filter", "-m set --match-set pods src", set, "unknown"},
		{"filter", "-j SET --add-set pods src", set, "matches"},
		{"raw", "-m rpfilter --validmark --invert", from("lo"), "no"},
		{"filter", "-j DNAT --to-destination 10.1.1.1:80", same, "opaque"},
		{"mangle", "-j MASQUERADE", same, "opaque"},
		{"filter", "-j NETMAP --to 10.0.0.0/8", same, "opaque"},
	} {
		if got, _ := in(t, tt.table, tt.rule, tt.f); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.table, tt.rule, got, tt.want)
		}
	}
}
