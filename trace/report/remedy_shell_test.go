// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"testing"
)

// ShellWords is the opposite of ShellLine, for any text.
func TestShellWords(t *testing.T) {
	for _, words := range [][]string{
		{"ip", "route", "del", "10.0.0.0/8"}, {"a b", "c'd", "", "'"}, {"a\nb", "it's\x1b", `\101`, "é́", "$x", "\xff"}, nil,
	} {
		if got := ShellWords(ShellLine(words...)); !slices.Equal(got, words) {
			t.Errorf("%q of %s, want %q", got, ShellLine(words...), words)
		}
	}
}
