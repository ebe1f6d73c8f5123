// SPDX-License-Identifier: Apache-2.0

// Package workflows_test compares the workflows of GitHub with the project's own test command, so that neither runs
// less than the other, and no test is in neither.
package workflows_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../"

// workflow is the part of a workflow that is checked.
type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Uses     string `json:"uses"`
		Timeout  int    `json:"timeout-minutes"`
		Strategy struct {
			Matrix struct {
				Include []struct {
					Steps string `json:"steps"`
				} `json:"include"`
				Step []string `json:"step"`
			} `json:"matrix"`
		} `json:"strategy"`
	} `json:"jobs"`
}

func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(root + ".github/workflows/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are %d workflows, %v", len(files), err)
	}
	texts := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(f)] = string(text)
	}
	return texts
}

// Whoever may move a tag of an action must not run in a release: actions are named by their commit, with the full
// version beside it.
func TestActionsArePinned(t *testing.T) {
	uses := regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	commits := map[string]string{}
	for name, text := range workflows(t) {
		for _, m := range uses.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "./.github/workflows/") {
				continue
			}
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned", name, m[1])
			}
			action, commit, _ := strings.Cut(m[1], "@")
			if other, ok := commits[action]; ok && other != commit {
				t.Errorf("%s: %s is of %s here, and of %s elsewhere", name, action, commit, other)
			}
			commits[action] = commit
		}
	}
	if len(commits) == 0 {
		t.Error("no action was found")
	}
}
