// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestChecks(t *testing.T) {
	small := JSON{Depth: 3, List: 3, Values: 10, Objects: 4, Item: 20}
	check := small.Check
	for _, tt := range []struct {
		name  string
		check func(string, []byte) error
		text  string
		want  string // "": it passes
	}{
		{"no line", CheckLines, "", ""},
		{"a last line without an end", CheckLines, "a\nb", ""},
		{"a line of the largest length", CheckLines, strings.Repeat("a", Line) + "\n", ""},
		{"a line of the largest length without an end", CheckLines, strings.Repeat("a", Line), ""},
		{
			"a line that is one byte longer",
			CheckLines,
			"a\n" + strings.Repeat("a", Line+1) + "\n",
			"line 2 of f is longer than 1 MB: lines of at most 1 MB were expected",
		},
		{"as many lines as may be", CheckLines, strings.Repeat("\n", Lines), ""},
		{
			"one more",
			CheckLines,
			strings.Repeat("\n", Lines+1),
			"f has more than 500000 lines: at most 500000 were expected",
		},
		{"YAML", CheckYAML, "a: [1, 2]\n- b\nt: 2026-01-01T00:00:00Z\n", ""},
		{
			"YAML of too many values",
			CheckYAML,
			"[" + strings.Repeat("a,", YAMLValues) + "]",
			"f holds more than 500000 values of YAML: at most 500000 were expected, or JSON",
		},
		{"JSON", check, `{"a":[1,2,{}]}`, ""},
		{"brackets in a string", check, `{"a":"[[[[[{{{{{,,,,,"}`, ""},
		{"quotes in a string", check, `{"a":"\"[[[[[","b\\":"\\\"[[[[["}`, ""},
		{"a string without an end", check, `{"a":"[[[[[[[`, ""},
		{"a string that ends in a backslash", check, `{"a":"\`, ""},
		{"no JSON", check, `]]]}}},`, ""},
		{
			"JSON that is too deep",
			check,
			`{"a":[{"b":[`,
			"f is nested deeper than 3 levels at byte 11: at most 3 levels were expected",
		},
		{
			"a list that is too long",
			check,
			`[1,2,3,4]`,
			"f holds a list of more than 3 elements at byte 6: at most 3 were expected",
		},
		{
			"too many values",
			check,
			`[[1,1],[1,1],[1,1],[1,1]]`,
			"f holds a list of more than 3 elements at byte 18: at most 3 were expected",
		},
		{"too many objects", check, `[{},{},{}][{},{}]`, "f holds more than 4 JSON objects: at most 4 were expected"},
		{
			"an item that is too large",
			check,
			`{"items":[{"metadata":"aaaaaaaaaaaaaaa"}]}`,
			"f holds an object of 29 bytes at byte 10: objects of at most 20 bytes were expected",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inParts(t, small, tt.text)
			err := tt.check("f", []byte(tt.text))
			if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && (got != tt.want || !Is(err)) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,{"b":"\"[\\"}]}`))
	f.Add([]byte(strings.Repeat(`"\`, 1000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, l := range []JSON{NodeJSON, RoutesJSON, PolicyJSON, ClusterJSON} {
			if err := l.Check("f", data); err != nil && !Is(err) {
				t.Error(err)
			}
		}
	})
}

// inParts checks that a text has the same error whatever the parts in which it is read.
func inParts(t *testing.T, l JSON, text string) {
	t.Helper()
	if len(text) > 1000 {
		return
	}
	want := fmt.Sprint(l.Check("f", []byte(text)))
	for size := 1; size <= len(text); size++ {
		parts := make([]io.Reader, 0, len(text))
		for part := range slices.Chunk([]byte(text), size) {
			parts = append(parts, bytes.NewReader(part))
		}
		_, err := io.ReadAll(l.Reader("f", io.MultiReader(parts...)))
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%q in parts of %d bytes: %s; want %s", text, size, got, want)
		}
	}
}
