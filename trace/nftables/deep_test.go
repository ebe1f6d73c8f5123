// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// A dump in which 45 chains jump twice to the next one each is walked in milliseconds: what a chain does with a packet
// is remembered.
func TestChainsThatJumpTwiceToTheNext(t *testing.T) {
	const n = 45
	draw := func(mod int) string {
		return fmt.Sprintf(`{"numgen":{"mode":"random","mod":%d,"offset":0}}`, mod)
	}
	for name, leaf := range map[string]string{
		"nothing":      `{"counter":{"packets":0,"bytes":0}}`,
		"a mark":       `{"mangle":{"key":{"meta":{"key":"mark"}},"value":16384}}`,
		"by chance":    `{"vmap":{"key":` + draw(2) + `,"data":{"set":[[0,{"return":null}]]}}}`,
		"not known":    `{"limit":{"rate":5,"burst":5,"per":"minute"}},{"return":null}`,
		"translations": `{"dnat":{"addr":{"map":{"key":` + draw(1000) + `,"data":{"set":[[0,"10.1.1.1"]]}}},"port":80}}`,
		"a loop":       `{"goto":{"target":"c40"}}`,
	} {
		var b strings.Builder
		b.WriteString(`{"nftables":[{"table":{"family":"ip","name":"t"}},{"chain":{"family":"ip","table":"t","name":"pre",` +
			`"type":"nat","hook":"prerouting","prio":-100,"policy":"accept"}}`)
		for i := range n {
			fmt.Fprintf(&b, `,{"chain":{"family":"ip","table":"t","name":"c%d"}}`, i)
		}
		rule := func(chain, statements string) {
			fmt.Fprintf(&b, `,{"rule":{"family":"ip","table":"t","chain":"%s","expr":[%s]}}`, chain, statements)
		}
		rule("pre", `{"jump":{"target":"c0"}}`)
		for i := range n - 1 {
			rule(fmt.Sprintf("c%d", i), fmt.Sprintf(`{"jump":{"target":"c%d"}}`, i+1))
			rule(fmt.Sprintf("c%d", i), fmt.Sprintf(`{"goto":{"target":"c%d"}}`, i+1))
		}
		rule(fmt.Sprintf("c%d", n-1), leaf)
		b.WriteString("]}")
		tables, err := Parse([]byte(b.String()), nil)
		if err != nil {
			t.Fatal(err)
		}
		rs := &netfilter.Ruleset{Tables: tables}
		rs.Link()
		w := netfilter.NewWalker(rs, emptyHost(t), nil)
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
