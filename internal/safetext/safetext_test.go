// SPDX-License-Identifier: Apache-2.0

package safetext

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// forbidden are the ranges that the documentation promises to keep off a terminal (docs/security.md).
var forbidden = [][2]rune{
	{0x00, 0x1F},
	{0x7F, 0x9F},
	{0xA0, 0xA0},
	{0xAD, 0xAD},
	{0x34F, 0x34F},
	{0x61C, 0x61C},
	{0x1100, 0x11FF},
	{0x17B4, 0x17B5},
	{0x180B, 0x180F},
	{0x2000, 0x200F},
	{0x2028, 0x202F},
	{0x205F, 0x206F},
	{0x2800, 0x2800},
	{0x3000, 0x3000},
	{0x3164, 0x3164},
	{0xE000, 0xF8FF},
	{0xFE00, 0xFE0F},
	{0xFEFF, 0xFEFF},
	{0xFFA0, 0xFFA0},
	{0xFFF0, 0xFFFB},
	{0x1BCA0, 0x1BCA3},
	{0x1D159, 0x1D159},
	{0x1D173, 0x1D17A},
	{0x1F1E6, 0x1F1FF},
	{0x1F3FB, 0x1F3FF},
	{0xE0000, 0xE0FFF},
	{0xF0000, 0x10FFFF},
}

func TestUnsafe(t *testing.T) {
	for _, f := range forbidden {
		for r := f[0]; r <= f[1]; r++ {
			if !Unsafe(r) {
				t.Errorf("%U is not unsafe", r)
			}
			if got := Clean("a" + string(r) + "b"); got != "a b" && got != "a\uFFFDb" {
				t.Errorf("%U: cleaned it is %q", r, got)
			}
		}
	}
	for _, r := range "azAZ09 ~!\"#\\äßéЖ中한あ→…✓✗–١א\uFFFD" {
		if Unsafe(r) {
			t.Errorf("%U is unsafe", r)
		}
	}
}

func TestClean(t *testing.T) {
	for _, tt := range []struct{ in, want, lines string }{
		{"10.0.0.1:80 → pod", "10.0.0.1:80 → pod", "10.0.0.1:80 → pod"},
		{"a\tb\nc", "a b c", "a\tb\nc"},
		{"a\rb\vc\fd\u0085e\u2028f\u2029g", "a b c d e f g", "a b c d e f g"},
		{"\x1b[31mred", "\uFFFD[31mred", "\uFFFD[31mred"},
		{"bell\a\x7f", "bell\uFFFD\uFFFD", "bell\uFFFD\uFFFD"},
		{"\u009b31m", "\uFFFD31m", "\uFFFD31m"},
		{"\xed\xa0\x80\xff", "\uFFFD\uFFFD\uFFFD\uFFFD", "\uFFFD\uFFFD\uFFFD\uFFFD"}, // U+D800 in UTF-8, and no UTF-8
		{"e\u0301 o\u0302\u0323", "e\u0301 o\u0302\u0323", "e\u0301 o\u0302\u0323"},
		{"\u0301a", "\uFFFDa", "\uFFFDa"},
		{"a\n\u0301b", "a \uFFFDb", "a\n\uFFFDb"},
		{"z" + strings.Repeat("\u0301", 500) + "a", "z\u0301\u0301\u0301\uFFFDa", "z\u0301\u0301\u0301\uFFFDa"},
		{"\u202e" + strings.Repeat("\u0301", 500) + "a", "\uFFFD\uFFFDa", "\uFFFD\uFFFDa"},
	} {
		if got := Clean(tt.in); got != tt.want || Clean(got) != got {
			t.Errorf("Clean(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if got := CleanLines(tt.in); got != tt.lines {
			t.Errorf("CleanLines(%q) = %q, want %q", tt.in, got, tt.lines)
		}
	}
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		" a \n\n\tb ":            "a b",
		"a\x1b[31mb\x00c\xff":    "a\uFFFD[31mb\uFFFDc\uFFFD",
		"äöü \u202e":             "äöü \uFFFD",
		strings.Repeat("ä", 8):   strings.Repeat("ä", 8),
		strings.Repeat("ä", 9):   strings.Repeat("ä", 6) + "…",
		strings.Repeat("ä", 900): strings.Repeat("ä", 6) + "…",
		strings.Repeat(" ", 900): "",
	} {
		if got := Line(in, 16); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// FuzzEscape checks that what is printed as JSON and YAML has no unsafe character, and means the same.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{
		"plain", "\u202ereversed\u202c", "a\nb\u2028c\u0085d", "\U000E0041\U000E007F", "x\"\u0301", "'\u00a0: - #",
		strings.Repeat("\u0301", 9), "\x7f\x80\xed\xa0\x80", "<&>\u200b", "e\u0301", "\ufeffkey: value", "|\n  \u200dblock",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "\uFFFD") // JSON has no other text
		data, err := json.MarshalIndent(map[string]string{"value": s}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		check(t, s, EscapeJSON(data), json.Unmarshal)
		// In YAML such values are quoted; any JSON string is a double-quoted scalar.
		quoted := strings.TrimSuffix(strings.TrimPrefix(string(data), "{\n  "), "\n}")
		check(t, s, EscapeYAML([]byte(quoted)), func(data []byte, to any) error { return yaml.Unmarshal(data, to) })
	})
}

func check(t *testing.T, want string, text []byte, decode func([]byte, any) error) {
	t.Helper()
	if got := CleanLines(string(text)); got != string(text) || !utf8.Valid(text) {
		t.Errorf("unsafe: %q", text)
	}
	var got map[string]string
	if err := decode(text, &got); err != nil || got["value"] != want {
		t.Errorf("%q became %s, which is %q (%v)", want, text, got["value"], err)
	}
}

func ExampleEscapeJSON() {
	fmt.Println(string(EscapeJSON([]byte(`{"name": "` + "\u202e\U000E0041" + `"}`))))
	// Output: {"name": "\u202e\udb40\udc41"}
}
