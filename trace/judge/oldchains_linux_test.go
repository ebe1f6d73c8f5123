// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
)

// A kernel deletes no chain that another one refers to, kube-proxy's write fails as a whole with it, and the remedy's
// command makes it succeed.
func TestCommandForOldChains(t *testing.T) {
	testutil.NeedRoot(t, "iptables-nft-restore", "iptables-nft-save", "unshare")
	node := testutil.NewNamespace(t)
	restore := func(text string) error {
		cmd := node.Command(t, "iptables-nft-restore", "--noflush")
		cmd.Stdin = strings.NewReader(text)
		return cmd.Run()
	}
	const gone = "KUBE-SVC-AAAAAAAAAAAAAAAA"
	if err := restore("*nat\n:" + gone + " - [0:0]\n:KUBE-XLB-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-MARK-DROP - [0:0]\n" +
		oldChains + "\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	// As kube-proxy writes it (pkg/proxy/iptables/proxier.go, "Delete chains no longer in use").
	sync := "*nat\n:KUBE-SERVICES - [0:0]\n:" + gone + " - [0:0]\n-X " + gone + "\nCOMMIT\n"
	if restore(sync) == nil {
		t.Error("the kernel deletes a chain that another one refers to")
	}
	if saved := node.Run(t, "iptables-nft-save", "-t", "nat"); strings.Contains(saved, "KUBE-SERVICES") {
		t.Error("a part of the write was done")
	}
	node.Run(t, "sh", "-c", removeOld)
	if err := restore(sync); err != nil {
		t.Error(err)
	}
	if saved := node.Run(t, "iptables-nft-save", "-t", "nat"); strings.Contains(saved, "AAAA") ||
		strings.Contains(saved, "DROP") {
		t.Error(saved)
	}
}
