// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// built builds the plugin, and returns the file.
func built(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubectl-svcproxy")
	// With the flags of make build: with others everything would be compiled once more.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", file, "../cmd/kubectl-svcproxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// Every example of the runbook is run as written there, by kubectl, and prints what is shown below it.
func TestRunbook(t *testing.T) {
	testutil.Long(t)
	if runtime.GOOS == "windows" {
		t.Skip("the examples are for a POSIX shell")
	}
	for _, tool := range []string{"bash", "kubectl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	plugin := built(t)
	dir := t.TempDir()
	snap, err := filepath.Abs(filepath.Join(root, "examples", "broken-node"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(snap, filepath.Join(dir, "snap")); err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```sh\n(.*?)```\n\n```\n(.*?)```\n")
	examples := example.FindAllStringSubmatch(read(t, "runbook.md"), -1)
	if len(examples) < 8 {
		t.Errorf("%d examples were found", len(examples))
	}
	for _, e := range examples {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", e[1])
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(plugin)+string(os.PathListSeparator)+os.Getenv("PATH"))
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // what it answers counts; an exit code may be the example's point
		if stdout.String() != e[2] || stderr.Len() > 0 {
			t.Errorf("%s\nanswers\n%s%s\nwhere the runbook has\n%s", e[1], &stdout, &stderr, e[2])
		}
	}
}
