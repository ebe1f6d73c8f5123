// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// The packets of a tunnel that carry those of the connections are traced at the node where the tunnel ends: what comes
// out of it, and the rule that drops it before it does. Those that carry others are not.
func TestTunnelPacketsAreTraced(t *testing.T) {
	testutil.Long(t)
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter", "sysctl") {
		return
	}
	other, pod := testutil.NewNamespace(t), testutil.NewNamespace(t)
	tunnel := func(ns *testutil.Namespace, here, there, inside string) {
		t.Helper()
		run(t, ns, "ip link add vxlan1 type vxlan id 1 dstport 8472 local "+here+" remote "+there,
			"ip link set vxlan1 up", "ip addr add "+inside+" dev vxlan1",
			"ip link add vxlan6 type vxlan id 6 dstport 4789 local fd00:46::"+last(here)+" remote fd00:46::"+last(there),
			"ip link set vxlan6 up", "ip -6 addr add fd00:47::"+last(here)+"/64 dev vxlan6 nodad")
	}
	run(t, nil, "ip link set lo up", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
		"ip link add eth0 type veth peer name eth0 netns "+other.PID, "ip link set eth0 up",
		"ip addr add 10.246.1.1/24 dev eth0", "ip -6 addr add fd00:46::1/64 dev eth0 nodad",
		"ip link add veth2 type veth peer name eth0 netns "+pod.PID, "ip link set veth2 up",
		"ip addr add 10.246.2.1/24 dev veth2", "ip -6 addr add fd00:48::1/64 dev veth2 nodad")
	run(t, other, "ip link set eth0 up", "ip addr add 10.246.1.9/24 dev eth0",
		"ip -6 addr add fd00:46::9/64 dev eth0 nodad")
	tunnel(nil, "10.246.1.1", "10.246.1.9", "10.247.0.1/24")
	tunnel(other, "10.246.1.9", "10.246.1.1", "10.247.0.9/24")
	run(t, other, "ip route add 10.246.2.0/24 via 10.247.0.1", "ip -6 route add fd00:48::/64 via fd00:47::1")
	run(t, pod, "ip link set eth0 up", "ip addr add 10.246.2.9/24 dev eth0", "ip route add default via 10.246.2.1",
		"ip -6 addr add fd00:48::9/64 dev eth0 nodad", "ip -6 route add default via fd00:48::1")
	inPod := testutil.NewThread(t, pod.Path)
	for _, at := range []string{"10.246.2.9:8080", "[fd00:48::9]:8080"} {
		var listener net.Listener
		var err error
		inPod.Do(func() { listener, err = net.Listen("tcp", at) })
		if err != nil {
			t.Fatal(err)
		}
		testutil.Serve(t, listener, func(net.Conn) {})
	}
	inOther := testutil.NewThread(t, other.Path)
	inner := []string{
		"node postrouting passed request", "node postrouting passed answer", "pod input passed request",
		"pod postrouting passed answer",
	}
	outer := []string{"node input passed outer request", "node postrouting passed outer answer"}
	for _, v := range []struct{ name, client, server string }{
		{"IPv4", "10.247.0.9", "10.246.2.9"}, {"IPv6", "fd00:47::9", "fd00:48::9"},
	} {
		for _, tt := range []struct {
			name     string
			do       []string // rules of the hook output or input of the node
			accepted bool
			rules    []string
		}{
			{name: "healthy", accepted: true, rules: slices.Concat(inner, outer)},
			{
				name:  "a rule of the node drops the tunnel's packets",
				do:    []string{"input meta l4proto icmp accept", "input udp dport { 4789, 8472 } drop"},
				rules: []string{"node input dropped inet t input 2 outer request"},
			},
			{
				name:  "a rule of the node drops what it sends into the tunnel",
				do:    []string{"output udp dport { 4789, 8472 } drop"},
				rules: slices.Concat(inner, outer[:1], []string{"node output dropped inet t output 1 outer answer"}),
			},
		} {
			t.Run(v.name+", "+tt.name, func(t *testing.T) {
				if len(tt.do) > 0 {
					run(t, nil, "nft add table inet t", "nft add chain inet t input { type filter hook input priority 0; }",
						"nft add chain inet t output { type filter hook output priority 0; }")
					defer run(t, nil, "nft delete table inet t")
				}
				for _, r := range tt.do {
					run(t, nil, "nft add rule inet t "+r)
				}
				to := netip.AddrPortFrom(netip.MustParseAddr(v.server), 8080)
				f, err := Begin(Request{
					Servers: []snapshot.FollowTarget{{Protocol: "TCP", At: to}},
					Clients: []netip.Addr{netip.MustParseAddr(v.client)},
					Pods:    map[string]podns.Pod{"shop/web": {Addresses: []netip.Addr{to.Addr()}}},
					Rules:   true, Root: t.TempDir(), Tunnels: []uint16{8472, 4789},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				connect := func(port uint16) (netip.AddrPort, error) {
					local := netip.AddrPortFrom(netip.MustParseAddr(v.client), uint16(ports()))
					d := net.Dialer{Timeout: 300 * time.Millisecond, LocalAddr: net.TCPAddrFromAddrPort(local)}
					var c net.Conn
					inOther.Do(func() { c, err = d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(to.Addr(), port).String()) })
					if err == nil {
						c.Close()
					}
					return local, err
				}
				if _, err := connect(9999); err == nil { // that nobody asks about
					t.Fatal("port 9999 was accepted")
				}
				local, err := connect(to.Port())
				if (err == nil) != tt.accepted {
					t.Fatalf("accepted: %v, want %v", err, tt.accepted)
				}
				got, err := f.End(t.Context(), []snapshot.Flow{{
					Protocol: "TCP", Clients: []netip.AddrPort{local}, Servers: []netip.AddrPort{to},
				}})
				if err != nil || got.Partial || len(got.Untraced) > 0 {
					t.Fatalf("%+v %v", got, err)
				}
				if rules := rulesOf(got); !sameTexts(rules, tt.rules) {
					t.Errorf("%q", rules)
				}
			})
		}
	}
	if out := testutil.Run(t, "", "nft", "list", "tables"); strings.TrimSpace(out) != "" {
		t.Errorf("left: %s", out)
	}
}

// last is the last part of an address of IPv4.
func last(address string) string { return fmt.Sprint(netip.MustParseAddr(address).As4()[3]) }
