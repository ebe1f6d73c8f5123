// SPDX-License-Identifier: Apache-2.0

package faultdata

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// What Diff says makes the one file of the other, whatever they are.
func TestDiff(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	file := func() []byte {
		var b strings.Builder
		for range random.IntN(12) {
			fmt.Fprintf(&b, "line %d\n", random.IntN(8))
		}
		return []byte(b.String())
	}
	for range 5000 {
		a, b := file(), file()
		got, err := Apply(a, Diff(a, b))
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q to %q by %+v: %q, %v", a, b, Diff(a, b), got, err)
		}
	}
}

// A line more is one line more, also in front of many like it.
func TestDiffIsSmall(t *testing.T) {
	lines := strings.Repeat("{\n}\n", 50)
	got := Diff([]byte("a\n"+lines+"b\n"+lines), []byte("a\nnew\n"+lines+"b\n"+lines+"end\n"))
	want := []Hunk{{Line: 2, Added: []string{"new"}}, {Line: 203, Added: []string{"end"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFormat(t *testing.T) {
	f := &Fault{
		What: "a rule", Service: "faults", Node: "node1", From: "node", Frontend: "[fd00::1]:80", Connections: 40, Failed: 3,
		Named: `ip rule 100: .*`, UnknownToo: true,
		Changes: map[string][]Hunk{
			"nodes/node1/a":   {{Line: 1, Removed: 2, Added: []string{"=== x", "", "@ 1 -1"}}, {Line: 9, Removed: 1}},
			"nodes/node1/new": {{Line: 1, Added: []string{"+"}}},
		},
	}
	got, err := Parse(f.Format())
	if err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "what: x\nnode: y\n", string(f.Format()) + "more\n"} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("no error of %q", bad)
		}
	}
}
