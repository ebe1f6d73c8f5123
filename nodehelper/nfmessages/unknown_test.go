// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/json"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// attr writes an attribute.
func attr(kind uint16, values ...[]byte) []byte {
	value := slices.Concat(values...)
	out := binary.LittleEndian.AppendUint16(nil, uint16(attrHeader+len(value)))
	out = append(binary.LittleEndian.AppendUint16(out, kind), value...)
	return append(out, make([]byte, align(len(out))-len(out))...)
}

// nfMessage writes a message of nf_tables, of the family ip.
func nfMessage(kind uint16, attributes ...[]byte) []byte {
	body := append([]byte{2, 0, 0, 0}, slices.Concat(attributes...)...)
	out := binary.LittleEndian.AppendUint32(nil, uint32(messageHeader+len(body)))
	out = append(binary.LittleEndian.AppendUint16(out, subsystem<<8|kind), make([]byte, 10)...)
	return append(out, body...)
}

func zero(s string) []byte { return append([]byte(s), 0) }

// listed is what is read of what is printed of the kernel's answers.
func listed(t *testing.T, answers []byte) *syntax.Ruleset {
	t.Helper()
	rs, err := Read(answers, machineOf(""))
	if err != nil {
		t.Fatal(err)
	}
	printed, err := rs.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if rs, err = json.Read(printed); err != nil {
		t.Fatalf("%v:\n%s", err, printed)
	}
	return rs
}

// unknownIn tells whether a rule has a statement that is not known, which names something.
func unknownIn(t *testing.T, rs *syntax.Ruleset, name string) bool {
	t.Helper()
	table := rs.Tables[0]
	rule, err := rs.NewRuleReader()(table, table.Rules("c")[0])
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(rule.Statements, func(s syntax.Statement) bool {
		o, ok := s.(*syntax.Opaque)
		return ok && o.Name == "unknown" && strings.Contains(o.Text, name)
	})
}

// ofRule are answers with one rule.
func ofRule(attributes ...[]byte) []byte {
	return slices.Concat(nfMessage(msgNewTable, attr(tableName, zero("t"))),
		nfMessage(msgNewChain, attr(chainTable, zero("t")), attr(chainName, zero("c"))),
		nfMessage(msgNewRule, append([][]byte{attr(ruleTable, zero("t")), attr(ruleChain, zero("c"))}, attributes...)...))
}

// TestUnknownExpressionsAndAttributes: what a newer kernel has, and nobody here knows, is in the listing as unknown: an
// expression, and an attribute of each expression that is known. To skip one would make the rule wider.
func TestUnknownExpressionsAndAttributes(t *testing.T) {
	expression := func(name string, data ...[]byte) []byte {
		return attr(listElement, attr(exprName, zero(name)), attr(exprData, data...))
	}
	if rs := listed(t, ofRule(attr(ruleExprs, expression("invented")))); !unknownIn(t, rs, "invented") {
		t.Error("an invented expression is not unknown")
	}
	names := slices.Sorted(maps.Keys(wireExpressions))
	for _, name := range names {
		last := 0
		for n := range maxAttr {
			if wireExpressions[name].known>>n&1 == 1 {
				last = n
			}
		}
		for _, number := range []int{last + 1, maxAttr - 1, maxAttr, 0x3fff} {
			want := name + ` with the attribute `
			if number >= maxAttr {
				want = name + ` with an attribute`
			}
			rs := listed(t, ofRule(attr(ruleExprs, expression(name, attr(uint16(number), []byte{0, 0, 0, 1})))))
			if !unknownIn(t, rs, want) {
				t.Errorf("%s with the attribute %d is not unknown", name, number)
			}
		}
	}
	if len(names) < 30 {
		t.Errorf("only %d expressions", len(names))
	}
	for what, answers := range map[string][]byte{
		"invented beside": ofRule(attr(ruleExprs, attr(listElement, attr(exprName, zero("notrack")), attr(3, zero("x"))))),
		"a rule with":     ofRule(attr(20, []byte{0}), attr(ruleExprs, expression("notrack"))),
		"of a list":       ofRule(attr(ruleExprs, attr(2, attr(exprName, zero("notrack"))))),
	} {
		if what == "invented beside" {
			what = "notrack with the attribute 3"
		}
		if rs := listed(t, answers); !unknownIn(t, rs, what) {
			t.Errorf("%s: it is not unknown", what)
		}
	}
}

// TestUnknownAttributesOfTables: nothing is claimed of a table with something that nobody knows.
func TestUnknownAttributesOfTables(t *testing.T) {
	table := nfMessage(msgNewTable, attr(tableName, zero("t")))
	set := func(more ...[]byte) []byte {
		return nfMessage(msgNewSet, append([][]byte{
			attr(setTable, zero("t")), attr(setName, zero("s")), attr(setKeyType, []byte{0, 0, 0, 13}),
			attr(setKeyLen, []byte{0, 0, 0, 2}),
		}, more...)...)
	}
	element := func(attributes ...[]byte) []byte {
		return nfMessage(msgNewElement, attr(listTable, zero("t")), attr(listSet, zero("s")),
			attr(listElements, attr(listElement, attributes...)))
	}
	key := attr(elementKey, attr(dataValue, []byte{0, 80}))
	one, bit3 := []byte{0, 0, 0, 1}, []byte{0, 0, 0, 8}
	hook := func(more ...[]byte) []byte {
		return attr(chainHook, append([][]byte{attr(hookNumber, make([]byte, 4)), attr(hookPriority, make([]byte, 4))},
			more...)...)
	}
	for what, answers := range map[string][]byte{
		"":                           slices.Concat(table, set(), element(key)),
		"a table with the attribute": nfMessage(msgNewTable, attr(tableName, zero("t")), attr(20, one)),
		"a table with the flags":     nfMessage(msgNewTable, attr(tableName, zero("t")), attr(tableFlags, bit3)),
		"a chain with the attribute": slices.Concat(table, nfMessage(msgNewChain, attr(chainTable, zero("t")),
			attr(chainName, zero("c")), attr(20, one))),
		"a chain's hook with the attribute": slices.Concat(table, nfMessage(msgNewChain, attr(chainTable, zero("t")),
			attr(chainName, zero("c")), hook(attr(20, one)))),
		"a set with an attribute":                   slices.Concat(table, set(attr(200, one))),
		"an element of a set with the attribute":    slices.Concat(table, set(), element(key, attr(20, one))),
		"an element of a set with the flags":        slices.Concat(table, set(), element(key, attr(elementFlags, bit3))),
		"an element of a set with a key that is no": slices.Concat(table, set(), element(attr(elementKey, attr(5, one)))),
	} {
		rs := listed(t, answers)
		if got := rs.Tables[0].Alien; what == "" && got != "" || !strings.Contains(got, what) {
			t.Errorf("%q: %q", what, got)
		}
	}
}
