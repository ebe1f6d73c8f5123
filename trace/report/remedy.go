// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
	"github.com/svcproxy/kubectl-svcproxy/internal/safetext"
)

// Remedy is what to do: advice in words, then commands to paste, in their order. The zero Remedy is none.
type Remedy struct {
	Text     string
	Commands []Command
}

// IsZero tells whether there is nothing to do.
func (r Remedy) IsZero() bool { return r.Text == "" && len(r.Commands) == 0 }

// Command is a command to paste into a shell.
type Command struct {
	// Line is one line for a POSIX shell, in which every word that comes from a cluster or a node is quoted (ShellWord).
	Line string `json:"command"`
	// Node is the node on which it is to be run, as root; empty for a command of kubectl, which is run anywhere.
	Node string `json:"node,omitempty"`
	When string `json:"when,omitempty"` // under which condition, in a few words ("at once"); empty: in any case
}

// ShellLine joins words to a line that a POSIX shell splits into the same words.
func ShellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = ShellWord(w)
	}
	return strings.Join(quoted, " ")
}

// ShellWords are the words of a line that ShellLine made. What else a shell knows, such as "|", is a word like others.
func ShellWords(line string) []string {
	var out []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		var word strings.Builder
		for line != "" && line[0] != ' ' {
			quoted, ok := strings.CutPrefix(line, "'")
			escapes := strings.HasPrefix(line, "$'")
			switch {
			case ok || escapes:
				text, rest, _ := strings.Cut(strings.TrimPrefix(quoted, "$'"), "'")
				if escapes {
					text = octal().ReplaceAllStringFunc(text, func(s string) string {
						c, _ := strconv.ParseUint(s[1:], 8, 8) // three digits
						return string([]byte{byte(c)})
					})
				}
				word.WriteString(text)
				line = rest
			case strings.HasPrefix(line, `\'`):
				word.WriteByte('\'')
				line = line[2:]
			default:
				word.WriteByte(line[0])
				line = line[1:]
			}
		}
		out = append(out, word.String())
	}
	return out
}

// octal is a byte as ShellWord writes it in $'…'.
var octal = lazyregexp.New(`\\[0-3][0-7]{2}`)

// ShellWord quotes a text where that is necessary, so that a POSIX shell takes it for one word, or for a part of one,
// and expands nothing in it. The result is always one line: a text with line breaks or other characters that a terminal
// does not show is written as $'…' (POSIX.1-2024, XCU 2.2.4). An older shell (dash) reads that as another word, and
// still as one: no quote stands in it.
func ShellWord(s string) string {
	switch {
	case s != "" && !strings.ContainsFunc(s, needsQuotes):
		return s
	case !strings.ContainsFunc(s, notPrinted):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case notPrinted(r) || r == '\'' || r == '\\':
			for _, c := range []byte(s[:size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	b.WriteByte('\'')
	return b.String()
}

// needsQuotes tells whether a character may mean something to a shell.
func needsQuotes(r rune) bool {
	return !strings.ContainsRune("-_./:=@%+,", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// notPrinted tells whether a terminal shows a character not at all, or not as it is. utf8.RuneError stands for bytes
// that are no text, too. Of combining marks only some are shown.
func notPrinted(r rune) bool {
	return safetext.Unsafe(r) || r == utf8.RuneError || unicode.Is(unicode.M, r)
}
