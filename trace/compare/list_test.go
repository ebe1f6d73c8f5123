// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"strings"
	"testing"
)

func listOf(keys string) (out []item) {
	for i, k := range strings.Fields(keys) {
		key, class, _ := strings.Cut(k, "/")
		out = append(out, item{key: key, text: key, class: class, number: i + 1})
	}
	sortClasses(out)
	return out
}

func TestCompareLists(t *testing.T) {
	for _, x := range []struct{ name, a, b, want string }{
		{"equal lists", "a b c", "a b c", ""},
		{"one is empty", "", "a b", "+a +b"},
		{"in the middle", "a b c", "a x c", "-b +x"},
		{"equal entries are told apart by their number", "a b a", "a b a b a", "+b +a"},
		{"one entry moved", "a b c d e", "b c d a e", ">a"},
		{"two entries exchanged", "a b", "b a", ">a"},
		{"runs of a class have no order", "x/s y/s z/s end", "z/s x/s y/s end", ""},
		{"what moves out of its class moved", "x/s y/s mark z/s", "x/s mark y/s z/s", ">y"},
		{"what ends a class counts", "mark x/s y/s", "y/s x/s mark", ">mark"},
	} {
		d := compareLists(listOf(x.a), listOf(x.b))
		var got []string
		for _, i := range d.removed {
			got = append(got, "-"+i.key)
		}
		for _, i := range d.added {
			got = append(got, "+"+i.key)
		}
		for _, m := range d.moved {
			got = append(got, ">"+m[0].key)
		}
		if text := strings.Join(got, " "); text != x.want {
			t.Errorf("%s: %q, want %q", x.name, text, x.want)
		}
	}
}

// TestCompareListsOfAnySize: lists of 200,000 entries in the reverse order are compared in n log n steps.
func TestCompareListsOfAnySize(t *testing.T) {
	const n = 200_000
	a, b := make([]item, n), make([]item, n)
	for i := range n {
		a[i].key, b[n-1-i].key = fmt.Sprint(i), fmt.Sprint(i)
	}
	if d := compareLists(a, b); len(d.moved) != n-1 || len(d.added)+len(d.removed) > 0 {
		t.Errorf("%d moved, %d added, %d removed", len(d.moved), len(d.added), len(d.removed))
	}
}

func TestReplaceWord(t *testing.T) {
	for _, x := range []struct{ text, old, want string }{
		{"-d 10.0.0.1/32 -j DROP", "10.0.0.1", "-d N/32 -j DROP"},
		{"to 10.0.0.1:80", "10.0.0.1", "to N:80"},
		{"to 10.0.0.10 and 110.0.0.1", "10.0.0.1", "to 10.0.0.10 and 110.0.0.1"},
		{"10.0.0.1 10.0.0.1", "10.0.0.1", "N N"},
		{"fd00::1 fd00::1:2", "fd00::1", "N fd00::1:2"},
		{"-s 10.244.1.0/24 10.244.1.0/245", "10.244.1.0/24", "-s N 10.244.1.0/245"},
		{"worker-1 worker-10 my-worker-1", "worker-1", "N worker-10 my-worker-1"},
	} {
		if got := replaceWord(x.text, x.old, "N"); got != x.want {
			t.Errorf("%q: %q, want %q", x.text, got, x.want)
		}
	}
}

func TestWithoutComment(t *testing.T) {
	for _, x := range []struct {
		text, want string
		native     bool
	}{
		{`-m comment --comment "a \" -j DROP" -m tcp -j ACCEPT`, `-m tcp -j ACCEPT`, false},
		{`-p tcp -m comment --comment web -j ACCEPT`, `-p tcp -j ACCEPT`, false},
		{`-j ACCEPT -m comment --comment`, `-j ACCEPT -m comment --comment`, false},
		{`ip daddr 10.0.0.1 drop comment "it \"is\""`, `ip daddr 10.0.0.1 drop`, true},
		{`goto x comment "open`, `goto x`, true},
	} {
		if got := withoutComment(x.text, x.native); got != x.want {
			t.Errorf("%q: %q, want %q", x.text, got, x.want)
		}
	}
}
