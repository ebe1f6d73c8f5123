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
	} {
		if got := Middle(tt.in, tt.limit); got != tt.want {
			t.Errorf("Middle(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
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

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1:80 → pod": "10.0.0.1:80 → pod", "a\tb\nc": "a b c", "\x1b[31mred": "�[31mred", "bell\a": "bell�",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}
