// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// What has a name of ours and no record was not made by us: it is not programmed over, and not removed.
func TestOthersHaveOurNames(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for name, c := range map[string]struct {
		mode, backend string
		do            []string
		said          string
	}{
		"a table": {
			wire.NFTables, "", []string{"nft", "add table ip svcproxy-0123abcd"}, "the table ip svcproxy-0123abcd",
		},
		"of IPv6": {
			wire.NFTables, "", []string{"nft", "add table ip6 svcproxy-0123abcd"}, "the table ip6 svcproxy-0123abcd",
		},
		"a chain, nft": {
			wire.IPTables, wire.BackendNFT,
			[]string{"iptables-nft", "-N", "SVCPROXY-0123abcd-DROP"},
			"the chain SVCPROXY-0123abcd-DROP of table ip filter",
		},
		"a chain, legacy": {
			wire.IPTables, wire.BackendLegacy,
			[]string{"iptables-legacy", "-t", "nat", "-N", "SVCPROXY-0123abcd-NAT"},
			"the chain SVCPROXY-0123abcd-NAT of table nat",
		},
		"in userspace mode": {
			wire.Userspace, wire.BackendNFT,
			[]string{"iptables-nft", "-t", "nat", "-N", "SVCPROXY-0123abcd-NAT"},
			"the chain SVCPROXY-0123abcd-NAT of table ip nat",
		},
	} {
		for _, dry := range []bool{true, false} {
			resetRules(t)
			testutil.LegacyTables(t)
			testutil.Run(t, "", c.do...)
			before := testutil.Listing(t, testutil.Rules...)
			prog := newProgrammer(t, t.TempDir())
			req := params(web(0, "10.244.1.1:8080"), c.mode, c.backend, "a")
			req.DryRun = dry
			_, err := prog.Apply(t.Context(), req)
			if err == nil || !strings.Contains(err.Error(), c.said) {
				t.Errorf("%s: %v", name, err)
			}
			if got := testutil.Listing(t, testutil.Rules...); got != before {
				t.Errorf("%s: changed to %s", name, got)
			}
		}
	}
}

// A table of ours that somebody has made anew, or made a firewall in, while the path was programmed.
func TestTableBecomesTheirs(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	const table = "svcproxy-0123abcd"
	for name, c := range map[string]struct{ do, stay, said string }{
		"made again": {
			"delete table ip " + table + "; add table ip " + table + "; add chain ip " + table +
				" wall { type filter hook input priority 0; policy drop; }",
			"policy drop", "table ip " + table + " stays: no helper created it",
		},
		"a base chain": {
			"add chain ip " + table + " wall { type filter hook input priority 0; policy drop; }",
			"policy drop", "others have created or changed its chains wall",
		},
		"a policy": {
			"chain ip " + table + " prerouting { policy drop; }",
			"policy drop", "others have created or changed its chains prerouting (its policy is DROP)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			resetRules(t)
			prog := newProgrammer(t, t.TempDir())
			if _, err := prog.Apply(t.Context(), params(dualStack(), wire.NFTables, "", "a")); err != nil {
				t.Fatal(err)
			}
			testutil.Run(t, "", "nft", c.do)
			undone, err := prog.Undo(t.Context(), wire.UndoMine)
			if err != nil || len(undone) != 1 || len(undone[0].Left) != 1 || !strings.Contains(undone[0].Left[0], c.said) {
				t.Fatalf("%+v %v", undone, err)
			}
			got := testutil.Run(t, "", "nft", "list", "ruleset")
			if !strings.Contains(got, c.stay) || strings.Contains(got, "vmap @frontends") ||
				strings.Contains(got, "table ip6 "+table) {
				t.Errorf("left: %s", got)
			}
		})
	}
}

