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

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/test/snippet"
)

// inSentences are the documents whose sentences show commands that CI runs, too.
var inSentences = []string{"README.md", "docs/getting-started.md"}

// shown are the documents each of whose blocks of commands is run by CI: all for people who use the program. Those of
// the runbook TestRunbook runs.
func shown(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	out := []string{"README.md", "SECURITY.md"}
	for _, f := range files {
		if f != "runbook.md" {
			out = append(out, "docs/"+f)
		}
	}
	return out
}

// by is what runs a command instead of a test that reads the document: a file, and what it has. Where nothing does, why
// says for what reason.
type by struct{ file, line, why string }

// elsewhere are the commands, blocks by their first line, that neither a test of this folder nor one of test/e2e runs
// as the document has them.
var elsewhere = map[string]by{
	"hack/test.sh":    {file: ".ci/run", line: "\nexec hack/test.sh\n"},
	"make cluster-up": {file: "hack/test.sh", line: "\n\tmake --no-print-directory cluster-up >/dev/null\n"},
	"kubectl svcproxy status": {
		file: "test/e2e/status_test.go", line: `svcproxy(t, append([]string{"status", "-o=json"}, args...)...)`,
	},
	"make image": {file: "test/cluster/lib/binaries.sh", line: `"$root/hack/image.sh" "$images/nodehelper.tar"`},
	"make differential": {
		file: "test/walk/random/differential_linux_test.go", line: "\nfunc TestRandomRuleSetsAgainstTheKernel(",
	},
	"kubectl krew install svcproxy": {
		file: "hack/release-test.sh", line: `kubectl krew install --manifest="$one/svcproxy.yaml"`,
	},
	"kubectl apply -k deploy/daemonset": {
		file: "test/e2e/deploy_test.go", line: `"kustomize", "../../deploy/daemonset"`,
	},
	"kubectl apply -k deploy/watch": {file: "test/e2e/watch_test.go", line: `"kustomize", "../../deploy/watch"`},

	// docs/air-gap.md
	"skopeo copy --all docker://ghcr.io/svcproxy/nodehelper@sha256:DIGEST " +
		"docker://registry.internal/svcproxy/nodehelper:v1.2.3": {why: "needs two registries, one with a release in it"},
	"ctr -n k8s.io images import nodehelper_v1.2.3.tar": {
		file: "test/cluster/lib/node-init.sh", line: `ctr -n k8s.io images import --all-platforms=false "$archive"`,
	},
	"kubectl-svcproxy trace shop/web --local --kubeconfig /root/kubeconfig": {
		file: "test/ipvs/live_test.go", line: `plugin, "trace", "sctp", "-n", "shop", "--local", "--node", nodeName,`,
	},
	"sh collect.sh snap": {
		file: "plugin/command/dump_script_linux_test.go", line: `ns.Run(t, "sh", script, to)`,
	},
	"kubectl svcproxy trace shop/web --snapshot snap": {
		file: "plugin/command/dump_script_linux_test.go",
		line: `runPlugin(t, "trace", "web", "-n", "shop", "--snapshot", at)`,
	},

	// docs/diff.md: on a cluster the exit code tells whether its nodes have the same mode.
	"kubectl svcproxy trace web -n shop --compare worker-1,worker-2": {
		file: "plugin/command/diff_test.go", line: `"trace", "shop/web", "--compare", "node1,node2", "--snapshot", two`,
	},

	// docs/snapshots.md
	"mkdir -p nodes/NODE && cd nodes/NODE           # the Node's name": {
		file: "docs/byhand_linux_test.go", line: "\nfunc TestSnapshotByHand(",
	},
	"kubectl svcproxy verify -A --snapshot snap": {
		file: "docs/byhand_linux_test.go", line: "\nfunc TestSnapshotByHand(",
	},

	// docs/metrics.md: the files of a release are these.
	"kubectl apply -f deploy.yaml -f watch.yaml": {
		file: "hack/release-assets.sh", line: `kubectl kustomize deploy/watch/monitoring >"$dir/watch-monitoring.yaml"`,
	},

	// docs/security.md
	`kubectl -n svcproxy patch configmap svcproxy-helper --type merge -p '{"data":{"image.NAME":"IMAGE"}}'`: {
		file: "test/e2e/policy_test.go",
		line: `kubectl("", "-n", deployed, "patch", "configmap", helperPolicy, "--type", "merge", "-p",`,
	},

	// SECURITY.md
	`identity='^https://github.com/svcproxy/kubectl-svcproxy/.github/workflows/release.yaml@refs/tags/v'`: {
		why: "needs a published release, its signatures and GitHub's provenance; the workflow of a release runs it",
	},

	// docs/architecture.md, for who changes the program
	"go test ./trace/iptables                # as root": {file: "hack/test.sh", line: "hack/gotest.sh -timeout 40m ./..."},
	"make docs && go test ./hack/findings && go test ./trace/judge -run 'Faults|TestFixtures|TestEveryKind'": {
		file: "hack/test.sh", line: "hack/gotest.sh -timeout 40m ./...",
	},
}

func blocks(t *testing.T, file string) []*snippet.Block {
	t.Helper()
	all, err := snippet.Blocks(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
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
		if (by.why == "") == (by.file == "") {
			t.Errorf("%s: either a file or a reason has to be named", command)
		}
		if by.why == "" && !strings.Contains(read(t, filepath.Join(root, filepath.FromSlash(by.file))), by.line) {
			t.Errorf("%s is said to be run by %s, which has no %q", command, by.file, by.line)
		}
	}
	run, found := map[string]bool{}, 0
	for _, file := range shown(t) {
		for _, b := range blocks(t, file) {
			found++
			for command := range strings.Lines(b.Text) {
				run[strings.TrimSpace(command)] = true
			}
			if b.Run != "elsewhere" {
				continue
			}
			command, _, _ := strings.Cut(strings.TrimSpace(b.Text), "\n")
			if _, ok := elsewhere[command]; !ok {
				t.Errorf("%v: nobody is known to run %s", b, command)
			}
			delete(missed, command)
		}
	}
	if found < 35 {
		t.Errorf("%d blocks of commands were found", found)
	}
	for _, file := range inSentences {
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
	testutil.Long(t)
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	for _, tool := range []string{"bash", "make", "kubectl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	plugin := built(t)
	for _, file := range shown(t) {
		if !slices.ContainsFunc(blocks(t, file), func(b *snippet.Block) bool { return b.Run == "docs" }) {
			continue
		}
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
			// A document that builds the program runs what it has built.
			path := []string{
				filepath.Join(dir, "bin"), filepath.Join(dir, "completion"), filepath.Dir(plugin), os.Getenv("PATH"),
			}
			for _, b := range blocks(t, file) {
				if b.Run != "docs" {
					continue
				}
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
		})
	}
}
