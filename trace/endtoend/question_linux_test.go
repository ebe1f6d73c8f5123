// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// cache is where a DNS cache on the client's node listens, as NodeLocal DNS does.
var cache = netip.MustParseAddrPort("169.254.20.10:53")

// asks tells whether a datagram of the client's pod comes to the cache and back.
func (n *topology) asks() bool {
	n.t.Helper()
	var c net.Conn
	var err error
	testutil.NewThread(n.t, n.names["client"].Path).Do(func() {
		c, err = (&net.Dialer{}).DialContext(n.t.Context(), "udp", cache.String())
	})
	if err != nil {
		return false
	}
	defer c.Close()
	if _, err := c.Write([]byte("?")); err != nil {
		return false
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, err = c.Read(make([]byte, 1))
	return err == nil
}

// A question to a name server on the client's node gets there where the walk says so, and does not where it says that.
func TestQuestionsAgainstTheKernel(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip", "bridge", "iptables-nft", "nsenter", "sysctl") {
		return
	}
	for _, c := range []struct {
		name  string
		do    []string
		works bool
	}{
		{name: "healthy", works: true},
		{name: "the node drops", do: []string{"node1 iptables-nft -A INPUT -p udp --dport 53 -j DROP"}},
		{name: "the pod drops", do: []string{"client iptables-nft -A OUTPUT -p udp --dport 53 -j REJECT"}},
		{name: "the pod has no route", do: []string{"client ip route del default"}},
		{
			name: "trap: other ports and protocols are dropped, and it is not tracked", works: true, do: []string{
				"node1 iptables-nft -A INPUT -p udp --dport 54 -j DROP", "node1 iptables-nft -A INPUT -p tcp -j DROP",
				"node1 iptables-nft -t raw -A PREROUTING -p udp --dport 53 -j NOTRACK",
				"node1 iptables-nft -t raw -A OUTPUT -p udp --sport 53 -j NOTRACK",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newTopology(t, false)
			n.run("node1 ip addr add 169.254.20.10/32 dev lo")
			var u net.PacketConn
			var err error
			testutil.NewThread(t, n.names["node1"].Path).Do(func() {
				u, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", cache.String())
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { u.Close() })
			go func() {
				for buf := make([]byte, 1); ; {
					k, from, err := u.ReadFrom(buf)
					if err != nil {
						return
					}
					_, _ = u.WriteTo(buf[:k], from)
				}
			}()
			n.run(c.do...)
			if got := n.asks(); got != c.works {
				t.Fatalf("a question is answered: %v", got)
			}
			node := &endtoend.Node{State: n.read("node1"), Pods: map[string]*endtoend.Pod{
				"shop/client": {State: n.read("client")},
			}}
			conn := &endtoend.Connection{
				Start: netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
					Family: netfilter.IPv4, Proto: netfilter.UDP, Src: client, Dst: cache.Addr(), DstPort: cache.Port(),
					In: "cni0",
				}},
				Client: node, Pod: "shop/client",
				Walker: func(s *nodestate.State) *netfilter.Walker { return judge.NewWalker(s, s.Host) },
				Cite:   func(netfilter.Ref) report.Evidence { return report.Evidence{} },
			}
			s, end := conn.ComesTo()
			want := report.SegmentRight
			if !c.works {
				want = report.SegmentWrong
			}
			if s.Verdict != want || c.works && end.End != netfilter.Delivered {
				t.Errorf("%+v %v", s, end.End)
			}
		})
	}
}
