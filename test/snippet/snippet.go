// SPDX-License-Identifier: Apache-2.0

// Package snippet finds the commands that the documentation shows, for the tests that run them. The line before a block
// of shell says who does:
//
//	<!-- run: docs -->            the tests of docs/, in a copy of nothing but the example; the block has to succeed
//	<!-- run: docs, exit 1 -->    likewise, and it has to end with this exit code
//	<!-- run: e2e -->             the tests of test/e2e, on a cluster
//	<!-- run: elsewhere -->       a script, which the tests of docs/ name
//
// A block without a language that follows is what it prints.
package snippet

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Block is a block of shell.
type Block struct {
	File   string
	Line   int    // of its first command
	Run    string // who runs it: docs, e2e or elsewhere
	Exit   int
	Text   string
	Output string // "": the document does not show it
}

// String says where a block is.
func (b *Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

var (
	fence = regexp.MustCompile("^\\s*(```+|~~~+)\\s*([A-Za-z0-9]*)\\s*$")
	note  = regexp.MustCompile(`^<!-- run: (docs|e2e|elsewhere)(?:, exit (\d+))? -->$`)
	shell = map[string]bool{"sh": true, "bash": true, "shell": true, "console": true, "zsh": true, "fish": true}
)

// Blocks returns the blocks of shell of a Markdown file. One that does not say who runs it is an error.
func Blocks(file string) ([]*Block, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*Block
	var open, language, before string // of the block that is being read; the line before
	var text strings.Builder
	var said []string // of the note before the block
	var last *Block   // the block of shell that ended last, with nothing behind it yet
	for i, line := range strings.Split(string(data), "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open, language = m[1], m[2]
			said = note.FindStringSubmatch(before)
			text.Reset()
			if shell[language] {
				if said == nil {
					return nil, fmt.Errorf("%s:%d: nobody runs this block: "+
						"the line before it has to say who does, such as <!-- run: docs -->", file, i+1)
				}
				last = &Block{File: file, Line: i + 2, Run: said[1]}
				if said[2] != "" {
					if last.Exit, err = strconv.Atoi(said[2]); err != nil {
						return nil, fmt.Errorf("%s:%d: %w", file, i, err)
					}
				}
			} else if said != nil {
				return nil, fmt.Errorf("%s:%d: this is not a block of shell", file, i+1)
			}
		case open != "" && m != nil && m[1] == open && m[2] == "":
			switch {
			case shell[language]:
				last.Text = text.String()
				all = append(all, last)
			case language == "" && last != nil:
				last.Output = text.String()
				last = nil
			}
			open = ""
		case open != "":
			text.WriteString(line + "\n")
		case strings.TrimSpace(line) != "":
			if note.MatchString(before) {
				return nil, fmt.Errorf("%s:%d: a note without a block", file, i)
			}
			last = nil
		}
		before = line
	}
	if open != "" {
		return nil, fmt.Errorf("%s: a block does not end", file)
	}
	return all, nil
}
