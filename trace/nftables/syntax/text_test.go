// SPDX-License-Identifier: Apache-2.0

package syntax_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/json"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var (
	counters = regexp.MustCompile(`counter packets \d+ bytes \d+`)
	handle   = regexp.MustCompile(` ?# handle \d+$`)
	spaces   = regexp.MustCompile(` +`)
	// nft 1.0.6 leaves this out, and cannot read what it prints.
	natTo = regexp.MustCompile(`(dnat ip6?) addr \. port to`)
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
	for name, file := range map[string]string{
		"everything": "../testdata/everything.json",
		"nftables":   "../../../testdata/snapshots/nftables/nodes/node1/nft-ruleset.json",
	} {
		want := rulesOf(string(readFile(t, "../testdata/"+name+".txt")))
		rs, err := json.Read(readFile(t, file))
		if err != nil {
			t.Fatal(err)
		}
		read := rs.NewRuleReader()
		compared := 0
		for _, table := range rs.Tables {
			for _, c := range table.Chains {
				texts, sources := want[table.Family+" "+table.Name+" "+c.Name], table.Rules(c.Name)
				if len(texts) != len(sources) {
					t.Errorf("%s %s: %d rules, nft has %d", table.Name, c.Name, len(sources), len(texts))
					continue
				}
				for i, s := range sources {
					compared++
					rule, err := read(table, s)
					if err != nil {
						t.Fatal(err)
					}
					if got := natTo.ReplaceAllString(rule.Text(), "$1 to"); got != texts[i] {
						t.Errorf("%s rule %d:\n got %s\nwant %s", c.Name, i+1, got, texts[i])
					}
				}
			}
		}
		if compared < 100 {
			t.Errorf("%s: only %d rules compared", name, compared)
		}
	}
}

// What nft list ruleset has no words for is written as JSON, with sorted members.
func TestTextOfWhatNFTHasNoWordsFor(t *testing.T) {
	saddr := &syntax.Payload{Protocol: "ip", Field: "saddr"}
	for want, s := range map[string]syntax.Statement{
		`{"ip option":{"field":"type","name":"lsrr"}} 1`: &syntax.Match{
			Op: "==", Left: &syntax.Header{Kind: "ip option", Name: "lsrr", Field: "type"}, Right: syntax.Number(1),
		},
		`{"ct count":"a\u003cb"}`: &syntax.ObjectRef{Kind: "ct count", Name: "a<b"},
		`counter name ip saddr map { 192.0.2.1 : "k" }`: &syntax.ObjectRef{Kind: "counter", Map: &syntax.Map{
			Key: saddr, Data: syntax.AnonymousSet{{Key: syntax.String("192.0.2.1"), Value: syntax.String("k")}},
		}},
		`ct timeout set ip saddr map @m`: &syntax.ObjectRef{
			Kind: "ct timeout", Map: &syntax.Map{Key: saddr, Data: syntax.String("@m")},
		},
		`dup to 192.0.2.1 device "lo"`: &syntax.Dup{Addr: syntax.String("192.0.2.1"), Dev: syntax.String("lo")},
		`dup to "lo"`:                  &syntax.Dup{Addr: syntax.String("lo")},
		`reset tcp option window`:      &syntax.Reset{Option: &syntax.Header{Kind: "tcp option", Name: "window"}},
		`ct helper set "ftp"`:          &syntax.ObjectRef{Kind: "ct helper", Name: "ftp"},
		`snat ip6 to [fd00::1]:80 random`: &syntax.NAT{
			Kind: "snat", Family: "ip6", Addr: syntax.String("fd00::1"), Port: syntax.Number(80), Flags: []string{"random"},
		},
		`update @s { ip saddr timeout 0s counter }`: &syntax.Update{
			Kind: "set", Op: "update", Set: "@s", Elem: &syntax.Elem{Val: saddr, Timed: true},
			Statements: []syntax.Statement{syntax.Plain("counter")},
		},
		`ip saddr { 192.0.2.1 limit rate over 10/second timeout 5s comment "x" }`: &syntax.Match{
			Op: "==", Left: saddr, Right: syntax.AnonymousSet{{Key: &syntax.Elem{
				Val: syntax.String("192.0.2.1"), Timed: true, Timeout: 5, Comment: "x",
				Statements: []syntax.Statement{&syntax.Limit{Inverted: true, Rate: 10, Per: "second", Burst: 5}},
			}}},
		},
	} {
		if got := syntax.StatementText(s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	for want, e := range map[string]syntax.Expr{
		`null`:                                 nil,
		`{"ct":{"dir":"reply","key":"bytes"}}`: &syntax.CT{Key: "bytes", Dir: "reply"},
		`{"ct":{"key":"mark"}}`:                &syntax.CT{Key: "mark"},
		`{"fib":{"flags":["saddr","iif"],"result":"oif"}}`: &syntax.Fib{
			Result: "oif", Flags: []string{"saddr", "iif"},
		},
		`{"jhash":{"expr":{"meta":{"key":"mark"}},"mod":4,"seed":1}}`: &syntax.Hash{
			Name: "jhash", Expr: &syntax.Meta{Key: "mark"}, Mod: 4, Seed: 1, Seeded: true,
		},
		`{"map":{"data":{"set":[[1,{"jump":{"target":"c"}}],["*",{"drop":null}]]},"key":{"concat":["a",true]}}}`: &syntax.Map{
			Key: syntax.Concat{syntax.String("a"), syntax.Bool(true)},
			Data: syntax.AnonymousSet{
				{Key: syntax.Number(1), Value: &syntax.Verdict{Kind: "jump", Target: "c"}},
				{Key: syntax.String("*"), Value: &syntax.Verdict{Kind: "drop"}},
			},
		},
		`{"elem":{"timeout":5,"val":{"prefix":{"addr":"10.0.0.0","len":8}}}}`: &syntax.Elem{
			Val: &syntax.Prefix{Addr: syntax.String("10.0.0.0"), Len: 8}, Timed: true, Timeout: 5,
		},
		`{"\u0026":[{"payload":{"base":"nh","len":8,"offset":16}},{"range":[1,2]}]}`: &syntax.Binary{
			Op: "&", Operands: []syntax.Expr{
				&syntax.RawPayload{Base: "nh", Offset: 16, Len: 8}, &syntax.Range{From: syntax.Number(1), To: syntax.Number(2)},
			},
		},
	} {
		if got := syntax.JSON(e); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
