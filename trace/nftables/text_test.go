// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"regexp"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

var (
	counters = regexp.MustCompile(`counter packets \d+ bytes \d+`)
	handle   = regexp.MustCompile(` ?# handle \d+$`)
	spaces   = regexp.MustCompile(` +`)
	natTo    = regexp.MustCompile(`(dnat ip6?) addr \. port to`) // nft 1.0.6 leaves this out, and cannot read what it prints
)

// rulesOf returns the rules that nft has printed, by table, chain and number.
func rulesOf(text string) map[string][]string {
	out := map[string][]string{}
	table, chain := "", ""
	depth := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(handle.ReplaceAllString(strings.TrimRight(line, "\n"), ""))
		words := strings.Fields(line)
		switch {
		case line == "" || strings.HasPrefix(line, "type ") || strings.HasPrefix(line, "comment "):
		case line == "}":
			depth--
			chain = ""
		case words[0] == "table" && depth == 0:
			table = words[1] + " " + words[2]
			depth++
		case depth == 1 && strings.HasSuffix(line, "{"):
			if chain = ""; words[0] == "chain" {
				chain = words[1]
			}
			depth++
		case depth == 2 && chain != "":
			line = counters.ReplaceAllString(line, "counter")
			key := table + " " + chain
			out[key] = append(out[key], spaces.ReplaceAllString(line, " "))
		}
	}
	return out
}

// The text of a rule is what nft list ruleset prints: testdata has both forms of the same rules.
func TestTextIsWhatNFTPrints(t *testing.T) {
	for name, file := range map[string]string{"everything": "everything.json", "nftables": "../../../testdata/snapshots/nftables/nodes/node1/nft-ruleset.json"} {
		want := rulesOf(string(readFile(t, name+".txt")))
		tables, err := Parse(readFile(t, file), nil)
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, table := range tables {
			family := map[netfilter.Family]string{netfilter.IPv4: "ip", netfilter.IPv6: "ip6", netfilter.Inet: "inet"}[table.Family]
			for _, c := range table.Chains {
				texts := want[family+" "+table.Name+" "+c.Name]
				if len(texts) != len(c.Rules) {
					t.Errorf("%s %s: %d rules, nft has %d", table.Name, c.Name, len(c.Rules), len(texts))
					continue
				}
				for i, r := range c.Rules {
					compared++
					if got := natTo.ReplaceAllString(r.Text, "$1 to"); got != texts[i] {
						t.Errorf("%s rule %d:\n got %s\nwant %s", c.Name, r.Num, got, texts[i])
					}
				}
			}
		}
		if compared < 100 {
			t.Errorf("%s: only %d rules compared", name, compared)
		}
	}
}
