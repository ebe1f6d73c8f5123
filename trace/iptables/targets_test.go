// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func TestTargets(t *testing.T) {
	pkt := func(p *netfilter.Packet) string {
		s := fmt.Sprintf("%s:%d", p.Dst, p.DstPort)
		for _, f := range []struct {
			on   bool
			name string
		}{{p.DNAT, "dnat"}, {p.SNAT, "snat"}, {p.Untracked, "untracked"}} {
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
		{"-j CT --helper ftp-2121", "matches", same},
		{"-j CT --helper snmp_trap", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.1:8080", "accept", "10.1.1.1:8080 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination 10.1.1.1", "accept", "10.1.1.1:80 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination :8080 --random --persistent", "accept", "10.96.0.1:8080 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination :0 --persistent", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.1-10.1.9.9:80", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.9-10.1.1.1", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.1:70-90", "split 1: 10.1.1.1:80", same},
		{"-j DNAT --to-destination 10.1.1.1-10.1.1.2:443-444", "split 0.5: 10.1.1.1:443 10.1.1.2:443", same},
		{
			"-j DNAT --to-destination 10.1.1.1-10.1.1.2:443-444 --random",
			"split 0.25: 10.1.1.1:443 10.1.1.1:444 10.1.1.2:443 10.1.1.2:444", same,
		},
		{"-j DNAT --to-destination [fd00::1-fd00::2]:80", "split 0.5: fd00::1:80 fd00::2:80", same},
		{"-j DNAT --to-destination [fd00::1]-[fd00::2]:80", "split 0.5: fd00::1:80 fd00::2:80", same},
		{"-j DNAT --to-destination 10.1.1.1:9-7", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.1:99999", "opaque", same},
		{"-j DNAT --to-destination 10.1.1.1 --to-destination 10.1.1.2", "opaque", same},
		{"-j REDIRECT --tomorrow", "opaque", same},
		{"-j CLUSTERIP --new", "opaque", same},
		{"-j HMARK --hmark-mod 7", "opaque", same},
		{"-j TTL --ttl-set 64", "matches", same},
		{"-j TTL --ttl-set 1", "opaque", same},
		{"-j TTL --ttl-set 2", "opaque", same}, // the endpoint's node ended the packet
		{"-j HL --hl-dec 1", "opaque", same},
		{"-j SET --add-set pods src -m", "opaque", same},
		{"-j SET --map-set pods src --map-mark", "opaque", same},
		{"-j SET --add-set pods src --exist --timeout 10", "matches", same},
		{"-j CT --tomorrow", "opaque", same},
		{"-j CONNMARK --restore-mark --left-shift-mark 3", "opaque", same},
		{"-j CONNMARK", "opaque", same},
		{"-j MARK --set-xmark what", "opaque", same},
		{"-j MARK", "opaque", same},
		{"-j NETMAP --to what", "opaque", same},
		{"-j TPROXY --on-port what", "opaque", same},
		{"-j TEE --gateway 10.0.0.9", "opaque", same},
		{"-j DNAT --to-destination [fd00::1]:8080", "accept", "fd00::1:8080 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination fd00::1", "accept", "fd00::1:80 dnat mark 0x4001/0x10"},
		{"-j DNAT --to-destination 10.1.1.1:70-90/3", "split 1: 10.1.1.1:84", same},
		{"-j DNAT --to-destination 10.1.1.1:90-99", "split 1: 10.1.1.1:90", same},
		{"-j SNAT --to-source 10.0.0.1-10.0.0.9:1024-2048", "accept", "10.96.0.1:80 snat mark 0x4001/0x10"},
		{"-j DNAT", "opaque", same},
		{"-j SNAT --to-source 10.0.0.1", "accept", "10.96.0.1:80 snat mark 0x4001/0x10"},
		{"-j MASQUERADE --random-fully", "accept", "10.96.0.1:80 snat mark 0x4001/0x10"},
		{"-j MASQUERADE --tomorrow", "opaque", same},
		{"-j REDIRECT --to-ports 15001", "opaque", same}, // cni0 has no address that is known here
		{"-j NETMAP --to 10.9.0.0/16", "accept", "10.9.0.1:80 dnat mark 0x4001/0x10"},
		{
			"-j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xffffffff", "opaque", same,
		},
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

func TestTranslationOfTheSource(t *testing.T) {
	leaves := func(c *netfilter.Context) {
		c.Hook, c.Packet.In, c.Packet.Out, c.Packet.SrcPort, c.Packet.Dst = netfilter.Postrouting, "", "eth0", 4000,
			netip.MustParseAddr("10.0.0.9")
	}
	lost := func(c *netfilter.Context) { leaves(c); c.Packet.Out = netfilter.UnknownIface }
	for _, tt := range []struct {
		rule string
		f    func(c *netfilter.Context)
		want netip.Addr
	}{
		{"-j SNAT --to-source 10.0.0.7", leaves, netip.MustParseAddr("10.0.0.7")},
		{"-j SNAT --to-source :1024-2048", leaves, netip.MustParseAddr("10.244.1.5")},
		{"-j SNAT --to-source 10.0.0.7-10.0.0.8", leaves, netip.Addr{}},
		{"-j NETMAP --to 10.9.0.0/16", leaves, netip.MustParseAddr("10.9.1.5")},
		{"-j MASQUERADE --random-fully", leaves, netip.MustParseAddr("10.0.0.1")},
		{"-j MASQUERADE --to-ports 1024-2048", lost, netip.Addr{}},
	} {
		got, c := in(t, "nat", tt.rule, tt.f)
		if got != "accept" || !c.Packet.SNAT || c.Packet.Src != tt.want || c.Packet.SrcPort != 0 {
			t.Errorf("%s: %s %+v", tt.rule, got, c.Packet)
		}
	}
}

func TestRedirect(t *testing.T) {
	for _, tt := range []struct {
		rule, in string
		hook     netfilter.Hook
		want     string
	}{
		{"--to-ports 15001", "", netfilter.Output, "127.0.0.1:15001"},
		{"--to-ports 15001", "eth0", netfilter.Prerouting, "10.0.0.1:15001"},
		{"--to-ports 100-200", "eth0", netfilter.Prerouting, "10.0.0.1:100"},
		{"--to-ports 70-90", "eth0", netfilter.Prerouting, "10.0.0.1:80"},
		{"", "eth0", netfilter.Prerouting, "10.0.0.1:80"},
	} {
		got, c := in(t, "nat", "-p tcp -j REDIRECT "+tt.rule,
			func(c *netfilter.Context) { c.Hook, c.Packet.In = tt.hook, tt.in })
		if to := netip.AddrPortFrom(c.Packet.Dst, c.Packet.DstPort); got != "accept" || to.String() != tt.want {
			t.Errorf("%s: %s %s, want %s", tt.rule, got, to, tt.want)
		}
	}
	if got, _ := in(t, "nat", "-p tcp -j REDIRECT --to-ports 100-101 --random",
		func(c *netfilter.Context) { c.Packet.In = "eth0" }); got != "split 0.5: 10.0.0.1:100 10.0.0.1:101" {
		t.Error(got)
	}
}
