// SPDX-License-Identifier: Apache-2.0

package program

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// The tables that iptables-nft leaves after they have been emptied stay unchanged.
func TestEmptyTablesStay(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, tool := range []string{"iptables-nft", "ip6tables-nft"} {
		for _, table := range []string{"nat", "filter"} {
			testutil.Run(t, "", tool, "-t", table, "-N", "THEIRS")
			testutil.Run(t, "", tool, "-t", table, "-A", "OUTPUT", "-j", "THEIRS")
			testutil.Run(t, "", tool, "-t", table, "-F")
			testutil.Run(t, "", tool, "-t", table, "-X")
		}
	}
	for _, w := range modes {
		t.Run(w.mode+" "+w.backend, func(t *testing.T) {
			if w.backend == wire.BackendLegacy {
				testutil.LegacyTables(t)
			}
			prog := newProgrammer(t, t.TempDir())
			before := testutil.Listing(t, testutil.Rules...)
			if !strings.Contains(before, "table ip nat") {
				t.Fatalf("there are no tables: %s", before)
			}
			if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), w.mode, w.backend, "a")); err != nil {
				t.Fatal(err)
			}
			if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Fatal(err)
			}
			if after := testutil.Listing(t, testutil.Rules...); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// The tables that iptables-nft created for two plans are removed with the last of them, in any order.
func TestNothingStaysOfTwo(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, firstEnds := range []bool{true, false} {
		root := t.TempDir()
		before := testutil.Listing(t, testutil.Rules...)
		a, b := web(0, "10.244.1.1:8080"), web(0, "10.244.2.2:8080")
		b.Name = "ffff0001"
		for i := range b.Frontends {
			b.Frontends[i].Address = netip.AddrPortFrom(b.Frontends[i].Address.Addr(), 8)
		}
		one, two := newProgrammer(t, root), newProgrammer(t, root)
		for _, x := range []struct {
			*Programmer
			*plan.Plan
		}{{one, a}, {two, b}} {
			if _, err := x.Apply(t.Context(), params(x.Plan, wire.IPTables, wire.BackendNFT, x.Name)); err != nil {
				t.Fatal(err)
			}
		}
		order := []*Programmer{one, two}
		if !firstEnds {
			slices.Reverse(order)
		}
		for _, p := range order {
			if _, err := p.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Fatal(err)
			}
		}
		if after := testutil.Listing(t, testutil.Rules...); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	}
}

// kube-proxy is started meanwhile and writes all of its rules, with its jumps ahead of ours; and a chain of ours is
// flushed.
func TestOthersWriteMeanwhile(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	const kube = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SEP-A - [0:0]
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SEP-A
-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.1:8080
COMMIT
`
	for _, backend := range []string{wire.BackendNFT, wire.BackendLegacy} {
		t.Run(backend, func(t *testing.T) {
			restore := func() {
				cmd := exec.CommandContext(t.Context(), "iptables-"+backend+"-restore", "--noflush")
				cmd.Stdin = strings.NewReader(kube)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			restore()
			testutil.LegacyTables(t)
			want := testutil.Listing(t, testutil.Rules...)
			testutil.Run(t, "", "iptables-"+backend, "-t", "nat", "-F")
			testutil.Run(t, "", "iptables-"+backend, "-t", "nat", "-X")
			prog := newProgrammer(t, t.TempDir())
			_, err := prog.Apply(t.Context(), params(web(60, "10.244.1.1:8080", "10.244.2.2:8080"), wire.IPTables, backend, "a"))
			if err != nil {
				t.Fatal(err)
			}
			restore()
			testutil.Run(t, "", "iptables-"+backend, "-t", "nat", "-F", "SVCPROXY-0123abcd-F0")
			testutil.Run(t, "", "iptables-"+backend, "-t", "filter", "-D", "INPUT", "1")
			if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Fatal(err)
			}
			got := testutil.Listing(t, testutil.Rules...)
			// The base chains existed before, so they stay.
			if backend == wire.BackendNFT {
				got, want = without(got, "chain POSTROUTING"), without(want, "chain POSTROUTING")
			}
			if natOf(got) != natOf(want) || strings.Contains(got, "SVCPROXY") {
				t.Errorf("kube-proxy's rules:\n%s\nafter:\n%s", natOf(want), natOf(got))
			}
		})
	}
}

func without(text, part string) string {
	var out []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, part) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// natOf are the rules that a state has, in order.
func natOf(state string) string {
	var out []string
	for line := range strings.Lines(state) {
		if strings.HasPrefix(line, "-A ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
