// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"strings"
	"testing"
)

// AddHostile adds inputs to a fuzz target of one text that take time or memory of a careless reader: lines without end,
// nesting, repetition, what is cut off, control characters.
func AddHostile(f *testing.F, lines ...string) {
	f.Helper()
	const n = 20_000
	for _, text := range []string{
		"", "\x00", "\n", "\x1f\x8b\x08", "\xff\xfe", "\x1b[2J\u202e\u200b", strings.Repeat("\n", n),
		strings.Repeat("\x00", n),
		strings.Repeat("a", n), strings.Repeat(" ", n), strings.Repeat("\"", n), strings.Repeat("\\", n),
		strings.Repeat("[", n),
		strings.Repeat(`{"a":`, n/5), "[" + strings.Repeat("{},", n/3) + "{}]", strings.Repeat("9", n),
		strings.Repeat("-", n),
	} {
		f.Add([]byte(text))
	}
	for _, line := range lines {
		f.Add([]byte(line))
		f.Add([]byte(line[:len(line)/2]))
		f.Add([]byte(strings.Repeat(line, 1+n/max(1, len(line)))))
		f.Add(bytes.ReplaceAll([]byte(line), []byte(" "), []byte(strings.Repeat(" ", 1000))))
	}
}
