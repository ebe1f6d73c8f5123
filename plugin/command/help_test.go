// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

func TestNamespaceOfKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {cluster: k, " +
		"namespace: shop}\nclusters:\n- name: k\n  cluster: {server: https://127.0.0.1:1}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runWith(t, file, "trace", "web", "--snapshot", broken); code != run.ExitMismatch {
		t.Errorf("got %d: %s", code, stderr)
	}
	// With a snapshot, a kubeconfig that cannot be read does not matter.
	if err := os.WriteFile(file, []byte("{{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runWith(t, file, "trace", "kubernetes", "--snapshot", broken); code == run.ExitUsage {
		t.Errorf("got %d: %s", code, stderr)
	}
}

func TestVersion(t *testing.T) {
	_, stdout, _ := runPlugin(t, "version", "-o", "json")
	var b buildInfo
	err := json.Unmarshal([]byte(stdout), &b)
	if err != nil || b.Version == "" || b.Go == "" || !strings.Contains(b.Platform, "/") {
		t.Errorf("got %q, %v", stdout, err)
	}
	if _, stdout, _ := runPlugin(t, "version", "-o", "yaml"); !strings.Contains(stdout, "goVersion: go1.") {
		t.Errorf("got %q", stdout)
	}
	version, commit = "v1.2.3", "abcdef"
	defer func() { version, commit = "", "" }()
	if _, stdout, _ := runPlugin(t, "version"); !strings.HasPrefix(stdout, "kubectl-svcproxy v1.2.3 (abcdef), go1.") {
		t.Errorf("got %q", stdout)
	}
}

func TestHelp(t *testing.T) {
	_, stdout, _ := runPlugin(t, "trace", "--help")
	if !strings.Contains(stdout, "kubectl svcproxy trace SERVICE[:PORT]") || strings.Contains(stdout, "--token") {
		t.Errorf("got %s", stdout)
	}
	_, stdout, _ = runPlugin(t, "options")
	for _, flag := range []string{"--kubeconfig", "--context", "--namespace", "--as", "--server"} {
		if !strings.Contains(stdout, flag) {
			t.Errorf("options does not list %s", flag)
		}
	}
	for _, cmd := range New(genericiooptions.NewTestIOStreamsDiscard(), System{}).Commands() {
		if cmd.Hidden {
			continue
		}
		if cmd.Runnable() && cmd.Name() != "options" && cmd.Name() != "completion" && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.Name())
		}
	}
}

// Commands that work on a cluster alone offered a snapshot, and one endpoint "are" not used.
func TestSmallThings(t *testing.T) {
	for _, name := range []string{"cleanup", "dump"} {
		_, help, _ := runPlugin(t, name, "--help")
		_, flags, _ := strings.Cut(help, "\nFlags:")
		if flags == "" || strings.Contains(flags, "--snapshot") || strings.Contains(flags, "--show-all") {
			t.Errorf("%s --help: %s", name, help)
		}
	}
	_, stdout, _ := runPlugin(t, "resolve", "batch", "-n", "shop", "--snapshot", broken)
	if !strings.Contains(stdout, "\n0 of 1 endpoint of shop/batch is used in the whole cluster") {
		t.Errorf("got %s", stdout)
	}
	_, help, _ := runPlugin(t, "trace", "--help")
	if help = strings.Join(strings.Fields(help), " "); !strings.Contains(help,
		"By default all nodes of a snapshot, or up to 3 nodes of a cluster, which the output names") {
		t.Errorf("got %s", help)
	}
}

func TestComplete(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"trace --snapshot " + broken + " -n shop |", "admin\napi\nbatch\ncheckout\nfrontend\nweb\n"},
		{"trace --snapshot " + broken + " -n shop web |", ""},
		{"verify --snapshot " + broken + " -n shop web |", "admin\napi\nbatch\ncheckout\nfrontend\n"},
		{"trace |", ""},
		{"trace --snapshot " + broken + " --node |", "worker-1\n"},
		{"trace --snapshot " + broken + " -n |", "default\nkube-system\nshop\n"},
		{"version -o |", "json\nyaml\n"},
		{"mode --snapshot " + broken + " |", "worker-1\n"},
		{"ve|", "verify\nversion\n"},
	} {
		before, _ := strings.CutSuffix(tt.args, "|")
		args := append([]string{"__completeNoDesc"}, strings.Fields(before)...)
		if strings.HasSuffix(before, " ") {
			args = append(args, "")
		}
		_, stdout, _ := runPlugin(t, args...)
		if got, _, _ := strings.Cut(stdout, ":"); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.args, got, tt.want)
		}
	}
}
