// SPDX-License-Identifier: Apache-2.0

package gen

import (
	"slices"
	"strings"
)

var builtin = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// saved makes a dump of the fake iptables, which keeps rules as they were asked for, into what iptables-save prints:
// built-in chains have a policy, a rule starts with its addresses, interfaces and protocol, and comments have quotes.
func saved(dump []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(dump)) {
		line = strings.TrimSuffix(line, "\n")
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, ":"), " - "); ok && line[0] == ':' &&
			slices.Contains(builtin, name) {
			line = ":" + name + " ACCEPT " + rest
		}
		if strings.HasPrefix(line, "-A ") {
			line = savedRule(line)
		}
		out.WriteString(line + "\n")
	}
	return []byte(out.String())
}

func savedRule(line string) string {
	all := words(line)
	var head, tail []string
	for i := 2; i < len(all); i++ {
		not := all[i] == "!"
		at := i
		if not {
			at++
		}
		switch all[at] {
		case "-s", "-d", "-i", "-p":
			head = append(head, all[i:at+2]...)
			i = at + 1
		case "--comment": // the fake loses the quotes of the jumps from built-in chains
			end := i + 2
			for !strings.HasPrefix(all[i+1], `"`) && all[end] != "-j" && all[end] != "-m" && !strings.HasPrefix(all[end], "-") {
				end++
			}
			tail = append(tail, "--comment", `"`+strings.Trim(strings.Join(all[i+1:end], " "), `"`)+`"`)
			i = end - 1
		default:
			tail = append(tail, all[i])
		}
	}
	return strings.Join(slices.Concat(all[:2], head, tail), " ")
}

// words splits a rule; what is in quotes is one word.
func words(line string) []string {
	var out []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		end := strings.IndexByte(line, ' ')
		if line[0] == '"' {
			end = strings.IndexByte(line[1:], '"') + 2
		}
		if end < 1 || end > len(line) {
			end = len(line)
		}
		out = append(out, line[:end])
		line = line[end:]
	}
	return out
}
