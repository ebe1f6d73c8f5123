// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestScriptCollectsWhatIsJudged runs the script of dump --script where there are real rules, those of the example with
// an endpoint missing, and judges what it has written: as a directory and as an archive.
func TestScriptCollectsWhatIsJudged(t *testing.T) {
	testutil.NeedRoot(t, "iptables-nft-restore", "ip6tables-nft-restore", "ip", "nft", "nfacct", "sh", "tar", "gzip",
		"awk")
	ns := testutil.NewExampleNode(t, filepath.Join(broken, "nodes", "worker-1"))

	dir := t.TempDir()
	script := filepath.Join(dir, "collect.sh")
	if code, out, errOut := runPlugin(t, "dump", "--script", "--node", "worker-1", "-o", script); code != 0 {
		t.Fatalf("%d %s%s", code, out, errOut)
	}
	before := rulesOf(ns.Run(t, "iptables-nft-save"))
	archive, folder := filepath.Join(dir, "w.tar.gz"), filepath.Join(dir, "w")
	for _, to := range []string{archive, folder} {
		t.Log(ns.Run(t, "sh", script, to))
	}
	if after := rulesOf(ns.Run(t, "iptables-nft-save")); after != before {
		t.Errorf("the script has changed the rules:\n%s\nbefore:\n%s", after, before)
	}
	unpacked := filepath.Join(dir, "unpacked")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		t.Fatal(err)
	}
	testutil.Run(t, "", "tar", "-C", unpacked, "-xzf", archive)
	for _, at := range []string{folder, unpacked} {
		if err := os.CopyFS(filepath.Join(at, "cluster"), os.DirFS(filepath.Join(broken, "cluster"))); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(filepath.Join(at, "nodes", "worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !slices.Contains(snapshot.NodeFiles, f.Name()) {
				t.Errorf("%s is not a file of the format", f.Name())
			}
		}
		code, out, errOut := runPlugin(t, "trace", "web", "-n", "shop", "--snapshot", at)
		if code != 1 || !strings.Contains(out, "MissingEndpoint  10.244.3.4:8080") {
			t.Errorf("exit code %d:\n%s%s", code, out, errOut)
		}
		if strings.Contains(out, "FileNotRead") && strings.Contains(out, "was not read:") {
			t.Errorf("a file cannot be read:\n%s", out)
		}
	}
	// It never writes over what is there.
	cmd := ns.Command(t, "sh", script, folder)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "exists") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestScriptNamesTheNode: without --node the node says its name; a name that is none never gets into the script.
func TestScriptNamesTheNode(t *testing.T) {
	_, out, _ := runPlugin(t, "dump", "--script")
	if !strings.Contains(out, "\nnode=''") || strings.Contains(out, "@FLAGS@") {
		t.Errorf("got %s", out)
	}
	for _, args := range []string{
		"--node a;b", "--node a --node b", "--all-nodes", "-l a=b", "--local", "web", "--end-to-end",
	} {
		code, out, _ := runPlugin(t, append([]string{"dump", "--script"}, strings.Fields(args)...)...)
		if code != 2 || out != "" {
			t.Errorf("%s: exit code %d, %q", args, code, out)
		}
	}
}

// counted are the counters of policies.
var counted = regexp.MustCompile(`\[\d+:\d+\]`)

// rulesOf is a save without its comments, which have the time, and without counters.
func rulesOf(save string) string {
	lines := slices.DeleteFunc(strings.Split(save, "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
	return counted.ReplaceAllString(strings.Join(lines, "\n"), "")
}
