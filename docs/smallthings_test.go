// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"strings"
	"testing"
)

// What was wrong on pages and in scripts, and looked right to those who had written it.
func TestSmallThings(t *testing.T) {
	for _, tt := range []struct{ name, file, has, hasNot string }{
		{
			"the krew index says that one command changes nodes", ".krew.yaml",
			`command "program" puts the right path there`, "Changes nothing",
		},
		{"the form of the report is v1alpha1, which is not stable", "README.md", "report.md", "stable contract"},
		{"likewise", "docs/report.md", "svcproxy.dev/v1alpha1", "stable contract"},
		{
			"README tells the nodes of the test cluster from those of its examples", "README.md",
			"`node1`, `node2` and `node3`, not `worker-2`", "",
		},
		{"cluster-up says how long it takes", "test/cluster/cluster", "the first time ten minutes", ""},
		{"and that it still works", "test/cluster/cluster", "while sleep 30", ""},
	} {
		text := read(t, filepath.Join(root, filepath.FromSlash(tt.file)))
		if !strings.Contains(text, tt.has) {
			t.Errorf("%s: %s has no %q", tt.name, tt.file, tt.has)
		}
		if tt.hasNot != "" && strings.Contains(text, tt.hasNot) {
			t.Errorf("%s: %s has %q", tt.name, tt.file, tt.hasNot)
		}
	}
}
