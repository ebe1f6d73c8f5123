// SPDX-License-Identifier: Apache-2.0

package plaintext

import (
	"slices"
	"testing"
)

func TestMiddle(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"web-7c9d8f-2xkqp", 16, "web-7c9d8f-2xkqp"},
		{"web-7c9d8f-2xkqp", 9, "web-…xkqp"},
		{"web-7c9d8f", 4, "we…f"},
		{"web", 2, "we"},
		{"web", 0, "web"},
		{"äöü→…äöü", 7, "äöü…äöü"},
		{"中文中文中文", 7, "中…文"}, // two columns each: half a character is none
		{"中文中文中文", 3, "中"},
		{"e\u0301a\u0301o\u0301u\u0301i\u0301y\u0301", 5, "e\u0301a\u0301…i\u0301y\u0301"},
	} {
		if got := Middle(tt.in, tt.limit); got != tt.want {
			t.Errorf("Middle(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestLastItems(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"2 endpoints, 1 missing, 1 stale", 31, "2 endpoints, 1 missing, 1 stale"},
		{"2 endpoints, 1 missing, 1 stale", 30, "1 missing, 1 stale"},
		{"2 endpoints, 1 missing, 1 stale", 17, "1 stale"},
		{"2 endpoints, 1 missing, 1 stale", 6, "1 s…le"},
		{"1 endpoint, 10.244.2.12:8080 dropped", 24, "10.244.2.12:8080 dropped"},
		{"not programmed", 20, "not programmed"},
		{"2 endpoints, 1 missing", 0, "2 endpoints, 1 missing"},
		{"", 5, ""},
	} {
		if got := LastItems(tt.in, tt.limit); got != tt.want {
			t.Errorf("LastItems(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestMiddleWords(t *testing.T) {
	const rule = `  rule 2: "shop/web:http -> 10.244.1.15:8080" -m statistic --mode random -j KUBE-SEP-LPRYETXTYMQCMNCE`
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{rule, 0, rule},
		{rule, 200, rule},
		{rule, 70, `  rule 2: "shop/web:http -> … -j KUBE-SEP-LPRYETXTYMQCMNCE`},
		{rule, 80, `  rule 2: "shop/web:http -> 10.244.1.15:8080" -m … -j KUBE-SEP-LPRYETXTYMQCMNCE`},
		{rule, 51, `  rule 2: … -j KUBE-SEP-LPRYETXTYMQCMNCE`},
		{rule, 20, `  rule 2: …TYMQCMNCE`}, // the last word alone has no room
		{"KUBE-SEP-LPRYETXTYMQCMNCE", 11, "KUBE-…CMNCE"},
	} {
		if got := MiddleWords(tt.in, tt.limit); got != tt.want {
			t.Errorf("MiddleWords(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  []string
	}{
		{"one two", 0, []string{"one two"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two  three four", 12, []string{"one two", "three four"}},
		{"one  two  three", 9, []string{"one  two", "three"}},
		{"averylongword x", 5, []string{"averylongword", "x"}},
		{"one two three  four", 8, []string{"one two", "three", "four"}},
	} {
		if got := Wrap(tt.in, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestWidth(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "web-7c9d": 8, "→…✓–": 4, "äöü": 3, "中文": 4, "e\u0301": 1, "\uFFFD[31m": 5, "한글": 4, "ｗｅｂ": 6,
	} {
		if got := Width(in); got != want {
			t.Errorf("Width(%q) = %d, want %d", in, got, want)
		}
	}
}
