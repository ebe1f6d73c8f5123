// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// The commands of snapshots.md that collect a node's files by hand are run as written, where there are the rules of the
// example, and what they write is judged as the example is.
func TestSnapshotByHand(t *testing.T) {
	testutil.Long(t)
	testutil.NeedRoot(t, "bash", "ip", "iptables-nft-restore", "ip6tables-nft-restore", "nft", "nfacct", "tar")
	var onNode, judged string
	for _, b := range blocks(t, "docs/snapshots.md") {
		switch {
		case strings.HasPrefix(b.Text, "mkdir -p nodes/NODE"):
			onNode = strings.ReplaceAll(b.Text, "NODE", "worker-1")
		case strings.Contains(b.Text, "--snapshot snap"):
			judged = b.Text
		}
	}
	if onNode == "" || judged == "" {
		t.Fatal("snapshots.md does not have the commands")
	}
	plugin := built(t)

	example, err := filepath.Abs(filepath.Join(root, "examples", "broken-node"))
	if err != nil {
		t.Fatal(err)
	}
	ns := testutil.NewExampleNode(t, filepath.Join(example, "nodes", "worker-1"))
	ns.Run(t, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")

	dir := t.TempDir()
	snap := filepath.Join(dir, "snap")
	if err := os.CopyFS(filepath.Join(snap, "cluster"), os.DirFS(filepath.Join(example, "cluster"))); err != nil {
		t.Fatal(err)
	}
	// Without -e: commands that the node does not have are skipped, as the page says.
	collect := ns.Command(t, "bash", "-c", onNode)
	collect.Dir = snap
	out, err := collect.CombinedOutput()
	t.Logf("%v\n%s", err, out)
	judge := exec.CommandContext(t.Context(), "bash", "-c", judged)
	judge.Dir = dir
	judge.Env = append(os.Environ(), "NO_COLOR=1",
		"PATH="+filepath.Dir(plugin)+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err = judge.CombinedOutput()
	for _, want := range []string{"MissingEndpoint", "StaleEndpoint", "Dropped", "MISMATCH: 8 of 27 paths"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%v: there is no %q in\n%s", err, want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "snap.tar.gz")); err != nil {
		t.Error(err)
	}
}
