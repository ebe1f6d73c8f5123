// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/run"
)

// repaired is a copy of the broken snapshot with an edited file of its node.
func repaired(t *testing.T, file string, edit func(string) string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "after")
	if err := os.CopyFS(dir, os.DirFS(broken)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "nodes", "worker-1", file)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := edit(string(data))
	if text == string(data) {
		t.Fatalf("nothing of %s is changed", file)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDiffExitCodes(t *testing.T) {
	rule := repaired(t, "iptables-save.txt", func(s string) string {
		return strings.Replace(s, "COMMIT", "-A PREROUTING -s 192.0.2.1/32 -j ACCEPT\nCOMMIT", 1)
	})
	// A setting that is none of the network.
	setting := repaired(t, "sysctl.txt", func(s string) string { return s + "kernel.pid_max = 7\n" })
	two := "../../testdata/endtoend/vxlan.tar.gz"
	for _, x := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"diff", broken, broken}, run.ExitRight, "SAME: nothing that is compared differs on 1 node", ""},
		{[]string{"diff", broken, setting}, run.ExitRight, "SAME: nothing that is compared differs on 1 node", ""},
		{[]string{"diff", broken, rule}, run.ExitMismatch, "1 difference of rules", ""},
		{[]string{"diff", broken, rule, "-o", "name"}, run.ExitMismatch, "node/worker-1", ""},
		{[]string{"diff", broken, two}, run.ExitMismatch, "4 nodes in one snapshot only", ""},
		{[]string{"diff", broken}, run.ExitUsage, "", "diff needs two snapshots"},
		{[]string{"diff", broken, ""}, run.ExitUsage, "", "the path of a snapshot is empty"},
		{[]string{"diff", broken, "no-such"}, run.ExitUsage, "", "there is no snapshot at no-such"},
		{[]string{"diff", broken, rule, "--node", "nobody"}, run.ExitUsage, "", `node "nobody" is in neither`},
		{[]string{"diff", broken, rule, "-o", "html"}, run.ExitUsage, "", "-o html is not an output format of this command"},
		{
			[]string{"trace", "shop/web", "--compare", "node1,node2", "--snapshot", two},
			run.ExitRight,
			"SAME: no path and no rule that is compared differs", "",
		},
		{
			[]string{"trace", "shop/web", "--compare", "node1", "--snapshot", two},
			run.ExitUsage, "",
			"it takes two nodes, GOOD,BAD",
		},
		{
			[]string{"trace", "shop/web", "--compare", "node1,node1", "--snapshot", two},
			run.ExitUsage, "",
			"--compare takes two different nodes",
		},
		{
			[]string{"trace", "shop/web", "--compare", "node1,nobody", "--snapshot", two},
			run.ExitUsage, "",
			`node "nobody" is not in the snapshot`,
		},
		{
			[]string{"trace", "shop/web", "--compare", "node1,node2", "--node", "node3", "--snapshot", two},
			run.ExitUsage, "",
			"--compare names the nodes",
		},
		{
			[]string{"trace", "shop/web", "--compare", "node1,node2", "--from", "pod/x", "--snapshot", two},
			run.ExitUsage, "",
			"--from pod/x is on one node",
		},
		{
			[]string{"trace", "shop/web", "--compare", "node1,node2", "-o", "mermaid", "--snapshot", two},
			run.ExitUsage, "",
			"-o mermaid is not an output format of this command",
		},
	} {
		code, stdout, stderr := runPlugin(t, x.args...)
		if code != x.code || !strings.Contains(stdout, x.stdout) || !strings.Contains(stderr, x.stderr) {
			t.Errorf("%v: got %d\n%s\n%s\nwant %d, %q and %q", x.args, code, stdout, stderr, x.code, x.stdout, x.stderr)
		}
	}
}