// Somebody makes a firewall in our table, or a table in its place, after undoing has read that there is none.
func TestTableBecomesTheirsWhileUndoing(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	const wall = " wall { type filter hook input priority 0; policy drop; }"
	for name, c := range map[string]struct{ do, said string }{
		"a base chain": {"add chain ip svcproxy-0123abcd" + wall, "others have created or changed its chains wall"},
		"a policy": {
			"chain ip svcproxy-0123abcd output { policy drop; }",
			"others have created or changed its chains output (its policy is DROP)",
		},
		"made again": {
			"delete table ip svcproxy-0123abcd; add table ip svcproxy-0123abcd; add chain ip svcproxy-0123abcd" + wall,
			"no helper created it",
		},
	} {
		resetRules(t)
		prog := newProgrammer(t, t.TempDir())
		if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")); err != nil {
			t.Fatal(err)
		}
		conn, err := dialNF()
		if err != nil {
			t.Fatal(err)
		}
		reads := 0
		left, err := conn.removeTable(t.Context(), false, "0123abcd", func() {
			reads++
			if reads == 1 {
				testutil.Run(t, "", "nft", c.do)
			}
		})
		conn.Close()
		if err != nil || len(left) != 1 || !strings.Contains(left[0], c.said) {
			t.Errorf("%s: said %q, %v", name, left, err)
		}
		if got := testutil.Run(t, "", "nft", "list", "ruleset"); !strings.Contains(got, "policy drop") {
			t.Errorf("%s: the policy is gone: %s", name, got)
		}
	}
}

// A device of our name that somebody else has made is not used, and not removed.
func TestOthersHaveOurDevice(t *testing.T) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.HardwareAddr = kubeproxy.ProgramDevice, deviceMark
	if !ownDevice(&netlink.Dummy{LinkAttrs: attributes}) {
		t.Error("ours is not known")
	}
	if ownDevice(&netlink.Veth{LinkAttrs: attributes}) {
		t.Error("one of another type is taken for ours")
	}
	attributes.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	if ownDevice(&netlink.Dummy{LinkAttrs: attributes}) {
		t.Error("one of another address is taken for ours")
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "ip") {
		return
	}
	testutil.Run(t, "", "ip", "link", "add", kubeproxy.ProgramDevice, "address", deviceMark.String(), "type", "veth",
		"peer", "name", "other")
	address := netip.MustParseAddr("10.96.0.10")
	testutil.Run(t, "", "ip", "address", "add", address.String()+"/32", "dev", kubeproxy.ProgramDevice)
	before := testutil.Run(t, "", "ip", "-br", "address")
	if err := checkDevice(); !errors.Is(err, errForeignDevice) {
		t.Errorf("checked: %v", err)
	}
	if err := unbind([]netip.Addr{address}); err != nil {
		t.Errorf("unbound: %v", err)
	}
	if after := testutil.Run(t, "", "ip", "-br", "address"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// Every name that is written is known as ours, and no other one is.
func TestOwnNames(t *testing.T) {
	for _, p := range []*plan.Plan{
		web(0, "10.244.1.1:8080"), web(60, "10.244.1.1:8080", "10.244.2.2:8080"), dualStack(),
	} {
		for name, write := range map[string]iptWriter{"iptables": iptRules, "ipvs": ipvsRules} {
			for _, v6 := range []bool{false, true} {
				for _, table := range write(p, v6, time.Time{}, func(*hook) bool { return false }).tables {
					for _, c := range table.chains {
						if planOfChain(c) != p.Name {
							t.Errorf("%s: the chain %s is not known as ours", name, c)
						}
					}
				}
			}
		}
	}
	if planOfTable(nftTable("0123abcd")) != "0123abcd" {
		t.Error("the table is not known as ours")
	}
	for _, c := range []string{
		"SVCPROXY-0123abcd-THEIRS", "SVCPROXY-0123abcd-", "SVCPROXY-0123abcd-F", "SVCPROXY-0123abcd-F0x", "SVCPROXY-NAT",
		"SVCPROXY-0123ABCD-NAT", "KUBE-SERVICES", "", "svcproxy-0123abcd", "SVCPROXY-0123abcd-EABCDEFGHI",
		"xSVCPROXY-0123abcd-NAT", "SVCPROXY-0123abcd-NAT\nDROP",
	} {
		if planOfChain(c) != "" {
			t.Errorf("the chain %q is taken for ours", c)
		}
	}
	for _, name := range []string{"svcproxy-trace-17", "svcproxy-", "svcproxy-0123abcde", "kube-proxy"} {
		if planOfTable(name) != "" {
			t.Errorf("the table %q is taken for ours", name)
		}
	}
}
