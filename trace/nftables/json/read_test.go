// SPDX-License-Identifier: Apache-2.0

package json

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ruleOf reads a rule of one statement.
func ruleOf(t *testing.T, statement string) syntax.Rule {
	t.Helper()
	rule, err := newRuleReader()(nil, syntax.Source(`{"family":"ip","expr":[`+statement+`]}`))
	if err != nil || len(rule.Statements) != 1 {
		t.Fatalf("%s: %+v, %v", statement, rule, err)
	}
	return rule
}

func TestStatements(t *testing.T) {
	saddr := &syntax.Payload{Protocol: "ip", Field: "saddr"}
	for text, want := range map[string]syntax.Statement{
		`{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},
			"right":{"set":["10.0.0.1",5]}}}`: &syntax.Match{
			Op: "==", Left: saddr, Right: syntax.AnonymousSet{{Key: syntax.String("10.0.0.1")}, {Key: syntax.Number(5)}},
		},
		`{"match":{"op":"in","left":{"ct":{"key":"mark","dir":"reply"}},"right":["a","b"]}}`: &syntax.Match{
			Op: "in", Left: &syntax.CT{Key: "mark", Dir: "reply"}, Right: syntax.List{syntax.String("a"), syntax.String("b")},
		},
		`{"drop":null}`:            &syntax.Verdict{Kind: "drop"},
		`{"jump":{"target":"a"}}`:  &syntax.Verdict{Kind: "jump", Target: "a"},
		`{"counter":{"bytes":5}}`:  syntax.Plain("counter"),
		`{"counter":"c\u00e9"}`:    &syntax.ObjectRef{Kind: "counter", Name: "cé"},
		`{"notrack":null}`:         syntax.Plain("notrack"),
		`{"ct helper":"ftp"}`:      &syntax.ObjectRef{Kind: "ct helper", Name: "ftp"},
		`{"masquerade":null}`:      &syntax.NAT{Kind: "masquerade"},
		`{"queue":{"flags":"fo"}}`: &syntax.Queue{Flags: []string{"fo"}},
		`{"dnat":{"addr":{"map":{"key":{"numgen":{"mode":"inc","mod":2,"offset":0}},"data":{"set":[[0,"10.0.0.1"]]}}},
			"flags":["a"]}}`: &syntax.NAT{
			Kind: "dnat", Flags: []string{"a"}, Addr: &syntax.Map{
				Key:  &syntax.Numgen{Mode: "inc", Mod: 2},
				Data: syntax.AnonymousSet{{Key: syntax.Number(0), Value: syntax.String("10.0.0.1")}},
			},
		},
		`{"set":{"op":"add","elem":{"elem":{"val":"a","timeout":0}},"set":"@s","stmt":[{"last":null}]}}`: &syntax.Update{
			Kind: "set", Op: "add", Set: "@s", Elem: &syntax.Elem{Val: syntax.String("a"), Timed: true},
			Statements: []syntax.Statement{syntax.Plain("last")},
		},
		// What lacks something, or is not known, keeps its text, with sorted members.
		`{"match":{"right":1, "op":"=="}}`: &syntax.Opaque{Name: "match", Text: `{"match":{"op":"==","right":1}}`},
		`{"jump":{}}`:                      &syntax.Opaque{Name: "jump", Text: `{"jump":{}}`},
		`{"limit":{"map":{"data":"@m"}}}`:  &syntax.Opaque{Name: "limit", Text: `{"limit":{"map":{"data":"@m"}}}`},
		`{"odd" : {"b":1.50, "a":"<"}}`:    &syntax.Opaque{Name: "odd", Text: `{"odd":{"a":"\u003c","b":1.5}}`},
		`{"drop":null,"accept":null}`:      &syntax.Opaque{Text: `{"accept":null,"drop":null}`},
		`{}`:                               &syntax.Opaque{Text: `{}`},
		`"accept"`:                         &syntax.Opaque{Name: "accept", Text: `"accept"`},
		`[1, 2]`:                           &syntax.Opaque{Text: `[1,2]`},
		`{"dnat":{"addr":null}}`:           &syntax.Opaque{Name: "dnat", Text: `{"dnat":{"addr":null}}`},
		`{"match":{"left":{"numgen":{"mod":2,"offset":"a"}},"right":1}}`: &syntax.Match{
			Left: &syntax.Opaque{Name: "numgen", Text: `{"numgen":{"mod":2,"offset":"a"}}`}, Right: syntax.Number(1),
		},
		`{"mangle":{"key":null,"value":1}}`:  &syntax.Opaque{Name: "mangle", Text: `{"mangle":{"key":null,"value":1}}`},
		`{"vmap":{"data":"@m","key":null }}`: &syntax.Opaque{Name: "vmap", Text: `{"vmap":{"data":"@m","key":null}}`},
	} {
		if got := ruleOf(t, text).Statements[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %#v\nwant %#v", text, got, want)
		}
	}
}

// Expressions that stand in each other without end are read up to a depth, and do not take time without end.
func TestDepth(t *testing.T) {
	const levels = 2000
	for _, open := range []string{`{"elem":{"val":`, `{"prefix":{"addr":`, `{"concat":[{"&":[`} {
		shut := strings.Map(func(r rune) rune { return map[rune]rune{'{': '}', '[': ']'}[r] }, open)
		shut = strings.ReplaceAll(shut, "\x00", "")
		var end strings.Builder
		for i := len(shut) - 1; i >= 0; i-- {
			end.WriteByte(shut[i])
		}
		depth := levels / len(shut)
		text := strings.Repeat(open, depth) + "1" + strings.Repeat(end.String(), depth)
		rule := ruleOf(t, `{"match":{"op":"==","left":`+text+`,"right":1}}`)
		if got := rule.Text(); len(got) < len(text)-depth*len(open) {
			t.Errorf("%s: the text has only %d bytes", open, len(got))
		}
	}
}

