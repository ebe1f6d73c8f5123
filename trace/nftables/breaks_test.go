// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// What is looked up and not found ends the rule, whatever the statement does with it.
func TestStatementsThatFindNothing(t *testing.T) {
	by := func(key, value string) string {
		return `{"map":{"key":` + saddr + `,"data":{"set":[["` + key + `",` + value + `]]}}}`
	}
	mangle := func(key, value string) func(string) string {
		return func(addr string) string { return `{"mangle":{"key":` + key + `,"value":` + by(addr, value) + `}}` }
	}
	object := func(kind string) func(string) string {
		return func(addr string) string { return `{"` + kind + `":` + by(addr, `"o"`) + `}` }
	}
	named := func(kind string) func(string) string {
		return func(addr string) string {
			return `{"` + kind + `":{"map":{"key":` + saddr + `,"data":"@m` + strings.ReplaceAll(addr, ".", "") + `"}}}`
		}
	}
	const unclear = "100% not known?, 100% sent?"
	const maps = `{"map":{IN,"name":"m10001","type":"ipv4_addr","map":"counter","elem":[["10.0.0.1","o"]]}},
		{"map":{IN,"name":"m192021","type":"ipv4_addr","map":"counter","elem":[["192.0.2.1","o"]]}}`
	for name, c := range map[string]struct {
		statement func(addr string) string
		found     string
	}{
		"a counter":              {object("counter"), "100% dropped"},
		"a counter of a set":     {named("counter"), "100% dropped"},
		"a helper":               {object("ct helper"), "100% dropped"},
		"a label for SELinux":    {object("secmark"), "100% dropped"},
		"an answer to SYNs":      {object("synproxy"), "100% taken"},
		"a timeout":              {object("ct timeout"), unclear},
		"an expectation":         {object("ct expectation"), unclear},
		"a priority":             {mangle(`{"meta":{"key":"priority"}}`, `"1:10"`), "100% dropped"},
		"a class of traffic":     {mangle(`{"payload":{"protocol":"ip","field":"dscp"}}`, `8`), "100% dropped"},
		"a size of segments":     {mangle(`{"tcp option":{"name":"maxseg","field":"size"}}`, `1000`), "100% dropped"},
		"another field of TCP's": {mangle(`{"tcp option":{"name":"timestamp","field":"tsval"}}`, `1`), unclear},
		"a label":                {mangle(`{"ct":{"key":"label"}}`, `1`), "100% dropped"},
		"a mark":                 {mangle(`{"meta":{"key":"mark"}}`, `1`), "100% dropped mark 0x1"},
	} {
		for addr, want := range map[string]string{"192.0.2.1": "100% sent", "10.0.0.1": c.found} {
			rs := ruleset(t, "ip", "filter", "forward", 0, maps, c.statement(addr)+`,{"drop":null}`)
			res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
			if got := ends(&res); got != want {
				t.Errorf("%s for %s: got %s, want %s", name, addr, got, want)
			}
		}
	}
}

