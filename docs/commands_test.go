// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/test/snippet"
)

// shown are the documents each of whose commands is run by CI.
var shown = []string{"README.md", "docs/getting-started.md"}

// elsewhere are the commands that neither a test of this folder nor one of test/e2e runs, with what does: a file and
// what it has.
var elsewhere = map[string]struct{ file, line string }{
	"hack/test.sh":    {".ci/run", "\nexec hack/test.sh\n"},
	"make cluster-up": {"hack/test.sh", "\n\tmake --no-print-directory cluster-up >/dev/null\n"},
	"kubectl svcproxy status": {
		"test/e2e/status_test.go", `svcproxy(t, append([]string{"status", "-o=json"}, args...)...)`,
	},
	"make image": {"test/cluster/lib/binaries.sh", `"$root/hack/image.sh" "$images/nodehelper.tar"`},
	"make differential": {
		"test/walk/random/differential_linux_test.go", "\nfunc TestRandomRuleSetsAgainstTheKernel(",
	},
	"kubectl krew install svcproxy":     {"hack/release-test.sh", `kubectl krew install --manifest="$one/svcproxy.yaml"`},
	"kubectl apply -k deploy/daemonset": {"test/e2e/deploy_test.go", `"kustomize", "../../deploy/daemonset"`},
	"kubectl apply -k deploy/watch":     {"test/e2e/watch_test.go", `"kustomize", "../../deploy/watch"`},
}

func blocks(t *testing.T, file string) []*snippet.Block {
	t.Helper()
	all, err := snippet.Blocks(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("%s shows no command", file)
	}
	return all
}

// Every command that the documents show, in a block or in a sentence, is run somewhere: what says so has to be true,
// and to be needed.
func TestEveryCommandIsRun(t *testing.T) {
	inline := regexp.MustCompile("`((?:kubectl|make|go|docker|eval|test/cluster/cluster) [^`]+|hack/[a-z-]+\\.sh[^`]*)`")
	missed := map[string]bool{}
	for command, by := range elsewhere {
		missed[command] = true
		if !strings.Contains(read(t, filepath.Join(root, filepath.FromSlash(by.file))), by.line) {
			t.Errorf("%s is said to be run by %s, which has no %q", command, by.file, by.line)
		}
	}
	run := map[string]bool{}
	for _, file := range shown {
		for _, b := range blocks(t, file) {
			for command := range strings.Lines(b.Text) {
				run[strings.TrimSpace(command)] = true
			}
			if b.Run != "elsewhere" {
				continue
			}
			command := strings.TrimSpace(b.Text)
			if _, ok := elsewhere[command]; !ok {
				t.Errorf("%v: nobody is known to run %s", b, command)
			}
			delete(missed, command)
		}
	}
	for _, file := range shown {
		for _, m := range inline.FindAllStringSubmatch(read(t, filepath.Join(root, filepath.FromSlash(file))), -1) {
			command := m[1]
			if _, ok := elsewhere[command]; !ok && !run[command] && command != "kubectl svcproxy" {
				t.Errorf("%s: nobody is known to run %s", file, command)
			}
			delete(missed, command)
		}
	}
	for command := range missed {
		t.Errorf("no document shows %s", command)
	}
}

// The commands that need no cluster are run as written, in a folder that looks like the repository.
func TestCommands(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	for _, tool := range []string{"bash", "make", "kubectl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	for _, file := range shown {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			entries, err := os.ReadDir(root)
			if err != nil {
				t.Fatal(err)
			}
			top, err := filepath.Abs(root)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				// What the commands write stays in the folder.
				if slices.Contains([]string{".git", "bin", "dist"}, e.Name()) {
					continue
				}
				if err := os.Symlink(filepath.Join(top, e.Name()), filepath.Join(dir, e.Name())); err != nil {
					t.Fatal(err)
				}
			}
			path := []string{filepath.Join(dir, "bin"), filepath.Join(dir, "completion"), os.Getenv("PATH")}
			ran := 0
			for _, b := range blocks(t, file) {
				if b.Run != "docs" {
					continue
				}
				ran++
				cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", b.Text)
				cmd.Dir = dir
				// With the flags of make build: with others everything would be compiled once more.
				cmd.Env = append(os.Environ(), "PATH="+strings.Join(path, string(os.PathListSeparator)), "PWD="+dir,
					"GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0", "NO_COLOR=1", "KUBECONFIG="+filepath.Join(dir, "none"))
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err := cmd.Run()
				if code := cmd.ProcessState.ExitCode(); code != b.Exit {
					t.Errorf("%v: %v, want exit code %d\n%s\n%s%s", b, err, b.Exit, b.Text, &stdout, &stderr)
				}
				if b.Output != "" && stdout.String() != b.Output {
					t.Errorf("%v prints\n%s\nwhere the document has\n%s", b, &stdout, b.Output)
				}
			}
			if ran == 0 {
				t.Error("it has no command that needs no cluster")
			}
		})
	}
}
