// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"strings"
	"testing"
)

// linesOf makes rules, or with a class, behind a slash, lines without an order.
func linesOf(keys string) (out []Line) {
	for i, k := range strings.Fields(keys) {
		text, class, _ := strings.Cut(k, "/")
		l := Line{Canonical: text, Text: text, class: class}
		if class == "" {
			l.Number = i + 1
		}
		out = append(out, l)
	}
	sortLines(out)
	return out
}

func TestDiff(t *testing.T) {
	for _, x := range []struct{ name, a, b, want string }{
		{"equal lists", "a b c", "a b c", ""},
		{"one is empty", "", "a b", "+a +b"},
		{"in the middle", "a b c", "a x c", "-b +x"},
		{"what moved went and came", "a b c d e", "b c d a e", "-a +a"},
		{"runs of a class have no order", "x/s y/s z/s end", "z/s x/s y/s end", ""},
		{"what moves out of its class", "x/s y/s mark z/s", "x/s mark y/s z/s", "-y +y"},
		{"what ends a class counts", "mark x/s y/s", "y/s x/s mark", "-mark +mark"},
		{"one value", "a/s", "b/s", "a~b"},
	} {
		var got []string
		for _, c := range Diff(linesOf(x.a), linesOf(x.b)) {
			got = append(got, map[string]string{
				"added": "+" + c.After, "removed": "-" + c.Before,
				"changed": c.Before + "~" + c.After,
			}[c.Change])
		}
		if text := strings.Join(got, " "); text != x.want {
			t.Errorf("%s: %q, want %q", x.name, text, x.want)
		}
	}
}

// Lists of a hostile node take no time that grows with their square.
func TestDiffOfLongLists(t *testing.T) {
	var a, b []Line
	for i := range 200_000 {
		a = append(a, Line{Canonical: fmt.Sprint("a", i%7, i), Number: i + 1})
		b = append(b, Line{Canonical: fmt.Sprint("b", i%5, i), Number: i + 1})
	}
	if got := Diff(a, b); len(got) != 400_000 {
		t.Errorf("%d differences", len(got))
	}
}
