// SPDX-License-Identifier: Apache-2.0

package workflows_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// In CI a skipped test is a failed one for hack/gotest.sh, and no test at all is a failure everywhere.
func TestGotest(t *testing.T) {
	script, err := filepath.Abs(root + "hack/gotest.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		test  string
		ci    string
		fails bool
		want  string
	}{
		"passes":          {`func TestA(t *testing.T) {}`, "true", false, "DONE 1 tests in"},
		"fails":           {`func TestA(t *testing.T) { t.Error("told so") }`, "", true, "told so"},
		"skipped at home": {`func TestA(t *testing.T) { t.Skip("no root") }`, "", false, "no root"},
		"skipped in CI": {
			`func TestA(t *testing.T) { t.Skip("no root") }`, "true", true, "1 tests were skipped, and CI=true",
		},
		"does not compile": {`func TestA(t *testing.T) { nothing() }`, "true", true, "undefined: nothing"},
		"runs nothing":     {`var _ testing.TB`, "", true, "no test was run"},
		"subtest is skipped": {
			`func TestA(t *testing.T) { t.Run("b", func(t *testing.T) { t.Skip() }) }`, "true", true, "TestA/b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":    "module x\ngo 1.26\n",
				"x_test.go": "package x\nimport \"testing\"\n" + tc.test + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), script, "./...")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "CI="+tc.ci)
			out, err := cmd.CombinedOutput()
			if _, ended := err.(*exec.ExitError); err != nil && !ended { //nolint:errorlint // of exec itself
				t.Fatal(err)
			}
			if (err != nil) != tc.fails || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v, and it said\n%s", err, out)
			}
		})
	}
}
