// SPDX-License-Identifier: Apache-2.0

package print

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Style is what the place printed to can show.
type Style struct {
	Color bool
	Width int // columns; 0 where nothing is to be cut (a pipe, a file)
}

// StyleOf finds out what a writer can show. Only a terminal gets colour and cut lines, and NO_COLOR (no-color.org) takes the
// colour away.
func StyleOf(out io.Writer, getenv func(string) string) Style {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Style{}
	}
	s := Style{Color: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
	if w, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width = w
	}
	return s
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

type color string

const (
	plain  color = ""
	bold   color = "1"
	red    color = "31;1"
	green  color = "32"
	yellow color = "33"
	cyan   color = "36"
)

func (s Style) paint(c color, text string) string {
	if !s.Color || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func colorOf(v report.Verdict) color {
	switch v {
	case report.Mismatch:
		return red
	case report.Unknown, report.Warning:
		return yellow
	case report.ByDesign:
		return cyan
	case report.Match:
		return green
	}
	return plain
}

// width is the number of columns that a text takes. All that is printed is ASCII, dashes, arrows and dots: one column each.
func width(s string) int { return utf8.RuneCountInString(s) }

// middle cuts the middle out of a text that is too long: of a pod's name or a rule, the two ends tell most.
func middle(s string, limit int) string {
	if limit <= 0 || width(s) <= limit {
		return s
	}
	if limit < 4 {
		return string([]rune(s)[:limit])
	}
	r := []rune(s)
	tail := (limit - 1) / 2
	return string(r[:limit-1-tail]) + "…" + string(r[len(r)-tail:])
}

// wrap breaks a text so that its lines fit a terminal: where two spaces part it, if that is enough, else between words; 0 is no
// limit. Words are never broken.
func wrap(s string, limit int) []string {
	if limit <= 0 || width(s) <= limit {
		return []string{s}
	}
	var lines []string
	for _, part := range fill(strings.Split(s, "  "), "  ", limit) {
		if width(part) <= limit {
			lines = append(lines, part)
		} else {
			lines = append(lines, fill(strings.Fields(part), " ", limit)...)
		}
	}
	return lines
}

// fill joins words to lines; a line that fits is left as it is.
func fill(words []string, sep string, limit int) []string {
	if whole := strings.Join(words, sep); width(whole) <= limit {
		return []string{whole}
	}
	var lines []string
	line := words[0]
	for _, word := range words[1:] {
		if width(line)+len(sep)+width(word) > limit {
			lines = append(lines, line)
			line = word
		} else {
			line += sep + word
		}
	}
	return append(lines, line)
}
