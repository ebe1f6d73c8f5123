// SPDX-License-Identifier: Apache-2.0

// Package plaintext makes text ready for people: without control characters, and no wider than it may be. Widths are in
// columns of a terminal.
package plaintext

import (
	"strconv"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// Clean makes a text one line without unsafe characters: texts of rules, names and errors come from elsewhere. It is
// safetext.Clean.
func Clean(s string) string { return safetext.Clean(s) }

// Plural counts things whose plural ends in s: "1 path", "2 paths".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Width is the number of columns that a clean text takes in a terminal: two for a wide character of East Asia, none for
// a combining mark. It is the width by which tablewriter aligns columns.
func Width(s string) int { return displaywidth.String(s) }

// Middle cuts the middle out of a text that is wider than limit: of a pod's name or a rule, the two ends tell most. A
// limit of 0 is none.
func Middle(s string, limit int) string {
	if limit <= 0 || Width(s) <= limit {
		return s
	}
	if limit < 4 {
		return Start(s, limit)
	}
	tail := (limit - 1) / 2
	return Start(s, limit-1-tail) + "…" + end(s, tail)
}

// MiddleWords is Middle, but cuts between words where there is room for the last ones: those of a rule say where it
// leads (-j TARGET).
func MiddleWords(s string, limit int) string {
	if limit <= 0 || Width(s) <= limit {
		return s
	}
	const gap = " … "
	text := strings.TrimLeft(s, " ")
	head, words := s[:len(s)-len(text)], strings.Fields(text)
	const ends = 2
	if len(words) <= ends {
		return Middle(s, limit)
	}
	first, between := head+words[0], words[1:len(words)-ends]
	tail := strings.Join(words[len(words)-ends:], " ")
	if Width(first+gap+tail) > limit {
		return Middle(s, limit)
	}
	for _, word := range between {
		if Width(first+" "+word+gap+tail) > limit {
			break
		}
		first += " " + word
	}
	return first + gap + tail
}

// LastItems leaves out the first items of a list ("2 endpoints, 1 missing, 1 stale") that is wider than limit, and cuts
// the middle out of the last item if it does not fit by itself. A limit of 0 is none.
func LastItems(s string, limit int) string {
	for limit > 0 && Width(s) > limit {
		_, rest, found := strings.Cut(s, ", ")
		if !found {
			break
		}
		s = rest
	}
	return Middle(s, limit)
}

// Start returns as much of the beginning of a text as fits into limit columns.
func Start(s string, limit int) string { return displaywidth.TruncateString(s, limit, "") }

// end returns as much of the end of a text as fits into limit columns.
func end(s string, limit int) string {
	over := Width(s) - limit
	for g := displaywidth.StringGraphemes(s); over > 0 && g.Next(); {
		over -= g.Width()
		s = s[len(g.Value()):]
	}
	return s
}

// Wrap breaks a text into lines of at most limit columns: where two spaces separate its parts, if that is enough, else
// between words; a limit of 0 is none. Words are never broken.
func Wrap(s string, limit int) []string {
	if limit <= 0 || Width(s) <= limit {
		return []string{s}
	}
	var lines []string
	for _, part := range fill(strings.Split(s, "  "), "  ", limit) {
		if Width(part) <= limit {
			lines = append(lines, part)
		} else {
			lines = append(lines, fill(strings.Fields(part), " ", limit)...)
		}
	}
	return lines
}

// fill joins words into lines; a line that fits is left as it is.
func fill(words []string, sep string, limit int) []string {
	if whole := strings.Join(words, sep); Width(whole) <= limit {
		return []string{whole}
	}
	var lines []string
	line := words[0]
	for _, word := range words[1:] {
		if Width(line)+len(sep)+Width(word) > limit {
			lines = append(lines, line)
			line = word
		} else {
			line += sep + word
		}
	}
	return append(lines, line)
}
