// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"dump.tar.gz": "dump.tar.gz", "/a/b-c_1": "/a/b-c_1", "spec.nodeName=n1": "spec.nodeName=n1",
		"[fd00::1]:80": "'[fd00::1]:80'", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$x": "'$x'", "é": "'é'",
		"a\nb": `$'a\012b'`, "it's\n\\": `$'it\047s\012\134'`, "\u202eb": `$'\342\200\256b'`, "\xff": `$'\377'`,
	} {
		if got := ShellWord(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// hostile are names that a shell that is not kept from it takes for something else.
func hostile(dir string) []string {
	mark := filepath.Join(dir, "mark")
	return []string{
		"a; touch " + mark, "$(touch " + mark + ")", "`touch " + mark + "`", "a\ntouch " + mark, "a\rtouch " + mark, "' ; touch " +
			mark + " ; '", "'\n touch " + mark + " ; '", "a && touch " + mark, "a|touch " + mark, "a >" + mark, "\\", "\\'",
		"a\\\nb", "~root", "*", "{a,b}", "!!", "#a", "a #b", "-rf", "", " ", "\t", "a\x1b[2Jb", "\u202ea", "\xff\xfe",
		"\ufffd",
		`"`, `$'\n'`, "a=b", "$HOME", "é \u2028 b",
	}
}

// What ShellLine writes is one line that a shell splits into the same words, and does nothing else with.
func TestShellsReadShellLines(t *testing.T) {
	dir := t.TempDir()
	words := hostile(dir)
	line := ShellLine(words...)
	if strings.ContainsFunc(line, notPrinted) {
		t.Errorf("not one line of printable characters: %q", line)
	}
	out, err := exec.Command("bash", "-c", `set -- `+line+`; printf '%s\0' "$@"`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("bash reads %q\nof %q", got, words)
	}
	// A shell from before POSIX.1-2024 may not know $'…': it then reads another word, and still one word.
	out, err = exec.Command("sh", "-c", `set -- `+line+`; printf '%s' "$#"`).Output()
	if want := len(words); err != nil || string(out) != strconv.Itoa(want) {
		t.Errorf("sh reads %s words of %d: %v", out, want, err)
	}
	if made, _ := filepath.Glob(filepath.Join(dir, "*")); len(made) > 0 {
		t.Errorf("a name was run as a command: %q", made)
	}
}
