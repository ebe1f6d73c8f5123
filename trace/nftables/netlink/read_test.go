// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
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

func TestErrors(t *testing.T) {
	good := readFile(t, "extra.nl")
	line := bytes.IndexByte(good, '\n') + 1
	damaged := func(at int, b byte) []byte {
		out := slices.Clone(good)
		out[at] = b
		return out
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":         {nil, "it is empty"},
		"no line":       {[]byte(`{"version":1}`), "has no end"},
		"not JSON":      {[]byte("table ip nat\n"), "not JSON"},
		"version":       {[]byte("{\"version\":9}\n"), "version 9"},
		"order":         {[]byte("{\"version\":1,\"order\":\"middle\"}\n"), `"middle"`},
		"cut off":       {good[:len(good)-3], "are left"},
		"half a header": {append(slices.Clone(good), 1, 2, 3, 4), "cut off"},
		"short message": {damaged(line, 5), "the message at byte 0"},
		"attribute":     {damaged(line+messageHeader+genericHeader, 2), "damaged"},
	} {
		rs, err := Read(c.data)
		if err == nil || rs != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// What is no element is counted as one before it is read, and takes no memory beyond the limit.
func TestMoreElementsThanAreRead(t *testing.T) {
	attr := func(kind uint16, value []byte) []byte {
		out := binary.LittleEndian.AppendUint16(nil, uint16(attrHeader+len(value)))
		out = append(binary.LittleEndian.AppendUint16(out, kind), value...)
		return append(out, make([]byte, align(len(out))-len(out))...)
	}
	data := []byte("{\"version\":1,\"order\":\"little\"}\n")
	message := func(kind uint16, attributes ...[]byte) {
		body := append([]byte{2, 0, 0, 0}, slices.Concat(attributes...)...)
		data = binary.LittleEndian.AppendUint32(data, uint32(messageHeader+len(body)))
		data = append(binary.LittleEndian.AppendUint16(data, subsystem<<8|kind), make([]byte, 10)...)
		data = append(data, body...)
	}
	message(msgNewTable, attr(tableName, []byte("t\x00")))
	message(msgNewSet, attr(setTable, []byte("t\x00")), attr(setName, []byte("s\x00")),
		attr(setKeyLen, []byte{0, 0, 0, 4}))
	const atOnce = 16_000
	list := bytes.Repeat(attr(1, nil), atOnce)
	for range mostElements/atOnce + 1 {
		message(msgNewElement, attr(listTable, []byte("t\x00")), attr(listSet, []byte("s\x00")), attr(listElements, list))
	}
	_, err := Read(data)
	if want := "more than 1000000 elements"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}

// Values of the machine's own order are read in the order that the header says.
func TestDumpOfABigEndianMachine(t *testing.T) {
	d := &dump{order: binary.BigEndian, header: &Header{}}
	if got := wireMark.constant(d, wireMark.inOrder(d, []byte{0, 0, 0x40, 0}, false)); got != syntax.Number(0x4000) {
		t.Errorf("the mark is %v", got)
	}
	d.order = binary.LittleEndian
	if got := wireMark.constant(d, wireMark.inOrder(d, []byte{0, 0x40, 0, 0}, false)); got != syntax.Number(0x4000) {
		t.Errorf("the mark is %v", got)
	}
}

// FuzzRule damages the expressions of a rule, and what belongs to it.
func FuzzRule(f *testing.F) {
	rs, err := Read(readFile(f, "more.nl"))
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
	h, order, rest, err := cutHeader(readFile(f, "more.nl"))
	if err != nil {
		f.Fatal(err)
	}
	d := newDump(h, order)
	if err := d.read(rest, &syntax.Ruleset{}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expressions, user []byte) {
		testutil.Promptly(t, func() {
			for _, family := range []string{"ip", "ip6", "inet"} {
				rule, err := d.rule(family, d.sets[syntax.TableName{Family: "inet", Name: "more"}], expressions, user)
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
