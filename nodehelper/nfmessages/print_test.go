// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"bytes"
	"encoding/binary"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/json"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

var update = flag.Bool("update", false, "write the golden files again")

// machineOf is the machine on which the fixtures were read.
func machineOf(name string) *Node {
	n := &Node{Order: binary.LittleEndian, Interfaces: map[int]string{1: "lo", 2: "eth0"}}
	if name == "extra" {
		n.Left = []syntax.TableName{{Family: "ip", Name: "nat"}}
	}
	return n
}

// texts are those of all rules and sets.
func texts(t *testing.T, rs *syntax.Ruleset) (out []string) {
	t.Helper()
	read := rs.NewRuleReader()
	for _, table := range rs.Tables {
		at := table.Family + " " + table.Name + " "
		out = append(out, at+table.Alien)
		for _, s := range table.Sets {
			for i := range s.Elements {
				out = append(out, at+s.Name+" "+syntax.ElementText(&s.Elements[i]))
			}
		}
		for _, c := range table.Chains {
			for _, source := range table.Rules(c.Name) {
				rule, err := read(table, source)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, at+c.Name+" "+rule.Text())
			}
		}
	}
	return out
}

// TestPrintedIsRead: what is printed is what was read before, rule by rule and set by set.
func TestPrintedIsRead(t *testing.T) {
	for _, name := range []string{"everything", "extra", "more"} {
		rs, err := Read(readFile(t, name+".nl"), machineOf(name))
		if err != nil {
			t.Fatal(err)
		}
		printed, err := rs.JSON()
		if err != nil {
			t.Fatal(err)
		}
		golden := "../../trace/nftables/testdata/" + name + ".kernel.json"
		if *update {
			if err := os.WriteFile(golden, printed, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, printed) {
			t.Errorf("%s is not what is printed: %v", golden, err)
		}
		back, err := json.Read(printed)
		if err != nil {
			t.Fatal(err)
		}
		got, want := texts(t, back), texts(t, rs)
		if !reflect.DeepEqual(got, want) {
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					t.Errorf("%s:\n got %q\nwant %q", name, got[min(i, len(got)-1)], want[i])
					break
				}
			}
		}
		if !back.Complete || len(back.Tables) != len(rs.Tables) {
			t.Errorf("%s: complete %t, %d tables", name, back.Complete, len(back.Tables))
		}
		for i, table := range rs.Tables {
			b := back.Tables[i]
			if b.RulesNotRead != table.RulesNotRead || !reflect.DeepEqual(b.Flags, table.Flags) ||
				!reflect.DeepEqual(b.Chains, table.Chains) {
				t.Errorf("%s: the table %v:\n got %+v\nwant %+v", name, table.TableName, b, table)
			}
			for j, s := range table.Sets {
				s, o := *s, *b.Sets[j]
				s.Elements, o.Elements, s.Statements, o.Statements = nil, nil, nil, nil
				if !reflect.DeepEqual(o, s) {
					t.Errorf("%s: the set %s:\n got %+v\nwant %+v", name, s.Name, o, s)
				}
			}
		}
	}
}
