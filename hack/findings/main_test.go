// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

func TestTheIndexIsCurrent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "findings.md"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := indexed(string(page), judge.Kinds())
	if err != nil {
		t.Error(err)
	}
	if out != string(page) {
		t.Error("docs/findings.md is not current: make docs")
	}
}

func TestIndexed(t *testing.T) {
	kinds := []judge.KindInfo{
		{Code: "Lost", Scope: "path", Severity: report.Error}, {Code: "Late", Scope: "node", Severity: report.Warn},
	}
	page := "# Findings\n" + begin + "\nold\n" + end +
		"\n\n## Group\n\n### Lost\n\n*error* · text\n\n### Late\n\n*warning* · text\n"
	want := strings.Replace(page, "\nold\n", `

**Group**

| code | severity | about |
|---|---|---|
| [Lost](#lost) | error | a path |
| [Late](#late) | warning | a node |

`, 1)
	if out, err := indexed(page, kinds); err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	for fault, change := range map[string][2]string{
		"there is no section ### Late":          {"### Late", "### Later"},
		"section Lost must begin with *error*":  {"*error*", "*info*"},
		"it lacks the lines":                    {begin, ""},
		"section Late must begin with *warning": {"*warning* · text", "text"},
	} {
		_, err := indexed(strings.Replace(page, change[0], change[1], 1), kinds)
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want %q", err, fault)
		}
	}
}
