// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// A rule that only has the kernel trace packets does nothing to them, whatever it matches; one that does more is read
// as any other.
func TestARuleThatOnlyTraces(t *testing.T) {
	const (
		bytes = `{"match":{"op":"==","left":{"payload":{"base":"th","offset":240,"len":8}},"right":69}}`
		trace = `{"mangle":{"key":{"meta":{"key":"nftrace"}},"value":1}}`
	)
	for rule, want := range map[string]string{
		bytes + "," + trace:                    "100% sent",
		trace:                                  "100% sent",
		bytes + `,{"drop":null}`:               "100% dropped?, 100% sent?",
		bytes + "," + trace + `,{"drop":null}`: "100% dropped?, 100% sent?",
		trace + `,{"mangle":{"key":{"meta":{"key":"x"}},"value":1}}`: "100% not known?, 100% sent?",
	} {
		res := netfilter.NewWalker(ruleset(t, "ip", "filter", "forward", 0, "", rule), smallHost(t), nil).Walk(starts[0],
			netfilter.Options{})
		if got := ends(&res); got != want {
			t.Errorf("%s: got %s, want %s", rule, got, want)
		}
	}
}

// Whether a table is dormant, which nft 1.0.6 does not say of one with flags, does not matter where it does nothing.
func TestDormantOrNot(t *testing.T) {
	const trace = `{"mangle":{"key":{"meta":{"key":"nftrace"}},"value":1}}`
	for _, c := range []struct {
		policy, rule string
		unread       bool
	}{
		{"accept", trace, false}, {"accept", `{"drop":null}`, true}, {"drop", trace, true}, {"accept", `{"accept":null}`, true},
	} {
		text := `{"nftables":[{"table":{"family":"ip","name":"t","flags":"t"}},
			{"chain":{"family":"ip","table":"t","name":"c","type":"filter","hook":"input","prio":0,"policy":"` + c.policy + `"}},
			{"rule":{"family":"ip","table":"t","chain":"c","expr":[` + c.rule + `]}}]}`
		tables, err := Parse([]byte(text), nil)
		if err != nil || len(tables) != 1 || strings.Contains(tables[0].Chains[0].Unread, "dormant") != c.unread {
			t.Errorf("%+v: %v, %v", c, lines(tables), err)
		}
	}
}
