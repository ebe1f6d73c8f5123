// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Run runs a command with what it reads, and returns what it prints, errors included; the test fails where the
// command does.
func Run(t testing.TB, stdin string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...) //nolint:gosec // words of the tests
	cmd.Stdin = strings.NewReader(stdin)
	return output(t, cmd)
}

func output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// Rules are the commands that list the rules of every backend.
var Rules = []string{
	"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save", "nft list ruleset",
}

// expires is how long an element of a set has still to go.
var expires = regexp.MustCompile(` expires \w+`)

// Listing returns what the commands print, each line after its command, without comments, the counters of policies, and
// how long elements have still to go: equal before and after, if nothing was left.
func Listing(t testing.TB, commands ...string) string {
	t.Helper()
	var b strings.Builder
	for _, command := range commands {
		for line := range strings.Lines(Run(t, "", strings.Fields(command)...)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, ":") {
				line, _, _ = strings.Cut(line, " [")
			}
			b.WriteString(command + ": " + expires.ReplaceAllString(line, "") + "\n")
		}
	}
	return b.String()
}

// LegacyTables has the kernel make the tables that iptables-legacy makes as they are first asked for, and that
// stay.
func LegacyTables(t testing.TB) {
	t.Helper()
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		for _, table := range []string{"nat", "filter"} {
			Run(t, "", program, "-t", table, "-S")
		}
	}
}
