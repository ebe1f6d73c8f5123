// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

func TestNotrackLeavesConnectionsAlone(t *testing.T) {
	if _, c := in(t, "raw", "-j CT --notrack", func(c *netfilter.Context) { c.Packet.Local = true }); c.Packet.Untracked {
		t.Error("a packet that came back by lo lost its connection")
	}
	if _, c := in(t, "mangle", "-j CONNMARK --set-xmark 0x7/0xffffffff",
		func(c *netfilter.Context) { c.Packet.Untracked = true }); c.Packet.CTMark != 0x10 {
		t.Error("an untracked packet has a connection mark")
	}
}

// CT --zone gives the packet a template of its connection: --notrack finds it, and leaves the packet alone.
func TestNotrackBehindATemplate(t *testing.T) {
	_, c := in(t, "raw", "-j CT --zone 5", func(*netfilter.Context) {})
	if !c.Packet.Template {
		t.Error("no template")
	}
	if _, c := in(t, "raw", "-j CT --notrack",
		func(c *netfilter.Context) { c.Packet.Template = true }); c.Packet.Untracked {
		t.Error("a packet with a template is not tracked")
	}
	if got, _ := in(t, "raw", "-m conntrack --ctstate INVALID",
		func(c *netfilter.Context) { c.Packet.Template = true }); got != "unknown" {
		t.Error(got)
	}
	if _, c := in(t, "raw", "-j CT --zone 5",
		func(c *netfilter.Context) { c.Packet.Untracked = true }); c.Packet.Template {
		t.Error("an untracked packet has got a template")
	}
}

// TestAnswersOfIPVS: -m ipvs finds the connection of a request alone. kube-proxy's KUBE-IPVS-OUT-FILTER was said to
// drop the answers of an endpoint on the node itself, which have the frontend's address there.
func TestAnswersOfIPVS(t *testing.T) {
	virtual := netip.MustParseAddrPort("10.96.0.1:80")
	for _, tt := range []struct{ rule, request, reply string }{
		{"-s 10.96.0.1/32 -m ipvs --vaddr 10.96.0.1 --vproto 6 --vport 80", "no", "no"},
		{"-m ipvs --vaddr 10.96.0.1 --vproto 6 --vport 80", "matches", "no"},
		{"-m ipvs --vaddr 10.96.0.1 --vdir ORIGINAL", "matches", "no"},
		{"-m ipvs --vaddr 10.96.0.1 --vdir REPLY", "no", "no"},
		{"-m ipvs ! --vport 81", "matches", "no"},
		{"-m ipvs --vmethod MASQ", "unknown", "no"},
		{"-m ipvs --ipvs", "matches", "matches"},
		{"-m ipvs ! --ipvs", "no", "no"},
	} {
		request := testContext(t)
		request.Packet.Virtual = virtual
		request.Packet.Dst, request.Packet.DstPort = netip.MustParseAddr("10.0.0.1"), 8080
		if got := answer(t, request, tt.rule); got != tt.request {
			t.Errorf("a request, %s: %s, want %s", tt.rule, got, tt.request)
		}
		reply := testContext(t)
		reply.Packet.Turn, reply.Packet.Virtual = netfilter.Reply, virtual
		reply.Packet.Src, reply.Packet.SrcPort = virtual.Addr(), virtual.Port()
		if got := answer(t, reply, tt.rule); got != tt.reply {
			t.Errorf("an answer, %s: %s, want %s", tt.rule, got, tt.reply)
		}
	}
}
