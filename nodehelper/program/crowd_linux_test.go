// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// foreignRules is the input of iptables-restore for n rules of another program: half of them in the chains that a path
// is hooked into, half in a chain of its own.
func foreignRules(n int) string {
	var b strings.Builder
	for _, table := range []struct{ name, chain string }{{"nat", "PREROUTING"}, {"filter", "FORWARD"}} {
		fmt.Fprintf(&b, "*%s\n:THEIRS - [0:0]\n", table.name)
		for i := range n / 2 {
			chain := table.chain
			if i%2 == 1 {
				chain = "THEIRS"
			}
			fmt.Fprintf(&b, "-A %s -s 198.18.%d.%d/32 -p tcp -m tcp --dport %d -j ACCEPT\n", chain, i/256%256, i%256, 1+i/65536)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// A path is programmed, updated and undone beside 100,000 rules of others, which stay as they are.
func TestBesideManyRulesOfOthers(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	n := testutil.Count(t, "SVCPROXY_FOREIGN_RULES", 4000)
	for _, m := range append(modes, struct{ mode, backend string }{wire.Userspace, wire.BackendNFT}) {
		t.Run(m.mode+" "+m.backend, func(t *testing.T) {
			resetRules(t)
			backend := m.backend
			if backend == "" {
				backend = wire.BackendNFT
			}
			testutil.Run(t, foreignRules(n), "iptables-"+backend+"-restore", "--noflush")
			save := "iptables-" + backend + "-save"
			before := testutil.Listing(t, save)
			prog := newProgrammer(t, t.TempDir())
			for _, p := range []string{"10.244.1.1:8080", "10.244.1.2:8080"} {
				begin := time.Now()
				if _, err := prog.Apply(t.Context(), params(web(0, p), m.mode, m.backend, "a")); err != nil {
					t.Fatal(err)
				}
				t.Logf("written in %v", time.Since(begin).Round(time.Millisecond))
			}
			begin := time.Now()
			undone, err := prog.Undo(t.Context(), wire.UndoMine)
			if err != nil || len(undone) != 1 {
				t.Fatalf("%v %v", undone, err)
			}
			t.Logf("undone in %v", time.Since(begin).Round(time.Millisecond))
			if after := testutil.Listing(t, save); after != before {
				t.Errorf("the rules of others have changed: %d bytes, and were %d", len(after), len(before))
			}
		})
	}
}
