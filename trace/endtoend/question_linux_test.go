// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// cache is where a DNS cache on the client's node listens, as NodeLocal DNS does.
var cache = netip.MustParseAddrPort("169.254.20.10:53")

// asks tells whether a datagram of the client's pod comes to the cache and back.
func (n *topology) asks() bool {
	n.t.Helper()
	pod := testutil.NewThread(n.t, n.names["client"].Path)
	_, err := testutil.Ask(pod, "udp", netip.Addr{}, cache.String(), time.Second)
	return err == nil
}

// A question to a name server on the client's node gets there where the walk says so, and does not where it says that.
func TestQuestionsAgainstTheKernel(t *testing.T) {
	testutil.Long(t)
	if !isolate(t) {
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
			n := newTopology(t, false, false)
			n.run("node1 ip addr add 169.254.20.10/32 dev lo")
			testutil.Echo(t, testutil.NewThread(t, n.names["node1"].Path), "udp", cache.String())
			n.run(c.do...)
			if got := n.asks(); got != c.works {
				t.Fatalf("a question is answered: %v", got)
			}
			s, end := n.connection(netfilter.UDP, cache).ComesTo()
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
