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

	ns := testutil.NewNamespace(t)
	for _, command := range []string{
		"ip link set lo up", "ip link add eth0 type veth peer name peer0", "ip link add cni0 type bridge",
		"ip addr add 10.77.0.11/24 dev eth0", "ip addr add 10.244.1.1/24 dev cni0",
		"ip link set eth0 up", "ip link set peer0 up", "ip link set cni0 up",
		"ip route add default via 10.77.0.1", "ip route add 10.244.2.0/24 via 10.77.0.12",
		"ip route add 10.244.3.0/24 via 10.77.0.13", "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1",
	} {
		ns.Run(t, strings.Fields(command)...)
	}
	for _, counter := range []string{"ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"} {
		ns.Run(t, "nfacct", "add", counter)
	}
	example, err := filepath.Abs(filepath.Join(root, "examples", "broken-node"))
	if err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(example, "nodes", "worker-1")
	ns.Run(t, "iptables-nft-restore", filepath.Join(rules, "iptables-save.txt"))
	ns.Run(t, "ip6tables-nft-restore", filepath.Join(rules, "ip6tables-save.txt"))

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
