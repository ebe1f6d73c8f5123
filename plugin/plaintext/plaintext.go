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

// LastItems leaves out the first items of a list ("2 endpoints, 1 missing, 1 stale") that is wider than limit. The last
// item is never cut. A limit of 0 is none.
func LastItems(s string, limit int) string {
	for limit > 0 && Width(s) > limit {
		_, rest, found := strings.Cut(s, ", ")
		if !found {
			break
		}
		s = rest
	}
	return s
}

// Start returns as much of the beginning of a text as fits into limit columns.
func Start(s string, limit int) string { return displaywidth.TruncateString(s, limit, "") }

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

// WrapCell is Wrap for a narrow column: a word that is too wide for a line is continued after one of its commas, or in
// front of a name behind a slash. Names and addresses are never broken, so that a line may be wider than limit.
func WrapCell(s string, limit int) []string { return wrapWords(s, limit, strings.Fields(s), cellParts) }

// WrapRule breaks a rule between its options, each of which stays with its value where a line has room for both. Where
// nothing else helps, a word is broken at limit.
func WrapRule(s string, limit int) []string {
	return wrapWords(s, limit, options(strings.Fields(s), limit), func(word string) []string {
		var out []string
		for _, part := range cellParts(word) {
			for Width(part) > limit {
				head := Start(part, limit)
				if head == "" { // a character that is wider than a line
					break
				}
				out, part = append(out, head), part[len(head):]
			}
			out = append(out, part)
		}
		return out
	})
}

// options joins those of the words of a rule that are to stay together, unless they are wider than a line: an option
// and its value, and a quotation.
func options(words []string, limit int) []string {
	var out []string
	for i := 0; i < len(words); {
		end := i + 1
		for end < len(words) && (words[end-1] == "!" || isOption(words[end-1]) && !isOption(words[end])) {
			end++
		}
		if last := words[end-1]; strings.HasPrefix(last, `"`) && (len(last) == 1 || !strings.HasSuffix(last, `"`)) {
			for k := end; k < len(words); k++ {
				if strings.HasSuffix(words[k], `"`) {
					end = k + 1
					break
				}
			}
		}
		if whole := strings.Join(words[i:end], " "); Width(whole) <= limit {
			out = append(out, whole)
		} else {
			out = append(out, words[i:end]...)
		}
		i = end
	}
	return out
}

// isOption tells whether a word of a rule is an option: "-j", "--comment", and not "->".
func isOption(word string) bool {
	name := strings.TrimLeft(word, "-")
	return len(name) < len(word) && name != "" && 'A' <= name[0] && name[0] <= 'z'
}

// Unbroken is the least limit at which WrapCell makes no line that is wider.
func Unbroken(s string) int {
	text := strings.TrimLeft(s, " ")
	widest := 0
	for word := range strings.FieldsSeq(text) {
		for _, part := range cellParts(word) {
			widest = max(widest, Width(part))
		}
	}
	return len(s) - len(text) + widest
}

// wrapWords breaks a text between words, and a word that is wider than a line between its parts. All lines are indented
// as the text is.
func wrapWords(s string, limit int, words []string, parts func(word string) []string) []string {
	if limit <= 0 || Width(s) <= limit {
		return []string{s}
	}
	text := strings.TrimLeft(s, " ")
	indent := s[:len(s)-len(text)]
	limit = max(limit-len(indent), 1)
	var lines []string
	line := ""
	end := func() {
		if line != "" {
			lines = append(lines, indent+line)
		}
		line = ""
	}
	for _, word := range words {
		if line != "" && Width(line)+1+Width(word) <= limit {
			line += " " + word
			continue
		}
		end()
		if Width(word) <= limit {
			line = word
			continue
		}
		for _, part := range parts(word) {
			if Width(line)+Width(part) > limit {
				end()
			}
			line += part
		}
	}
	end()
	return lines
}

// cellParts are the parts of a word between which a narrow column may break it: the items of a list, and a namespace
// and the name behind it. A slash before a digit is one of a prefix or a port.
func cellParts(word string) []string {
	var out []string
	from := 0
	for i := 1; i < len(word); i++ {
		if word[i-1] == ',' || word[i-1] == '/' && 'a' <= word[i] && word[i] <= 'z' {
			out, from = append(out, word[from:i]), i
		}
	}
	return append(out, word[from:])
}
