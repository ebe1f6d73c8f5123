// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

func must(t *testing.T, words string, stdin ...string) {
	t.Helper()
	testutil.Run(t, strings.Join(stdin, ""), strings.Fields(words)...)
}

// TestReasonsOfTheKernel drops packets for real, in a network namespace, each in another way.
func TestReasonsOfTheKernel(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter") {
		return
	}
	pod := testutil.NewNamespace(t)
	for _, words := range []string{
		"ip link set lo up", "ip link add veth0 type veth peer name eth0 netns " + pod.PID, "ip link set veth0 up",
		"ip addr add 10.244.1.1/24 dev veth0", "ip -6 addr add fd00:1::1/64 dev veth0 nodad",
		"ip link add d0 type veth peer name d1", "ip link set d0 up", "ip link set d1 up", "ip addr add 192.0.2.1/24 dev d0",
		"sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.veth0.rp_filter=1",
		"sysctl -qw net.ipv4.neigh.veth0.mcast_solicit=1 net.ipv4.neigh.veth0.retrans_time_ms=50",
	} {
		must(t, words)
	}
	for _, words := range []string{
		"link set lo up", "link set eth0 up", "addr add 10.244.1.5/24 dev eth0", "addr add 203.0.113.9/32 dev eth0",
		"route add default via 10.244.1.1",
	} {
		pod.Run(t, append([]string{"ip"}, strings.Fields(words)...)...)
	}
	must(t, "ip route add blackhole 198.51.100.0/24")
	must(t, "nft -f -", `table ip t {
	chain f { type filter hook forward priority 0; ip daddr 192.0.2.66 drop; }
	chain o { type filter hook output priority 0; ip daddr 10.244.1.5 udp dport 77 drop; }
}
`)
	inside := testutil.NewThread(t, "/proc/"+pod.PID+"/ns/net")
	w, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, tt := range []struct {
		name, from, to string
		inPod          bool
		reasons        []string
		elsewhere      bool
	}{
		{"nothing listens in the pod", "10.244.1.1", "10.244.1.5:9", false, []string{"NO_SOCKET"}, true},
		{"a rule drops it at output", "10.244.1.1", "10.244.1.5:77", false, []string{"NETFILTER_DROP"}, false},
		{"a rule drops it at forward", "10.244.1.5", "192.0.2.66:9", true, []string{"NETFILTER_DROP"}, false},
		{"a blackhole", "10.244.1.5", "198.51.100.7:9", true, []string{"IP_INNOROUTES", "NOT_SPECIFIED"}, false},
		{"the reverse path filter", "203.0.113.9", "192.0.2.7:9", true, []string{"IP_RPFILTER"}, false},
		{"a neighbour that does not answer", "10.244.1.1", "10.244.1.99:9", false, []string{"NEIGH_FAILED"}, false},
		{"IPv6, nobody there", "fd00:1::1", "[fd00:1::77]:9", false, []string{"NEIGH_FAILED", "NOT_SPECIFIED"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, to := netip.MustParseAddrPort(addPort(tt.from)), netip.MustParseAddrPort(tt.to)
			if err := w.Watch(End{unix.IPPROTO_UDP, to}); err != nil {
				t.Fatal(err)
			}
			send := func() { sendUDP(t, from, to) }
			if tt.inPod {
				inside.Do(send)
			} else {
				send()
			}
			var got []Packet
			for end := time.Now().Add(5 * time.Second); len(got) == 0 && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond)
				more, err := w.Collect()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, more...)
			}
			if len(got) == 0 {
				t.Fatal("the kernel reports nothing")
			}
			p := got[0]
			t.Logf("%+v", p)
			if !slices.Contains(tt.reasons, p.Reason) || p.To != to || p.From.Addr() != from.Addr() ||
				p.Elsewhere != tt.elsewhere || p.Protocol != unix.IPPROTO_UDP {
				t.Errorf("%+v, want %q", p, tt.reasons)
			}
		})
	}
}

func addPort(a string) string {
	if strings.Contains(a, ":") {
		return "[" + a + "]:0"
	}
	return a + ":0"
}

func sendUDP(t *testing.T, from, to netip.AddrPort) {
	t.Helper()
	family := unix.AF_INET
	var src, dst unix.Sockaddr
	if to.Addr().Is6() {
		family = unix.AF_INET6
		src = &unix.SockaddrInet6{Addr: from.Addr().As16()}
		dst = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	} else {
		src = &unix.SockaddrInet4{Addr: from.Addr().As4()}
		dst = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, src); err != nil {
		t.Fatal(err)
	}
	_ = unix.Sendto(fd, []byte("x"), 0, dst)
}
