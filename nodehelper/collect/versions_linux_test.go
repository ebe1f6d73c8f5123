// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A program is asked once, and again where its path leads to another file, or the file has another content; one that
// fails is asked each time, and so is a script.
func TestVersionsAreAskedOnce(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(filepath.Join(root, "iptables")),
			os.Symlink(target, filepath.Join(root, "iptables"))); err != nil {
			t.Fatal(err)
		}
	}
	write("nft", elf+"1")
	write("legacy", elf+"1")
	write("wrapper", "#!/bin/sh")
	link("/nft") // of this root
	var v versionsOf
	asked := 0
	ask := func(want bool, what, text string, failure error) {
		t.Helper()
		before := asked
		got, err := v.of(root, "/iptables", func() (string, error) {
			asked++
			return text, failure
		})
		if (asked > before) != want || !errors.Is(err, failure) || want && got != text {
			t.Errorf("%s: asked %t, %q, %v", what, asked > before, got, err)
		}
	}
	broken := errors.New("broken")
	ask(true, "one that fails", "", broken)
	ask(true, "it has failed", "1 (nf_tables)", nil)
	ask(false, "the same", "1 (nf_tables)", nil)
	link("/legacy")
	ask(true, "another file", "1 (legacy)", nil)
	ask(false, "the same", "1 (legacy)", nil)
	write("legacy", elf+"two")
	ask(true, "another content", "2 (legacy)", nil)
	link("/wrapper")
	ask(true, "a script", "1 (nf_tables)", nil)
	ask(true, "a script may choose another one", "1 (legacy)", nil)
	link("/nothing")
	ask(true, "no file", "", nil)
	ask(true, "still none", "", nil)
}
