// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The tests of poison*_test.go write hostile text into everything that the plugin reads, and look at everything that it
// prints: no character of it may give an order to the terminal or hide, and no line of it may pass for one of the
// plugin's own.

// forged begins a line that no output may have.
const forged = "FORGED"

// green is where the text would be green if its escape sequence had an effect.
const green = "OWNGREEN"

// poison is text that is valid in JSON. Each of its line breaks is followed by a forged line.
const poison = "p\n" + forged + "1\r\n" + forged + "2\r" + forged + "3\u2028" + forged + "4\u0085" + forged + "5\v" +
	forged + "6 \x1b[32m" + green + "\x1b[2J\x1b]0;title\a\u009b31m\x7f\b\u202e\u2066\u061c\u200b\u200f\u2060\ufeff" +
	"\u00ad\U000E0041\ufe0f\u034f\u3164\u115f\U0001F1E9\U0001F1EA" + marks20

// inLine is poison without line breaks and white space, for files of lines and words, and with bytes that are not
// UTF-8.
const inLine = "p\x1b[32m" + green + "\x1b[2J\x1b]0;title\a\u009b31m\x7f\b\u202e\u2066\u061c\u200b\u200f\u2060" +
	"\ufeff\u00ad\U000E0041\ufe0f\u034f\u3164\xed\xa0\x80\xff" + marks20

const marks20 = "z\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301" +
	"\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301"

// banned are the characters that no output may have, beside the C0 controls (docs/security.md).
var banned = [][2]rune{
	{0x7F, 0x9F},
	{0xAD, 0xAD},
	{0x34F, 0x34F},
	{0x61C, 0x61C},
	{0x1100, 0x11FF},
	{0x17B4, 0x17B5},
	{0x180B, 0x180F},
	{0x200B, 0x200F},
	{0x2028, 0x202E},
	{0x2060, 0x206F},
	{0x3164, 0x3164},
	{0xE000, 0xF8FF},
	{0xFE00, 0xFE0F},
	{0xFEFF, 0xFEFF},
	{0xFFA0, 0xFFA0},
	{0xFFF0, 0xFFFB},
	{0x1F1E6, 0x1F1FF},
	{0x1F3FB, 0x1F3FF},
	{0xE0000, 0xE0FFF},
	{0xF0000, 0x10FFFF},
}

// ownColor is a colour of the plugin's own with the text in it; it ends in the same line. ownErasure clears the
// progress.
var (
	ownColor   = regexp.MustCompile(`\x1b\[(?:1|31;1|32|33|36)m([^\x1b\n]+)\x1b\[0m`)
	ownErasure = regexp.MustCompile(`\r(\x1b\[1A\x1b\[2K)+`)
)

// wrongWith says what is wrong with an output; on a terminal it may have colours, and progress.
func wrongWith(out string, terminal bool) (wrong []string) {
	add := func(format string, args ...any) {
		if len(wrong) < 5 {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	around := func(at int) string { return out[max(0, at-30):min(len(out), at+30)] }
	if at := strings.Index(out, "\x1b[32m"+green); at >= 0 {
		add("an escape sequence of the input: %q", around(at))
	}
	if terminal {
		out = ownErasure.ReplaceAllString(out, "")
		out = ownColor.ReplaceAllString(out, "$1")
	}
	if at := strings.Index("\n"+out, "\n"+forged); at >= 0 {
		add("a forged line: %q", around(at))
	}
	count := 0
	for at, r := range out {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(out[at:], "\uFFFD"):
			add("a byte that is not UTF-8: %q", around(at))
		case r < ' ' && r != '\n' && r != '\t', isBanned(r):
			add("%U: %q", r, around(at))
		}
		count++
		if !unicode.Is(unicode.M, r) {
			count = 0
		}
		if count > 3 {
			add("%d combining marks in a row: %q", count, around(at))
		}
	}
	return wrong
}

func isBanned(r rune) bool {
	for _, b := range banned {
		if b[0] <= r && r <= b[1] {
			return true
		}
	}
	return false
}

// outputs looks at what is printed, and counts where the poison has come out at all.
type outputs struct {
	seen   map[string]int // outputs with poison in them, by what printed them
	leaked map[string]int
}

// look checks an output. what names it: the command, its format and the stream.
func (o *outputs) look(t *testing.T, what, input, out string, terminal bool) {
	t.Helper()
	if o.seen == nil {
		o.seen, o.leaked = map[string]int{}, map[string]int{}
	}
	if strings.Contains(out, green) || strings.Contains(out, forged) {
		o.seen[what]++
	}
	wrong := wrongWith(out, terminal)
	if len(wrong) == 0 {
		return
	}
	o.leaked[what]++
	if o.leaked[what] == 1 {
		t.Errorf("%s, with poison in %s:\n\t%s", what, input, strings.Join(wrong, "\n\t"))
	}
}

// came checks that the poison was seen in the outputs: without it they prove nothing.
func (o *outputs) came(t *testing.T, want ...string) {
	t.Helper()
	for _, what := range want {
		if o.seen[what] == 0 {
			t.Errorf("no poison came to %s, so that nothing is proven; it came to %v", what, o.seen)
		}
	}
	for what, n := range o.leaked {
		t.Logf("%s: %d outputs leaked", what, n)
	}
}

// run runs a command and looks at both streams.
func (o *outputs) run(t *testing.T, what, input string, args ...string) (stdout, stderr string) {
	t.Helper()
	_, stdout, stderr = runPlugin(t, args...)
	o.look(t, what, input, stdout, false)
	o.look(t, what+" (stderr)", input, stderr, false)
	return stdout, stderr
}

// The checks themselves: they must find what they are for.
func TestPoisonIsRecognized(t *testing.T) {
	for _, bad := range []string{
		"a\x1b[32mb\x1b[0m", "a\x1b[1A", forged + " at the beginning", "a\n" + forged, "a\rb", "a\u202eb", "a\xffb",
		"a\u200bb", "a\u009b", "\U000E0041", marks20, "a\x00",
	} {
		if wrongWith(bad, false) == nil {
			t.Errorf("%q is taken for clean", bad)
		}
	}
	for _, bad := range []string{
		"\x1b[32m" + green + "\x1b[0m", "\x1b[32mopen", "\x1b[32mopen\n\x1b[0m", "\x1b[2J", "\x1b[0m", "\x1b[35mpink\x1b[0m",
		"\r", "\r\x1b[2K",
	} {
		if wrongWith(bad, true) == nil {
			t.Errorf("on a terminal %q is taken for clean", bad)
		}
	}
	good := "\r\x1b[1A\x1b[2K\x1b[31;1mMISMATCH\x1b[0m: a\tb e\u0301 " + forged + "\n\uFFFD"
	if wrong := wrongWith(good, true); wrong != nil {
		t.Error(wrong)
	}
}