// A rule that puts something into a full set ends there (nft_dynset_eval).
func TestFullSets(t *testing.T) {
	const accepted, dropped, unclear = "100% sent", "100% dropped", "100% dropped?, 100% sent?"
	elements := func(n int) string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf(`"192.0.2.%d"`, i)
		}
		return strings.Join(out, ",")
	}
	for _, c := range []struct{ name, set, op, want string }{
		{"full", `"size":2,"elem":[` + elements(2) + `]`, "add", dropped},
		{"full, and updated", `"size":2,"elem":[` + elements(2) + `]`, "update", dropped},
		{"full, and has it", `"size":2,"elem":["192.0.2.1","10.0.0.1"]`, "add", accepted},
		{"full, and something is taken out", `"size":2,"elem":[` + elements(2) + `]`, "delete", accepted},
		{"full, and elements expire", `"size":2,"flags":["timeout"],"elem":[` + elements(2) + `]`, "add", unclear},
		{"nearly full", `"size":100,"elem":[` + elements(90) + `]`, "add", unclear},
		{"half full", `"size":100,"elem":[` + elements(50) + `]`, "add", accepted},
		{"nearly full where elements may expire", `"size":200,"timeout":60,"elem":[` + elements(170) + `]`, "add", unclear},
		{"of no size", `"elem":[` + elements(90) + `]`, "add", accepted},
		{"full of what cannot be read", `"size":2,"elem":["192.0.2.1",{"of tomorrow":null}]`, "add", unclear},
		{
			"of kube-proxy", `"size":65535,"flags":["timeout"],"timeout":10800,"elem":[` + elements(200) + `]`, "update",
			accepted,
		},
	} {
		rs := ruleset(t, "ip", "filter", "forward", 0,
			`{"set":{IN,"name":"s","type":"ipv4_addr",`+c.set+`}}`,
			`{"set":{"op":"`+c.op+`","elem":`+saddr+`,"set":"@s"}},`+accept, `{"drop":null}`)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// What stands on an element may end the rule that finds it, as in the rule itself (nft_set_elem_update_expr).
func TestStatementsOfElements(t *testing.T) {
	const accepted, dropped, unclear = "100% sent", "100% dropped", "100% dropped?, 100% sent?"
	const limit = `"limit":{"rate":1,"burst":1,"per":"hour"}`
	in := func(sign string) string {
		return `{"match":{"op":"` + sign + `","left":` + saddr + `,"right":"@s"}},` + accept
	}
	set := func(more string) string { return `{"set":{IN,"name":"s","type":"ipv4_addr",` + more + `}}` }
	on := func(key, statement string) string {
		return `{"elem":{"val":"` + key + `","expires":7,` + statement + `}}`
	}
	elem := func(key, statement string) string { return set(`"elem":["192.0.2.1",` + on(key, statement) + `]`) }
	toVerdict := `{"map":{IN,"name":"s","type":"ipv4_addr","map":"verdict","elem":[[` + on("10.0.0.1", limit) +
		`,{"accept":null}]]}}`
	toMark := `{"map":{IN,"name":"s","type":"ipv4_addr","map":"mark","elem":[[` + on("10.0.0.1", limit) + `,1]]}}`
	put := func(operation string) string {
		return `{"set":{"op":"` + operation + `","elem":` + saddr + `,"set":"@s"}},` + accept
	}
	for _, c := range []struct{ name, set, rule, want string }{
		{"a counter", elem("10.0.0.1", `"counter":{"packets":1,"bytes":60}`), in("=="), accepted},
		{"the last use", elem("10.0.0.1", `"last":{"used":100}`), in("=="), accepted},
		{"a limit", elem("10.0.0.1", limit), in("=="), unclear},
		{"a quota", elem("10.0.0.1", `"quota":{"val":1,"val_unit":"bytes"}`), in("=="), unclear},
		{"a number of connections", elem("10.0.0.1", `"ct count":{"val":1}`), in("=="), unclear},
		{"a counter and a limit", elem("10.0.0.1", `"counter":{"packets":1,"bytes":60},`+limit), in("=="), unclear},
		{"a statement of tomorrow", elem("10.0.0.1", `"of tomorrow":{}`), in("=="), "100% dropped?, 100% not known?"},
		{"a limit of another element", elem("10.0.0.2", limit), in("=="), dropped},
		{"a limit of an element that is not to be there", elem("10.0.0.1", limit), in("!="), dropped},
		{"a limit of an element that is not there", elem("10.0.0.2", limit), in("!="), accepted},
		{"a limit in a map of verdicts", toVerdict, `{"vmap":{"key":` + saddr + `,"data":"@s"}}`, unclear},
		{
			"a limit in a map of marks", toMark,
			`{"mangle":{"key":{"meta":{"key":"priority"}},"value":{"map":{"key":` + saddr + `,"data":"@s"}}}},` + accept,
			unclear,
		},
		{
			"a limit in a set of the rule", set(`"elem":[]`),
			`{"match":{"op":"==","left":` + saddr + `,"right":{"set":[` + on("10.0.0.1", limit) + `]}}},` + accept, unclear,
		},
		{"a limit of what is put in", set(`"stmt":[{` + limit + `}],"elem":[]`), put("add"), unclear},
		{"a limit of what is there, and put in", elem("10.0.0.1", limit), put("update"), unclear},
		{"a limit of what is taken out", elem("10.0.0.1", limit), put("delete"), accepted},
		{"a counter of what is put in", set(`"stmt":[{"counter":null}],"elem":[]`), put("add"), accepted},
	} {
		rs := ruleset(t, "ip", "filter", "forward", 0, c.set, c.rule, `{"drop":null}`)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// What takes TCP options out, sends copies, or marks packets as those for others is certain only where it does no harm.
func TestStatementsThatMayDoHarm(t *testing.T) {
	const unclear = "100% not known?, 100% sent?, 100% sent?" // nor does nft tell which devices the chain is of
	for rule, want := range map[string]string{
		`{"reset":{"tcp option":{"name":"window"}}}`:                        unclear,
		`{"reset":{"tcp option":{"name":"mptcp"}}}`:                         unclear,
		`{"reset":{"tcp option":{"name":"sack-perm"}}}`:                     "100% sent",
		`{"dup":{"addr":"lo"}}`:                                             "100% sent",
		`{"dup":{"addr":"eth0"}}`:                                           unclear,
		`{"dup":{"addr":"eth9"}}`:                                           unclear,
		`{"dup":null}`:                                                      unclear,
		`{"mangle":{"key":{"meta":{"key":"pkttype"}},"value":"host"}}`:      "100% sent",
		`{"mangle":{"key":{"meta":{"key":"pkttype"}},"value":"unicast"}}`:   "100% sent",
		`{"mangle":{"key":{"meta":{"key":"pkttype"}},"value":"other"}}`:     unclear,
		`{"mangle":{"key":{"meta":{"key":"pkttype"}},"value":"broadcast"}}`: unclear,
		`{"ct expectation":"e"}`:                                            "100% sent", // no connection yet
	} {
		rs := ruleset(t, "netdev", "filter", "ingress", 0, "", rule)
		res := netfilter.NewWalker(rs, smallHost(t), nil).Walk(starts[0], netfilter.Options{})
		if got := ends(&res); got != want {
			t.Errorf("%s: got %s, want %s", rule, got, want)
		}
	}
}
