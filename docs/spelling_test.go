// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	notProse   = regexp.MustCompile(`<!--.*?-->|\]\([^)]*\)|https?://[^ )]*`)
	plainWord  = regexp.MustCompile(`^[a-z]+$`)
)

// TestSpelling: every word of the Markdown in small letters is one of British English, or of words.txt. Words with a
// capital letter are names.
func TestSpelling(t *testing.T) {
	if _, err := exec.LookPath("hunspell"); err != nil {
		t.Skip("needs hunspell with the dictionary en_GB (hack/install-test-deps.sh)")
	}
	known := strings.Fields(read(t, "words.txt"))
	var all strings.Builder
	for _, page := range pages(t) {
		if text := read(t, page); !strings.HasPrefix(text, "<!-- Written by ") {
			all.WriteString(prose(text))
		}
	}
	cmd := exec.CommandContext(t.Context(), "hunspell", "-d", "en_GB", "-l")
	cmd.Stdin = strings.NewReader(all.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("hunspell -d en_GB: %v (hack/install-test-deps.sh installs the dictionary)", err)
	}
	words := strings.Fields(string(out))
	slices.Sort(words)
	for _, word := range slices.Compact(words) {
		if plainWord.MatchString(word) && !slices.Contains(known, word) {
			t.Errorf("%q is not in the dictionary: correct it, or add it to docs/words.txt", word)
		}
	}
}

// prose is the text of a Markdown file without code, links' targets and comments.
func prose(text string) string {
	var b strings.Builder
	fence := false
	for line := range strings.Lines(text) {
		if codeFence.MatchString(line) {
			fence = !fence
			continue
		}
		if !fence {
			b.WriteString(notProse.ReplaceAllString(inlineCode.ReplaceAllString(line, ""), " "))
		}
	}
	return b.String()
}
