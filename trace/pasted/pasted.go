// SPDX-License-Identifier: Apache-2.0

// Package pasted undoes what copying the output of a command from a terminal or a ticket adds to it. It knows no
// format; readers of formats ask it.
package pasted

import (
	"path"
	"slices"
	"strings"
)

// Text returns a text without what copying adds: Windows line ends, blanks around lines, fences of Markdown. The number
// of lines stays the same, so that errors can name them.
func Text(data []byte) string {
	var b strings.Builder
	b.Grow(len(data))
	for line := range strings.Lines(string(data)) {
		bare := strings.TrimSuffix(line, "\n")
		text := strings.TrimSpace(bare)
		if !strings.HasPrefix(text, "```") && !strings.HasPrefix(text, "~~~") {
			b.WriteString(text)
		}
		b.WriteString(line[len(bare):])
	}
	return b.String()
}

// Command is a command line, as it stands before its output.
type Command struct {
	Tool     string   // without its directory: "iptables-save"
	Args     []string // up to a pipe or redirection
	Filtered bool     // only a part of the output is shown: it is piped through grep or the like
}

// filters are the programs that leave out lines.
var filters = []string{"grep", "egrep", "fgrep", "zgrep", "rg", "head", "tail", "awk", "sed", "cut", "sort", "uniq"}

// CommandOf finds a command line behind a prompt, in a comment, or announced in a sentence. is tells of a name whether
// it is that of a tool that the caller knows.
func CommandOf(line string, is func(tool string) bool) (c Command, ok bool) {
	words := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(line, "|", " | "), "`", " "))
	i := slices.IndexFunc(words, func(w string) bool { return is(toolName(w)) })
	if i < 0 {
		return c, false
	}
	c.Tool = toolName(words[i])
	ended := false // what follows are no arguments
	for i++; i < len(words); i++ {
		switch w := strings.Trim(words[i], ":,.;\"'"); {
		case w == "|":
			ended = true
			c.Filtered = c.Filtered || i+1 < len(words) && slices.Contains(filters, path.Base(words[i+1]))
		case ended || w == "":
		case strings.HasPrefix(w, ">"), strings.HasPrefix(w, "2>"):
			ended = true
		default:
			c.Args = append(c.Args, w)
		}
	}
	return c, true
}

// toolName returns the name of a program from a word of a command line: without directory, prompt and punctuation.
func toolName(word string) string {
	word = strings.TrimRight(word, ":,.;\"')")
	if i := strings.LastIndexAny(word, "#$%("); i >= 0 { // a prompt without a blank behind it
		word = word[i+1:]
	}
	return path.Base(strings.TrimLeft(word, "\"'"))
}

// Elided tells whether a line stands for lines that were left out: "...", "[snip]", "<truncated>", "--" (grep).
func Elided(line string) bool {
	bare := strings.ToLower(strings.Trim(line, " .…-_*#/<>[](){}=~"))
	if bare == "" {
		return strings.ContainsAny(line, ".…-")
	}
	const most = 40 // a rule is longer than such a remark
	return len(bare) < most && slices.ContainsFunc(
		[]string{"snip", "truncated", "omitted", "redacted", "skipped", "cut", "more rules", "removed"},
		func(s string) bool { return strings.Contains(bare, s) })
}

// Prompt tells whether a line looks like a shell's prompt, with a command behind it or without.
func Prompt(line string) bool {
	if line = strings.TrimSpace(line); strings.HasSuffix(line, "#") || strings.HasSuffix(line, "$") {
		return true
	}
	before, _, ok := strings.Cut(line, "# ")
	if !ok {
		before, _, ok = strings.Cut(line, "$ ")
	}
	return ok && (before == "" || strings.Contains(before, "@") || strings.ContainsAny(before[len(before)-1:], "~]:>)"))
}
