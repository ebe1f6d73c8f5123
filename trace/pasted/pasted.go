// SPDX-License-Identifier: Apache-2.0

// Package pasted undoes what copying does to the output of a command: what terminals, editors, mail, web pages and
// issue trackers add to it. It knows no format; readers of formats ask it.
package pasted

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Marks of the encoding at the beginning of a text (Unicode 15, 23.8).
var (
	bom8      = []byte{0xef, 0xbb, 0xbf}
	bomLittle = []byte{0xff, 0xfe}
	bomBig    = []byte{0xfe, 0xff}
)

// Text returns a text without what copying adds: byte order marks and UTF-16 (what PowerShell's ">" writes), Windows
// line ends, indentation, "> " of quotations, no-break and zero-width spaces, colours of terminals, fences of Markdown,
// HTML's entities for < > & and quotes. The number of lines stays the same, so that errors can name them.
func Text(data []byte) string {
	text := decode(data)
	var b strings.Builder
	b.Grow(len(text))
	for line := range strings.Lines(text) {
		bare := strings.TrimSuffix(line, "\n")
		b.WriteString(clean(bare))
		b.WriteString(line[len(bare):])
	}
	return b.String()
}

// Copied tells whether a text may have characters that copying has put in place of others, or between them. It costs
// little: many texts have such characters of their own.
func Copied(data []byte) bool {
	for _, c := range []byte{'&', '\x1b', '\r', 0} {
		if bytes.IndexByte(data, c) >= 0 {
			return true
		}
	}
	const high = 0x8080808080808080 // the bits that ASCII does not have, of eight characters
	for ; len(data) >= 8; data = data[8:] {
		if binary.LittleEndian.Uint64(data)&high != 0 {
			return true
		}
	}
	return slices.ContainsFunc(data, func(c byte) bool { return c >= utf8.RuneSelf })
}

// decode returns a text as UTF-8, without a byte order mark.
func decode(data []byte) string {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, bom8):
		return string(data[len(bom8):])
	case bytes.HasPrefix(data, bomLittle):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, bomBig):
		order = binary.BigEndian
	default:
		return string(data)
	}
	units := make([]uint16, 0, len(data)/2)
	for i := 2; i+1 < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	return string(utf16.Decode(units))
}

// entities are written by pages and trackers for characters of HTML; typographic quotes by text processors.
var entities = strings.NewReplacer(
	"&gt;", ">", "&lt;", "<", "&quot;", `"`, "&#34;", `"`, "&#39;", "'", "&nbsp;", " ", "&amp;", "&",
	"\u00a0", " ", "\u202f", " ", "\u200b", "", "\ufeff", "", "\u201c", `"`, "\u201d", `"`, "\r", "",
)

func clean(line string) string {
	if isPlain(line) {
		return line
	}
	line = strings.TrimSpace(entities.Replace(uncolour(line)))
	for strings.HasPrefix(line, ">") { // a quotation of mail or Markdown
		line = strings.TrimSpace(line[1:])
	}
	if strings.HasPrefix(line, "```") || strings.HasPrefix(line, "~~~") {
		return ""
	}
	return line
}

// isPlain tells whether a line has nothing to undo, which nearly all have.
func isPlain(line string) bool {
	if line == "" {
		return true
	}
	first, last := line[0], line[len(line)-1]
	return first > ' ' && first < utf8.RuneSelf && first != '>' && first != '`' && first != '~' && last > ' ' &&
		!strings.ContainsAny(line, "&\x1b\u00a0\u202f\u200b\ufeff\u201c\u201d\r")
}

// uncolour removes a terminal's control sequences (ECMA-48, CSI).
func uncolour(line string) string {
	for {
		before, rest, ok := strings.Cut(line, "\x1b[")
		if !ok {
			return line
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			return before
		}
		line = before + rest[end+1:]
	}
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
