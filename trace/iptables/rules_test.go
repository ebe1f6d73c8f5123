// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// testContext is the first packet of a TCP connection from a pod to 10.96.0.1:80, coming in by cni0.
func testContext(t *testing.T) *netfilter.Context {
	t.Helper()
	n, errs := host.Parse(host.Files{Addr: []byte(`[{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,"scope":"global"}]}]`)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	p := &netfilter.Packet{
		Family: netfilter.IPv4, Proto: netfilter.TCP, Src: netip.MustParseAddr("10.244.1.5"), Dst: netip.MustParseAddr("10.96.0.1"),
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

// answer runs a rule's ops and says how they end: "matches", "no", "chance 0.5", "unknown", or the verdict.
func answer(t *testing.T, c *netfilter.Context, rule string) string {
	t.Helper()
	ts, err := Parse([]byte("*nat\n:X - [0:0]\n:CHAIN - [0:0]\n-A X "+rule+"\nCOMMIT\n"), netfilter.IPv4, netfilter.BackendNFT)
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
		{"-s 10.244.0.0/255.255.0.255", "unknown"},
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
		{"-p tcp -m tcp --tcp-flags RST", "no"},
		{"-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN", "no"},
		{"-p udp -m udp --dport 80", "no"},
		{"-m udp --dport 80", "no"},
		{"-p tcp -m tcp --option-of-tomorrow 7", "unknown"},
		{`-m comment --comment "a \" -j DROP"`, "matches"},
		{"-m nfacct --nfacct-name  ct_state", "matches"},
		{"-m conntrack --ctstate NEW", "matches"},
		{"-m conntrack --ctstate RELATED,ESTABLISHED", "no"},
		{"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT", "matches"},
		{"-m conntrack --ctstate INVALID", "no"},
		{"-m conntrack --ctstate TOMORROW", "unknown"},
		{"-m state --state NEW,RELATED", "matches"},
		{"-m conntrack --ctorigdst 10.96.0.1", "matches"},
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
		{"-m addrtype --dst-type LOCAL --limit-iface-in", "unknown"},
		{"-p tcp -m multiport --dports 22,80:90", "matches"},
		{"-p tcp -m multiport --dports 22,443", "no"},
		{"-p tcp -m multiport ! --dports 22,443", "matches"},
		{"-p tcp -m multiport --sports 22", "unknown"},
		{"-m statistic --mode random --probability 0.33333333349", "chance 0.33333333349"},
		{"-m statistic --mode random ! --probability 0.25", "chance 0.75"},
		{"-m statistic --mode nth --every 4 --packet 0", "chance 0.25"},
		{"-m statistic --mode tomorrow", "unknown"},
		{"-m statistic --mode random --probability 7", "unknown"},
		{"-m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-A --mask 255.255.255.255 --rsource", "no"},
		{"-m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-B --mask 255.255.255.255 --rsource", "matches"},
		{"-m recent --update --seconds 60 --hitcount 4 --name SSH --mask 255.255.255.255 --rsource", "unknown"},
		{"-m recent --set --name SSH --mask 255.255.255.255 --rsource", "matches"},
		{"-m recent --rcheck --name KUBE-SEP-B --mask 255.255.255.255 --rdest", "unknown"},
		{"-m set --match-set pods src", "matches"},
		{"-m set ! --match-set pods src", "no"},
		{"-m set --match-set pods dst", "no"},
		{"-m set --match-set gone src", "unknown"},
		{"-m iprange --src-range 10.244.1.1-10.244.1.9", "matches"},
		{"-m iprange ! --dst-range 10.96.0.0-10.96.255.255", "no"},
		{"-p icmp -m icmp --icmp-type 8", "no"},
		{"-m icmp --icmp-type 8", "no"},
		{"-m icmp6 --icmpv6-type 1", "no"},
		{"-m pkttype --pkt-type unicast", "matches"},
		{"-m pkttype --pkt-type broadcast", "no"},
		{"-m limit --limit 5/min", "unknown"},
		{"-m physdev --physdev-in veth1", "unknown"},
		{"-m mac --mac-source 00:11:22:33:44:55", "unknown"},
		{"-m owner --uid-owner 0", "unknown"},
		{"-m cgroup --cgroup 7", "unknown"},
		{"-m socket --transparent", "unknown"},
		{"-m length --length 0:100", "unknown"},
		{"-m ttl --ttl-eq 64", "unknown"},
		{"-m u32 --u32 0x0=0x1", "unknown"},
		{"-m rpfilter --invert", "unknown"},
		{"-m policy --dir in --pol none", "unknown"},
		{"-m hashlimit --hashlimit-upto 1/sec --hashlimit-name x", "unknown"},
		{"-m fancy --magic 7 ! --deep thought", "unknown"},
		{"-m", "unknown"},
		{"!", "matches"},
		{`"stray"`, "unknown"},
		{"--stray 7", "unknown"},
	} {
		if got := answer(t, testContext(t), tt.rule); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

func TestTargets(t *testing.T) {
	pkt := func(p *netfilter.Packet) string {
		s := fmt.Sprintf("%s:%d", p.Dst, p.DstPort)
		for _, f := range []struct {
			on   bool
			name string
		}{{p.DNAT, "dnat"}, {p.SNAT, "snat"}, {p.Untracked, "untracked"}, {p.TProxy != 0, "tproxy"}} {
			if f.on {
				s += " " + f.name
			}
		}
		return fmt.Sprintf("%s mark %#x/%#x", s, p.Mark, p.CTMark)
	}
	const same = "10.96.0.1:80 mark 0x4001/0x10"
	for _, tt := range []struct{ rule, verdict, packet string }{
		{"-j ACCEPT", "accept", same},
		{"-j DROP", "drop", same},
		{"-j REJECT --reject-with icmp-port-unreachable", "reject", same},
		{"-j RETURN", "return", same},
		{"-j QUEUE", "queue", same},
		{"-j NFQUEUE --queue-num 1 --queue-bypass", "queue", same},
		{"-j CHAIN", "jump", same},
		{"-g CHAIN", "goto", same},
		{"-g GONE", "goto", same},
		{"-j LOG --log-prefix \"x \"", "matches", same},
		{"-j NFLOG", "matches", same},
		{"-j TRACE", "matches", same},
		{"-j TCPMSS --clamp-mss-to-pmtu", "matches", same},
		{"-j CHECKSUM --checksum-fill", "matches", same},
		{"-j AUDIT --type drop", "matches", same},
		{"-j MARK --set-xmark 0x4000/0x0", "matches", "10.96.0.1:80 mark 0x1/0x10"},
		{"-j MARK --set-xmark 0x20/0xff", "matches", "10.96.0.1:80 mark 0x4020/0x10"},
		{"-j MARK --set-mark 0x2/0x2", "matches", "10.96.0.1:80 mark 0x4003/0x10"},
		{"-j MARK --and-mark 0xff", "matches", "10.96.0.1:80 mark 0x1/0x10"},
		{"-j MARK --or-mark 0xf0", "matches", "10.96.0.1:80 mark 0x40f1/0x10"},
		{"-j MARK --xor-mark 0x4000", "matches", "10.96.0.1:80 mark 0x1/0x10"},
		{"-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff", "matches", "10.96.0.1:80 mark 0x4001/0x1"},
		{"-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", "matches", "10.96.0.1:80 mark 0x10/0x10"},
		{"-j CONNMARK --set-xmark 0x1/0xffffffff", "matches", "10.96.0.1:80 mark 0x4001/0x1"},
		{"-j CT --notrack", "matches", "10.96.0.1:80 untracked mark 0x4001/0x10"},
		{"-j NOTRACK", "matches", "10.96.0.1:80 untracked mark 0x4001/0x10"},
		{"-j CT --helper ftp", "matches", same},
		{"-j DNAT --to-destination 10.1.1.1:8080", "accept", "10.1.1.1:8080 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination 10.1.1.1", "accept", "10.1.1.1:80 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination :8080 --random --persistent", "accept", "10.96.0.1:8080 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination :0 --persistent", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.1-10.1.9.9:80", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.9-10.1.1.1", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.1:70-90", "split 1: 10.1.1.1:80", same},
		{"-j DNAT --to-destination 10.1.1.1-10.1.1.2:443-444", "split 0.25: 10.1.1.1:443 10.1.1.1:444 10.1.1.2:443 10.1.1.2:444", same},
		{"-j DNAT --to-destination [fd00::1]:8080", "accept", "fd00::1:8080 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination fd00::1", "accept", "fd00::1:80 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination 10.1.1.1:70-90/3", "opaque", same},
		{"-j SNAT --to-source 10.0.0.1-10.0.0.9:1024-2048", "accept", "10.96.0.1:80 snat mark 0x4001/0x10"},
		{"-j DNAT", "opaque", same},
		{"-j SNAT --to-source 10.0.0.1", "accept", "10.96.0.1:80 snat mark 0x4001/0x10"},
		{"-j MASQUERADE --random-fully", "accept", "10.96.0.1:80 snat mark 0x4001/0x10"},
		{"-j MASQUERADE --tomorrow", "opaque", same},
		{"-j REDIRECT --to-ports 15001", "opaque", same}, // cni0 has no address that is known here
		{"-j NETMAP --to 10.9.0.0/16", "accept", "10.9.0.1:80 dnat mark 0x4001/0x10"},
		{"-j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xffffffff", "accept", "10.96.0.1:80 tproxy mark 0x1/0x10"},
		{"-j SYNPROXY --mss 1460", "stolen", same},
		{"-j MAGIC --level 7", "opaque", same},
		{"-j", "opaque", same},
		{"-j CHAIN --with options", "opaque", same},
	} {
		c := testContext(t)
		if got := answer(t, c, tt.rule); got != tt.verdict {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.verdict)
		}
		if got := pkt(c.Packet); got != tt.packet {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.packet)
		}
	}
}

func TestRedirectOfLocalOutputGoesToLoopback(t *testing.T) {
	c := testContext(t)
	c.Packet.Local = true
	if got := answer(t, c, "-p tcp -j REDIRECT --to-ports 15001"); got != "accept" || c.Packet.Dst.String() != "127.0.0.1" || c.Packet.DstPort != 15001 {
		t.Errorf("%s %+v", got, c.Packet)
	}
}
