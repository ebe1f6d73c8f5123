// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"strings"
)

var errOpenQuote = errors.New("a quote does not end: the line is cut off")

// word is one word of a rule. start is its offset in the text that was split.
type word struct {
	text   string
	start  int
	quoted bool // always an argument
}

// is tells whether the word is text, and not quoted.
func (w *word) is(text string) bool { return !w.quoted && w.text == text }

// begins tells whether the word begins another option, match or target.
func (w *word) begins() bool {
	return w.is("!") || !w.quoted && strings.HasPrefix(w.text, "--") || isStart(*w)
}

// split cuts a rule into words, as iptables-save writes them: separated by spaces, quoted with " where necessary, with
// " and \ escaped by \ inside (libxtables/xtables.c, xtables_save_string). It appends to buf.
func split(s string, buf []word) ([]word, error) {
	for i := 0; i < len(s); {
		switch s[i] {
		case ' ', '\t':
			i++
		case '"':
			end, escaped := i+1, false
			for end < len(s) && s[end] != '"' {
				if s[end] == '\\' {
					escaped = true
					end++
				}
				end++
			}
			if end >= len(s) {
				return nil, errOpenQuote
			}
			text := s[i+1 : end]
			if escaped {
				text = unescape(text)
			}
			buf = append(buf, word{text, i, true})
			i = end + 1
		default:
			end := strings.IndexByte(s[i:], ' ')
			if end < 0 {
				end = len(s) - i
			}
			buf = append(buf, word{text: s[i : i+end], start: i})
			i += end
		}
	}
	return buf, nil
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// option is one option of a match or target, with its arguments.
type option struct {
	name string
	not  bool
	args []word
}

// arg returns the option's only argument.
func (o *option) arg() (string, bool) {
	if len(o.args) != 1 {
		return "", false
	}
	return o.args[0].text, true
}

// ports returns the option's only argument as a port or range of ports.
func (o *option) ports() (portRange, bool) {
	arg, ok := o.arg()
	if !ok {
		return portRange{}, false
	}
	return ports(arg)
}