func TestRead(t *testing.T) {
	rs, err := Read([]byte(`{"nftables":[{"metainfo":{"version":"1.0.6"}},null,
		{"rule":{"family":"ip","table":"t","chain":"c","handle":4,"comment":"x","expr":[{"accept":null}]}},
		{"table":{"family":"other","name":"b"}},
		{"table":{"family":"ip","name":"t","flags":"dormant"}},
		{"chain":{"family":"ip","table":"t","name":"c","type":"nat","hook":"output","prio":-100,"policy":"drop"}},
		{"map":{"family":"ip","name":"m","table":"t","type":["ipv4_addr","inet_service"],"map":"verdict","timeout":60,
			"elem":[[{"concat":["10.0.0.1",80]},{"goto":{"target":"c"}}]]}},
		{"set":{"family":"ip","name":"s","table":"t","type":{"typeof":{"meta":{"key":"mark"}}},"elem":[["a","b"]]}}]}`))
	if err != nil || len(rs.Tables) != 1 || rs.Complete {
		t.Fatalf("%+v, %v", rs, err)
	}
	table := rs.Tables[0]
	priority := -100
	if want := []*syntax.Chain{{
		Name: "c", Type: "nat", Hook: "output", Priority: &priority,
		Policy: "drop",
	}}; !table.Declared ||
		!reflect.DeepEqual(table.Flags, []string{"dormant"}) || !reflect.DeepEqual(table.Chains, want) {
		t.Errorf("%+v", table)
	}
	want := []*syntax.Set{
		{
			Name: "m", Keys: syntax.Type{Names: []string{"ipv4_addr", "inet_service"}},
			Data: &syntax.Type{Names: []string{"verdict"}}, Timeout: 60, Elements: []syntax.Element{{
				Key:   syntax.Concat{syntax.String("10.0.0.1"), syntax.Number(80)},
				Value: &syntax.Verdict{Kind: "goto", Target: "c"},
			}},
		},
		{
			Name: "s", Keys: syntax.Type{Of: &syntax.Meta{Key: "mark"}},
			Elements: []syntax.Element{{Key: syntax.List{syntax.String("a"), syntax.String("b")}}},
		},
	}
	if !reflect.DeepEqual(table.Sets, want) {
		t.Errorf("sets %+v", table.Sets)
	}
	rules := table.Rules("c")
	if len(rules) != 1 || len(table.Rules("none")) != 0 {
		t.Fatalf("%d rules", len(rules))
	}
	rule, err := rs.NewRuleReader()(table, rules[0])
	if got := rule.Text(); err != nil || got != `accept comment "x"` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	good := readFile(t, "firewalld.json")
	for name, c := range map[string]struct{ text, want string }{
		"empty":      {" \n", "it is empty"},
		"text":       {"table ip filter {\n", "it is not JSON: invalid character"},
		"cut off":    {string(good[:900]), "the JSON is cut off at byte 900"},
		"other JSON": {`{"kind":"List","items":[]}`, `it has no "nftables"`},
		"a list":     {`[]`, "it has [ where { was due (byte 1)"},
		"no list":    {`{"nftables":5}`, "it has 5 where [ was due (byte 13)"},
		"wrong type": {
			`{"nftables":[{"chain":{"family":5}}]}`, "it has a number for chain.family, where string was expected",
		},
		"fraction": {
			`{"nftables":[{"chain":{"prio":1.5}}]}`, "it has a number 1.5 for chain.prio, where int was expected",
		},
		"elements":  {`{"nftables":[{"set":{"elem":"a"}}]}`, "it has a string for set.elem, where slice was expected"},
		"no object": {`{"nftables":[5]}`, "it has a number for nftables, where struct was expected"},
		"flags": {
			`{"nftables":[{"table":{"flags":5}}]}`, "it has a number for the flags of a table, where a list was expected",
		},
		"behind it":   {`{"nftables":[]} {}`, "there is something after the ruleset"},
		"a bad rule":  {`{"nftables":[{"rule":{"expr":[{]}}]}`, "it is not JSON"},
		"deep enough": {`{"nftables":[{"rule":{"expr":` + strings.Repeat("[", 20000), "it is not JSON: exceeded max depth"},
	} {
		rs, err := Read([]byte(c.text))
		if err == nil || rs != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	for text, want := range map[string]string{
		`{"expr":5}`:                          "it has a number for rule.expr, where slice was expected",
		`{"comment":5}`:                       "it has a number for rule.comment, where string was expected",
		`{"expr":[1e999]}`:                    "",
		`{"expr":[{"limit":{"rate":1e999}}]}`: "it has a number that is too large",
	} {
		_, err := newRuleReader()(nil, syntax.Source(text))
		if want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// FuzzRead reads a damaged listing and writes all of its rules.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"firewalld.json", "everything.json"} {
		f.Add(readFile(f, name))
	}
	testutil.AddHostile(f, "{\"nftables\":[{\"rule\":{\"family\":\"ip\",\"table\":\"t\",\"chain\":\"c\",\"expr\":[]}}]}")
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			rs, err := Read(data)
			if err != nil {
				if rs != nil {
					t.Errorf("a ruleset with the error %v", err)
				}
				return
			}
			read := rs.NewRuleReader()
			for _, table := range rs.Tables {
				for _, c := range table.Chains {
					for _, s := range table.Rules(c.Name) {
						rule, err := read(table, s)
						if err == nil && len(rule.Statements) > 0 && rule.Text() == "" {
							t.Errorf("%s has no text", s)
						}
					}
				}
			}
		})
	})
}
