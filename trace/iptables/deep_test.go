// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// A dump in which 45 chains jump twice to the next one each is walked in milliseconds: what a chain does with a packet
// is remembered.
func TestChainsThatJumpTwiceToTheNext(t *testing.T) {
	const n = 45
	for name, leaf := range map[string]string{
		"nothing":      "-j LOG",
		"a mark":       "-j MARK --set-xmark 0x4000/0x4000",
		"a list":       "-m recent --set --name KUBE-SEP-A --rsource",
		"by chance":    "-m statistic --mode random --probability 0.5 -j RETURN",
		"not known":    "-m limit --limit 5/min -j RETURN",
		"translations": "-m statistic --mode random --probability 0.001 -p tcp -j DNAT --to-destination 10.1.1.1:80",
		"a loop":       "-j C40",
	} {
		var b strings.Builder
		b.WriteString("*nat\n:PREROUTING ACCEPT [0:0]\n")
		for i := range n {
			fmt.Fprintf(&b, ":C%d - [0:0]\n", i)
		}
		b.WriteString("-A PREROUTING -j C0\n")
		for i := range n - 1 {
			fmt.Fprintf(&b, "-A C%[1]d -j C%[2]d\n-A C%[1]d -g C%[2]d\n", i, i+1)
		}
		fmt.Fprintf(&b, "-A C%d %s\nCOMMIT\n", n-1, leaf)
		tables, err := Parse([]byte(b.String()), netfilter.IPv4, netfilter.BackendNFT)
		if err != nil {
			t.Fatal(err)
		}
		rs := &netfilter.Ruleset{Tables: tables}
		rs.Link()
		w := netfilter.NewWalker(rs, &host.Network{}, nil, netfilter.WithClientLists("KUBE-SEP-"))
		for _, steps := range []bool{false, true} {
			var res netfilter.Result
			testutil.Promptly(t, func() {
				res = w.Walk(netfilter.Start{Packet: netfilter.Packet{
					Family: netfilter.IPv4, Proto: netfilter.TCP, DstPort: 80, In: "cni0",
					Src: netip.MustParseAddr("10.244.0.5"), Dst: netip.MustParseAddr("10.96.0.1"),
				}}, netfilter.Options{Steps: steps})
			})
			t.Logf("%s: %d outcomes, %d steps", name, len(res.Outcomes), len(res.Steps))
			if res.Ended != "" || len(res.Outcomes) == 0 {
				t.Errorf("%s: %q, %+v", name, res.Ended, res.Outcomes)
			}
		}
	}
}
