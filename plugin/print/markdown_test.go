// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	for _, name := range []string{"missing", "verify", "observed"} {
		golden(t, name+".markdown", render(t, "markdown", reports()[name], view(0)))
	}
}

// What a cluster or a node says makes no mark of its own.
func TestMarkdownOfHostileText(t *testing.T) {
	if got := escapeMarkdown("a|b`c`<script>[x](y)\n# h"); got != "a\\|b\\`c\\`\\<script\\>\\[x\\](y) \\# h" {
		t.Errorf("got %s", got)
	}
	if got := escapeMarkdown("http://a www.b.c WWW.d me@e"); got != "http\\://a www\\.b.c WWW\\.d me\\@e" {
		t.Errorf("got %s", got)
	}
	if got := inCode("a`b``c"); got != "``` a`b``c ```" {
		t.Errorf("got %s", got)
	}
	got := render(t, "markdown", drawnReports()["hostile"], view(0))
	code := false
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if !code && strings.HasPrefix(line, "<") || strings.Contains(line, "\x1b") {
			t.Errorf("got %q", line)
		}
	}
}
