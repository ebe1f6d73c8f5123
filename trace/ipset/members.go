// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"strings"
)

// Members calls f with each set of a text that Parse reads, and with each member, as text: of a set member is "". What
// changes by itself (timeouts, counters) is left out; the type and the family of a set are in its own text.
func Members(data []byte, f func(set, member, text string)) {
	name := "" // of ipset list
	for line := range strings.SplitSeq(unpasted(data), "\n") {
		words := strings.Fields(line)
		if len(words) < 2 {
			if len(words) == 1 && name != "" && words[0] != "Members:" {
				f(name, words[0], words[0])
			}
			continue
		}
		switch {
		case words[0] == "create" && len(words) > 2:
			f(words[1], "", describe(words[2], words[3:]))
		case words[0] == "add" && len(words) > 2:
			f(words[1], words[2], member(words[2], words[3:]))
		case words[0] == "Name:":
			name = words[1]
		case words[0] == "Type:" && name != "":
			f(name, "", words[1])
		case strings.HasSuffix(words[0], ":") || strings.HasSuffix(words[1], ":") || strings.Contains(line, ": "):
			// Revision, Header, Size in memory, References, Number of entries
		case name != "":
			f(name, words[0], member(words[0], words[1:]))
		}
	}
}

// describe is a set's type with the options that say what it is.
func describe(typ string, options []string) string {
	for i := 0; i+1 < len(options); i++ {
		if options[i] == "family" {
			return typ + " family " + options[i+1]
		}
	}
	return typ
}

// volatile are the options of a member that change by themselves (ipset, lib/ipset_hash_*.c), each with a value.
var volatile = map[string]bool{"timeout": true, "packets": true, "bytes": true}

func member(name string, options []string) string {
	out := []string{name}
	for i := 0; i < len(options); i++ {
		if volatile[options[i]] {
			i++
			continue
		}
		if options[i] == "comment" {
			break // does nothing, and is the last
		}
		out = append(out, options[i])
	}
	return strings.Join(out, " ")
}
