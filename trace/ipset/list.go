// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/pasted"
)

// unpasted returns a text without what copying adds to it, and without prompts, commands and comments.
func unpasted(data []byte) string {
	lines := strings.Split(pasted.Text(data), "\n")
	for i, line := range lines {
		_, command := pasted.CommandOf(line, func(tool string) bool { return tool == "ipset" })
		if command || pasted.Prompt(line) || strings.HasPrefix(line, "#") {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
}

// parseList reads the output of ipset list, without what copying adds to it. A set of which members are missing or not
// understood is unknown; ok is false for another text.
func parseList(text string) (*Sets, bool) {
	l := lister{Sets: &Sets{byName: map[string]*set{}}}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			l.read(line)
		}
	}
	l.end()
	l.sort()
	return l.Sets, l.found
}

// lister reads the output of ipset list.
type lister struct {
	*Sets

	name, typ string
	set       *set // in progress; nil before its header was read
	members   bool // they follow
	entries   int  // as many as the header says; -1 where it does not
	got       int
	found     bool // a set was read
}

// read reads a line: "Name: X" begins a set, "Type:" and "Header:" say what it is (ipset, lib/session.c, list_create).
func (l *lister) read(line string) {
	key, value, _ := strings.Cut(line, ": ")
	switch {
	case key == "Name":
		l.end()
		l.name, l.entries = value, -1
	case l.name == "" || l.set != nil && !l.members && line != "Members:" && key != "Number of entries":
	case key == "Type" && !l.members:
		l.typ = value
	case key == "Header" && !l.members:
		l.header(value)
	case key == "Number of entries" && !l.members:
		if n, err := strconv.Atoi(value); err == nil {
			l.entries = n
		}
	case line == "Members:":
		l.members = l.set != nil
	case l.members:
		l.member(line)
	}
}

func (l *lister) header(text string) {
	f, err := fields(text)
	if err != nil || l.byName[l.name] != nil {
		return
	}
	if x, err := create(l.name, l.typ, f); err == nil {
		l.set, l.got, l.found = x, 0, true
		l.byName[l.name] = x
	}
}

func (l *lister) member(line string) {
	f, err := fields(line)
	if err == nil && len(f) > 0 && !pasted.Elided(line) {
		err = l.set.add(f[0], f[1:])
		l.got++
	} else {
		err = fmt.Errorf("a line of its list is not understood: %s", short(line))
	}
	if err != nil && l.set.unknown == "" {
		l.set.unknown = "set " + l.name + ": " + err.Error()
	}
}

// end ends the set in progress.
func (l *lister) end() {
	if x := l.set; x != nil && x.unknown == "" {
		switch {
		case !l.members:
			x.unknown = "of set " + l.name + " the members were not collected"
		case l.entries >= 0 && l.got != l.entries:
			x.unknown = fmt.Sprintf("set %s has %d members, of which %d were collected", l.name, l.entries, l.got)
		}
	}
	l.name, l.typ, l.set, l.members = "", "", nil, false
}
