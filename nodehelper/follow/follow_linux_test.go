// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// run runs commands, in a network namespace or in the test's own.
func run(t *testing.T, ns *testutil.Namespace, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if words := strings.Fields(l); ns != nil {
			ns.Run(t, words...)
		} else {
			testutil.Run(t, "", words...)
		}
	}
}

// clientAndPod are two network namespaces with this one, the node's, between them: 10.246.1.9 and 10.246.2.9.
func clientAndPod(t *testing.T) (client, pod *testutil.Namespace) {
	t.Helper()
	client, pod = testutil.NewNamespace(t), testutil.NewNamespace(t)
	run(t, nil, "ip link set lo up", "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0")
	for i, ns := range []*testutil.Namespace{client, pod} {
		dev, network := fmt.Sprintf("veth%d", i+1), fmt.Sprintf("10.246.%d.", i+1)
		run(t, nil, "ip link add "+dev+" type veth peer name eth0 netns "+ns.PID, "ip link set "+dev+" up",
			"ip addr add "+network+"1/24 dev "+dev)
		run(t, ns, "ip link set lo up", "ip link set eth0 up", "ip addr add "+network+"9/24 dev eth0",
			"ip addr add "+network+"10/24 dev eth0", "ip route add default via "+network+"1")
	}
	return client, pod
}

