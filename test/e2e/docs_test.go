// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/test/snippet"
)

// The commands that the documents show for a cluster do there what they say, as written, but for the names of the
// node and of the namespace: those of these tests. The rest of the documents' commands docs/ runs.
func TestDocumentedCommands(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed:", err)
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "all is right", func() (bool, error) {
		r := svcproxy(t, "verify", "-A", "--all-nodes")
		return r.code == 0, fmt.Errorf("%s", r)
	})
	names := strings.NewReplacer("worker-2", nodes[1], "--node NODE ", "--node "+nodes[1]+" ", "-n shop", "-n "+namespace,
		" shop/web", " "+namespace+"/web")
	files, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "runbook.md" }) // offline
	tried := 0
	for _, file := range append(files, filepath.Join(repository, "README.md")) {
		blocks, err := snippet.Blocks(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks = slices.DeleteFunc(blocks, func(b *snippet.Block) bool { return b.Run != "e2e" })
		if len(blocks) == 0 {
			continue
		}
		tried++
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			// A release finds its image by itself; that of the tests has to be named.
			if err := os.Symlink(plugin, filepath.Join(dir, "kubectl-svcproxy")); err != nil {
				t.Fatal(err)
			}
			copyDeploy(t, filepath.Join(repository, "deploy"), filepath.Join(dir, "deploy"))
			t.Cleanup(func() {
				// Without the test's context, which has ended; a block that failed may have left it.
				c := exec.Command(kubectl, "delete", "-k", filepath.Join(repository, "deploy"), "--ignore-not-found",
					"--wait", "--timeout=90s")
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
			for _, b := range blocks {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", names.Replace(b.Text))
				var out bytes.Buffer
				cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, &out, &out, time.Second
				cmd.Env = append(os.Environ(), "NO_COLOR=1", "SVCPROXY_IMAGE="+image,
					"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
				err := cmd.Run()
				cancel()
				if code := cmd.ProcessState.ExitCode(); code != b.Exit {
					t.Errorf("%v: %v, want exit code %d\n%s\n%s", b, err, b.Exit, b.Text, &out)
				}
			}
			noHelperPods(t)
		})
	}
	if tried < 8 {
		t.Errorf("%d documents have commands for a cluster", tried)
	}
}

// copyDeploy copies deploy/ with the image of the tests, as a release has its own.
func copyDeploy(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(to, "policy.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const placeholder = "image.release: ghcr.io/svcproxy/nodehelper:dev\n"
	if strings.Count(string(text), placeholder) != 1 {
		t.Fatalf("there is no %q in %s", placeholder, file)
	}
	text = []byte(strings.Replace(string(text), placeholder, "image.release: "+image+"\n", 1))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
