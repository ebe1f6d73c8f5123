// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// What opens a connection of TCP: its length, its options, its TTL and its TOS are in bounds.
func TestHeadersOfASYN(t *testing.T) {
	for _, tt := range []struct{ rule, want string }{
		{"-m tcpmss --mss 1:2", "no"},
		{"-m tcpmss --mss 1:1460", "unknown"},
		{"-m tcpmss ! --mss 1:535", "matches"},
		{"-m length --length 0:100", "matches"},
		{"-m length --length :39", "no"},
		{"-m length --length 81:", "no"},
		{"-m length --length 60", "unknown"},
		{"-m length ! --length 1500:65535", "matches"},
		{"-m length --length x", "unknown"},
		{"-m tos --tos 0x10/0x3f", "no"},
		{"-m tos ! --tos 0x10/0xfc", "matches"},
		{"-m tos --tos 0x0/0xff", "unknown"}, // the bits of ECN
		{"-m tos --tos 0x10/0x0f", "no"},
		{"-m dscp --dscp 0x2e", "no"},
		{"-m dscp --dscp 0x00", "matches"},
		{"-m policy --dir in --pol ipsec", "unknown"},
		{"-m ttl --ttl-lt 16", "no"},
		{"-m ttl --ttl-lt 17", "unknown"},
		{"-m ttl --ttl-gt 15", "matches"},
		{"-m ttl --ttl-lt 0", "no"},
		{"-m ttl --ttl-eq 256", "no"},
	} {
		if got := answer(t, testContext(t), tt.rule); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

// Later packets may carry data, and have no option that names the largest segment.
func TestHeadersOfLaterPackets(t *testing.T) {
	for _, tt := range []struct{ rule, want string }{
		{"-m length --length 0:100", "unknown"},
		{"-m length --length 1501:", "unknown"},
		{"-m length --length :39", "no"},
		{"-m tcpmss --mss 1:65535", "no"},
		{"-m tcpmss ! --mss 1:535", "matches"},
	} {
		c := testContext(t)
		c.Packet.Turn = netfilter.Later
		if got := answer(t, c, tt.rule); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}

// The group of an interface is in its listing.
func TestGroupsOfInterfaces(t *testing.T) {
	n, errs := host.Parse(host.Files{Link: []byte(`[{"ifname":"cni0","group":"default"},{"ifname":"eth0","group":"7"},
		{"ifname":"eth1","group":"uplinks"}]`)})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, tt := range []struct{ rule, in, want string }{
		{"-m devgroup --src-group default", "cni0", "matches"},
		{"-m devgroup --src-group 0x7", "cni0", "no"},
		{"-m devgroup --src-group 0x7", "eth0", "matches"},
		{"-m devgroup --src-group 0x3/0x3", "eth0", "matches"},
		{"-m devgroup ! --src-group 0x0", "eth0", "matches"},
		{"-m devgroup --src-group 0x7", "eth1", "unknown"},
		{"-m devgroup --src-group 0x7", "eth2", "unknown"},
		{"-m devgroup --dst-group 0x7", "eth0", "unknown"},
	} {
		c := testContext(t)
		c.Host, c.Packet.In = n, tt.in
		if got := answer(t, c, tt.rule); got != tt.want {
			t.Errorf("%s by %s: %s, want %s", tt.rule, tt.in, got, tt.want)
		}
	}
}

// An answer comes from the endpoint, while the socket that waits for it waits for one from the Service.
func TestSocketOfAnAnswer(t *testing.T) {
	service, endpoint := netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("10.244.2.5:8080")
	client := netip.MustParseAddrPort("10.0.0.1:40000")
	for _, tt := range []struct {
		from netip.AddrPort
		want string
	}{{endpoint, "no"}, {service, "unknown"}} {
		c := testContext(t)
		c.Packet.Turn, c.Packet.Conn = netfilter.Reply, &netfilter.Connection{
			Original: netfilter.Tuple{Src: client, Dst: service}, Reply: netfilter.Tuple{Src: tt.from, Dst: client},
		}
		c.Listens = func(uint8, uint16) (bool, bool) { return false, true }
		if got := answerIn(t, c, "mangle", "-m socket --transparent"); got != tt.want {
			t.Errorf("from %s: %s, want %s", tt.from, got, tt.want)
		}
	}
}

// Without a policy of IPsec no packet is transformed.
func TestWithoutIPsec(t *testing.T) {
	for _, tt := range []struct{ rule, want string }{
		{"-m policy --dir in --pol none", "matches"},
		{"-m policy --dir in --pol ipsec", "no"},
		{"-m policy --dir out --pol ipsec --mode tunnel", "no"},
		{"-m policy --dir in --pol tomorrow", "unknown"},
		{"-m policy --dir in", "unknown"},
	} {
		c := testContext(t)
		c.Untransformed = true
		if got := answer(t, c, tt.rule); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rule, got, tt.want)
		}
	}
}