// A node between a client and a pod: what its kernel saw of connections that were made for real, healthy and with
// faults, in the node's network namespace and in the pod's; and nothing of other connections.
func TestWhatTheKernelSaw(t *testing.T) {
	testutil.Long(t)
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)")
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft", "ip", "nsenter", "sysctl") {
		return
	}
	client, pod := clientAndPod(t)
	at := netip.MustParseAddrPort("10.246.2.9:8080")
	full := netip.MustParseAddrPort("10.246.2.9:9090")
	var listener net.Listener
	var err error
	inPod := testutil.NewThread(t, pod.Path)
	inPod.Do(func() { listener, err = net.Listen("tcp", ":8080") })
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, listener, func(net.Conn) {})
	fd := -1
	inPod.Do(func() {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(full.Port())}); err == nil {
				err = unix.Listen(fd, 0)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	inClient := testutil.NewThread(t, client.Path)
	connect := func(from string, to netip.AddrPort) (local netip.AddrPort, c net.Conn, err error) {
		d := net.Dialer{Timeout: 300 * time.Millisecond}
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from), Port: ports()}
		inClient.Do(func() { c, err = d.DialContext(t.Context(), "tcp4", to.String()) })
		return netip.MustParseAddrPort(d.LocalAddr.String()), c, err
	}
	if _, c, err := connect("10.246.1.9", full); err == nil { // the queue has room for one
		defer c.Close()
	}
	for _, tt := range []struct {
		name     string
		to       netip.AddrPort
		do, undo []string // on the node; "pod …": in the pod
		accepted bool
		want     []string // "PLACE HOW INTERFACE request|answer", or with the reason in place of an interface
		not      []string
		rules    []string // all that the traces of rules tell: "PLACE HOOK passed|dropped|stayed RULE request|answer"
		counters []string // that rise
		waiting  int      // at the pod's socket
	}{
		{
			name: "healthy", to: at, accepted: true,
			want: []string{
				"node in veth1 request", "node out veth2 request", "pod in eth0 request", "pod out eth0 answer",
				"node in veth2 answer", "node out veth1 answer",
			},
			rules: []string{
				"node postrouting passed request", "node postrouting passed answer", "pod input passed request",
				"pod postrouting passed answer",
			},
		},
		{
			name: "the node drops it", to: at, do: []string{
				"nft add table ip t", "nft add chain ip t f { type filter hook forward priority 0; }",
				"nft add rule ip t f ip daddr 10.246.2.9 drop",
			}, undo: []string{"nft delete table ip t"},
			want:  []string{"node in veth1 request", "node dropped NETFILTER_DROP request"},
			not:   []string{"node out veth2 request", "pod in eth0 request"},
			rules: []string{"node forward dropped ip t f 1 request"},
		},
		{
			name: "the pod drops it", to: at, do: []string{
				"pod nft add table ip t", "pod nft add chain ip t f { type filter hook input priority 0; }",
				"pod nft add rule ip t f tcp dport 8080 drop",
			}, undo: []string{"pod nft delete table ip t"},
			want:  []string{"pod in eth0 request", "pod dropped NETFILTER_DROP request"},
			not:   []string{"pod out eth0 answer"},
			rules: []string{"node postrouting passed request", "pod input dropped ip t f 1 request"},
		},
		{
			name: "the pod drops the answer at output", to: at, do: []string{
				"pod nft add table ip t", "pod nft add chain ip t f { type filter hook output priority 0; }",
				"pod nft add rule ip t f tcp sport 8080 drop",
			}, undo: []string{"pod nft delete table ip t"},
			want: []string{"pod in eth0 request", "pod dropped NETFILTER_DROP answer"},
			not:  []string{"pod out eth0 answer"},
			rules: []string{
				"node postrouting passed request", "pod input passed request", "pod output dropped ip t f 1 answer",
			},
		},
		{
			name: "nobody listens", to: netip.MustParseAddrPort("10.246.2.9:7070"),
			want:  []string{"pod dropped NO_SOCKET request", "pod out eth0 answer reset"},
			rules: []string{"node postrouting passed request", "pod input passed request"},
		},
		{
			name: "the queue is full", to: full, want: []string{"pod in eth0 request"},
			not:      []string{"pod out eth0 answer"},
			rules:    []string{"node postrouting passed request", "pod input passed request"},
			counters: []string{"pod TcpExt ListenOverflows", "pod TcpExt ListenDrops"}, waiting: 1,
		},
		{
			name: "the node drops the answer", to: at, do: []string{
				"nft add table ip t", "nft add chain ip t f { type filter hook forward priority 0; }",
				"nft add rule ip t f ip saddr 10.246.2.9 drop",
			}, undo: []string{"nft delete table ip t"},
			want: []string{"pod out eth0 answer", "node in veth2 answer", "node dropped NETFILTER_DROP answer"},
			not:  []string{"node out veth1 answer"},
			rules: []string{
				"node postrouting passed request", "node forward dropped ip t f 1 answer", "pod input passed request",
				"pod postrouting passed answer",
			},
		},
		{
			name: "the reverse path filter", to: at,
			do:    []string{"sysctl -qw net.ipv4.conf.veth1.rp_filter=1", "ip route add 10.246.1.9/32 dev veth2"},
			undo:  []string{"sysctl -qw net.ipv4.conf.veth1.rp_filter=0", "ip route del 10.246.1.9/32 dev veth2"},
			want:  []string{"node in veth1 request", "node dropped IP_RPFILTER request"},
			not:   []string{"pod in eth0 request"},
			rules: []string{"node prerouting passed request"},
		},
		{
			name: "the reverse path filter, of the answer", to: at,
			do: []string{
				"sysctl -qw net.ipv4.conf.veth2.rp_filter=1", "ip rule add fwmark 7 lookup 100",
				"ip route add 10.246.2.0/24 dev veth2 table 100", "ip route add 10.246.2.9/32 dev veth1",
				"nft add table ip t", "nft add chain ip t p { type filter hook prerouting priority -150; }",
				"nft add rule ip t p iifname veth1 meta mark set 7",
			},
			undo: []string{
				"sysctl -qw net.ipv4.conf.veth2.rp_filter=0", "ip rule del fwmark 7 lookup 100",
				"ip route flush table 100", "ip route del 10.246.2.9/32 dev veth1", "nft delete table ip t",
			},
			want: []string{"pod out eth0 answer", "node dropped IP_RPFILTER answer"},
			not:  []string{"node out veth1 answer"},
			rules: []string{
				"node postrouting passed request", "node prerouting passed answer", "pod input passed request",
				"pod postrouting passed answer",
			},
			counters: []string{"node TcpExt IPReversePathFilter"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			change := func(lines []string) {
				for _, l := range lines {
					if rest, ok := strings.CutPrefix(l, "pod "); ok {
						run(t, pod, rest)
					} else {
						run(t, nil, l)
					}
				}
			}
			change(tt.do)
			defer change(tt.undo)
			f, err := Begin(Request{
				Servers: []snapshot.FollowTarget{{Protocol: "TCP", At: tt.to}},
				Clients: []netip.Addr{netip.MustParseAddr("10.246.1.9")},
				Pods: map[string]podns.Pod{
					"shop/web":  {Addresses: []netip.Addr{at.Addr()}},
					"shop/gone": {Addresses: []netip.Addr{netip.MustParseAddr("10.246.2.77")}},
				},
				Rules: true, Root: t.TempDir(),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for _, from := range []string{"10.246.1.9", "10.246.1.10"} { // one that is not asked about; and another client
				if _, c, err := connect(from, tt.to); err == nil {
					c.Close()
				}
			}
			local, c, err := connect("10.246.1.9", tt.to)
			if err == nil {
				c.Close()
			}
			if (err == nil) != tt.accepted {
				t.Fatalf("accepted: %v, want %v", err, tt.accepted)
			}
			got, err := f.End(t.Context(), []snapshot.Flow{{
				Protocol: "TCP", Clients: []netip.AddrPort{local}, Servers: []netip.AddrPort{tt.to},
			}})
			if err != nil || got.Partial || got.Pods["shop/web"] != "" || got.Pods["shop/gone"] == "" {
				t.Fatalf("%+v %v", got, err)
			}
			var seen []string
			for i := range got.Sights {
				s := &got.Sights[i]
				words := []string{"node", s.How, s.Interface, "request"}
				if s.Pod != "" {
					words[0] = "pod"
				}
				if s.How == snapshot.SightDropped {
					words[2] = s.Reason
				}
				if s.Answer {
					words[3] = "answer"
				}
				if s.Reset {
					words = append(words, "reset")
				}
				seen = append(seen, strings.Join(words, " "))
			}
			t.Logf("%q", seen)
			var risen []string
			for _, c := range got.Counters {
				place := "node "
				if c.Pod != "" {
					place = "pod "
				}
				risen = append(risen, place+c.Name)
			}
			for _, want := range tt.counters {
				if !slices.Contains(risen, want) {
					t.Errorf("%q has not risen: %q", want, risen)
				}
			}
			if tt.accepted && len(risen) > 0 {
				t.Errorf("%q have risen", risen)
			}
			if (len(got.Queues) > 0) != (tt.waiting > 0) || tt.waiting > 0 && got.Queues[0].Waiting != int64(tt.waiting) {
				t.Errorf("queues: %+v", got.Queues)
			}
			for _, x := range got.Tracked {
				if x.From != local || x.To != tt.to || x.Unreplied == tt.accepted {
					t.Errorf("%+v", x)
				}
			}
			if got.Others == 0 {
				t.Error("nothing is said of the connection that nobody asks about")
			}
			if rules := rulesOf(got); !sameTexts(rules, tt.rules) || len(got.Untraced) > 0 {
				t.Errorf("rules: %q %v", rules, got.Untraced)
			}
			for _, want := range tt.want {
				if !slices.Contains(seen, want) {
					t.Errorf("%q was not seen: %q", want, seen)
				}
			}
			for _, not := range tt.not {
				if slices.Contains(seen, not) {
					t.Errorf("%q was seen: %q", not, seen)
				}
			}
			if _, err := f.End(t.Context(), nil); err != nil {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

// rulesOf writes what the traces of rules tell, without how often.
func rulesOf(got *snapshot.Followed) (out []string) {
	for i := range got.Traced {
		s := &got.Traced[i]
		words := []string{"node", s.Hook, "stayed"}
		if s.Pod != "" {
			words[0] = "pod"
		}
		switch {
		case s.Dropped:
			words[2] = "dropped"
		case s.Passed:
			words[2] = "passed"
		}
		if l := s.Last; l != nil {
			words = append(words, l.Family, l.Table, l.Chain, strconv.Itoa(l.Rule))
		}
		if s.Outer {
			words = append(words, "outer")
		}
		if s.Answer {
			words = append(words, "answer")
		} else {
			words = append(words, "request")
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

// sameTexts compares two lists without their order.
func sameTexts(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// ports gives each connection a port of its own.
var ports = func() func() int {
	next := 40000
	return func() int { next++; return next }
}()

// More than the limits is refused before anything is attached.
func TestLimits(t *testing.T) {
	for _, r := range []Request{
		{Servers: make([]snapshot.FollowTarget, MaxServers+1)},
		{Clients: make([]netip.Addr, MaxClients+1)},
		{Servers: []snapshot.FollowTarget{{Protocol: "ICMP"}}},
	} {
		if f, err := Begin(r); err == nil {
			f.Close()
			t.Errorf("%d servers and %d clients are followed", len(r.Servers), len(r.Clients))
		}
	}
}
