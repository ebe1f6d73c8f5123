// SPDX-License-Identifier: Apache-2.0

package nfmessages

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/json"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestErrors(t *testing.T) {
	good := readFile(t, "extra.nl")
	damaged := func(at int, b byte) []byte {
		out := slices.Clone(good)
		out[at] = b
		return out
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut off":       {good[:len(good)-3], "are left"},
		"half a header": {append(slices.Clone(good), 1, 2, 3, 4), "cut off"},
		"short message": {damaged(0, 5), "the message at byte 0"},
		"attribute":     {damaged(messageHeader+genericHeader, 2), "damaged"},
	} {
		rs, err := Read(c.data, machineOf(""))
		if err == nil || rs != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// What is no element is counted as one before it is read, and takes no memory beyond the limit.
func TestMoreElementsThanAreRead(t *testing.T) {
	data := slices.Concat(nfMessage(msgNewTable, attr(tableName, zero("t"))), nfMessage(msgNewSet,
		attr(setTable, zero("t")), attr(setName, zero("s")), attr(setKeyLen, []byte{0, 0, 0, 4})))
	const atOnce = 16_000
	list := bytes.Repeat(attr(1, nil), atOnce)
	for range mostElements/atOnce + 1 {
		data = append(data,
			nfMessage(msgNewElement, attr(listTable, zero("t")), attr(listSet, zero("s")), attr(listElements, list))...)
	}
	_, err := Read(data, machineOf(""))
	if want := "more than 1000000 elements"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}

// Values of the machine's own order are read in the order that the header says.
func TestDumpOfABigEndianMachine(t *testing.T) {
	d := newDump(&Node{Order: binary.BigEndian})
	if got := wireMark.constant(d, wireMark.inOrder(d, []byte{0, 0, 0x40, 0}, false)); got != syntax.Number(0x4000) {
		t.Errorf("the mark is %v", got)
	}
	d = newDump(&Node{Order: binary.LittleEndian})
	if got := wireMark.constant(d, wireMark.inOrder(d, []byte{0, 0x40, 0, 0}, false)); got != syntax.Number(0x4000) {
		t.Errorf("the mark is %v", got)
	}
}

// FuzzRule damages the expressions of a rule, and what belongs to it.
func FuzzRule(f *testing.F) {
	rs, err := Read(readFile(f, "more.nl"), machineOf("more"))
	if err != nil {
		f.Fatal(err)
	}
	for _, t := range rs.Tables {
		for _, c := range t.Chains {
			for _, s := range t.Rules(c.Name) {
				var a attrs
				if err := parseAttrs(s, binary.LittleEndian, &a); err != nil {
					f.Fatal(err)
				}
				f.Add(a[ruleExprs], a[ruleUserData])
			}
		}
	}
	d := newDump(machineOf("more"))
	if err := d.read(readFile(f, "more.nl"), &syntax.Ruleset{}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expressions, user []byte) {
		testutil.Promptly(t, func() {
			for _, family := range []string{"ip", "ip6", "inet"} {
				rule, err := d.rule(family, d.sets[syntax.TableName{Family: "inet", Name: "more"}],
					&attrs{ruleExprs: expressions, ruleUserData: user})
				if err != nil {
					continue
				}
				if len(rule.Statements) > 0 && rule.Text() == "" {
					t.Errorf("%v has no text", rule.Statements)
				}
			}
		})
	})
}

// FuzzRead damages the kernel's answers: what is read of them can be printed, and is read again.
func FuzzRead(f *testing.F) {
	f.Add(readFile(f, "extra.nl"))
	testutil.AddHostile(f, "")
	f.Fuzz(func(t *testing.T, data []byte) {
		testutil.Promptly(t, func() {
			rs, err := Read(data, machineOf("extra"))
			if err != nil {
				return
			}
			printed, err := rs.JSON()
			if err != nil {
				return
			}
			tables, err := nftables.Parse(printed, nftables.IPTables)
			if err != nil && tables != nil {
				t.Errorf("error %v with %d tables", err, len(tables))
			}
			if _, err := json.Read(printed); err != nil {
				t.Errorf("what is printed cannot be read: %v\n%s", err, printed)
			}
		})
	})
}
