// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// bothFamilies is a plan with a frontend of each family.
func bothFamilies() *plan.Plan {
	p := web(60, "10.244.1.1:8080", "10.244.2.2:8080")
	six := web(60, "[fd00:244::1]:8080", "[fd00:244::2]:8080").Frontends[0]
	six.Address = netip.MustParseAddrPort("[fd00:96::10]:80")
	six.Pods = &plan.Pods{Iface: "cni0"}
	p.Frontends = append(p.Frontends, six)
	return p
}

func orphansOf(t *testing.T, p *Programmer, remove []string, foreign bool) []wire.Orphan {
	t.Helper()
	got, err := p.Orphans(t.Context(), remove, foreign)
	if err != nil || len(got.Unread) > 0 {
		t.Fatal(got, err)
	}
	return got.Found
}

func idsOf(found []wire.Orphan) (ids []string) {
	for i := range found {
		ids = append(ids, found[i].ID)
	}
	return ids
}

// Rules are saved while a path is programmed, and restored after its end: they are found, in both families, and removed
// by name. What is recorded is not found, nor is anything of others.
func TestRestoredRulesAreFoundAndRemoved(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	iptables := func(backend string) (save func() []string, restore func([]string)) {
		tools := []string{"iptables-" + backend, "ip6tables-" + backend}
		return func() (out []string) {
				for _, tool := range tools {
					out = append(out, testutil.Run(t, "", tool+"-save"))
				}
				return out
			}, func(saved []string) {
				for i, tool := range tools {
					testutil.Run(t, saved[i], tool+"-restore")
				}
			}
	}
	for _, m := range modes {
		t.Run(m.mode+" "+m.backend, func(t *testing.T) {
			backend := m.backend
			if backend == "" {
				backend = wire.BackendNFT
			}
			save, restore := iptables(backend)
			want := []string{"iptables " + backend + " ip 0123abcd", "iptables " + backend + " ip6 0123abcd"}
			if m.mode == wire.NFTables {
				save = func() []string { return []string{testutil.Run(t, "", "nft", "list", "ruleset")} }
				restore = func(saved []string) { testutil.Run(t, "flush ruleset\n"+saved[0], "nft", "-f", "-") }
				want = []string{"nftables ip svcproxy-0123abcd", "nftables ip6 svcproxy-0123abcd"}
			}
			if m.backend == wire.BackendLegacy {
				testutil.LegacyTables(t)
			}
			// Somebody else's rules, which stay.
			testutil.Run(t, "", "iptables-"+backend, "-t", "nat", "-N", "THEIRS")
			testutil.Run(t, "", "iptables-"+backend, "-t", "nat", "-A", "OUTPUT", "-j", "THEIRS")
			testutil.Run(t, "", "ip6tables-"+backend, "-t", "filter", "-P", "FORWARD", "DROP")
			root := t.TempDir()
			prog := newProgrammer(t, root)
			if _, err := prog.Apply(t.Context(), params(bothFamilies(), m.mode, m.backend, "a")); err != nil {
				t.Fatal(err)
			}
			if found := orphansOf(t, prog, nil, true); len(found) > 0 {
				t.Errorf("what is recorded is taken for left over: %+v", found)
			}
			saved := save()
			if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Fatal(err)
			}
			before := testutil.Listing(t, testutil.Rules...)
			if found := orphansOf(t, prog, nil, true); len(found) > 0 {
				t.Errorf("after the end: %+v", found)
			}
			restore(saved)
			programmed := testutil.Listing(t, testutil.Rules...)
			if !strings.Contains(programmed, "0123abcd") {
				t.Fatalf("nothing was restored: %s", programmed)
			}
			found := orphansOf(t, prog, nil, false)
			if got := idsOf(found); !slices.Equal(got, want) {
				t.Fatalf("found %q, want %q", got, want)
			}
			for _, o := range found {
				if len(o.Foreign) > 0 {
					t.Errorf("%s is said to be someone else's: %q", o.ID, o.Foreign)
				}
			}
			if testutil.Listing(t, testutil.Rules...) != programmed {
				t.Error("to list changed something")
			}
			for _, o := range orphansOf(t, prog, want, false) {
				if !o.Removed || o.Failed != "" {
					t.Errorf("%+v", o)
				}
			}
			// iptables-nft-restore writes base chains that were not there.
			after := withoutEmpty(testutil.Listing(t, testutil.Rules...))
			if want := withoutEmpty(before); after != want {
				t.Errorf("before:\n%s\nafter:\n%s", want, after)
			}
			if left, err := filepath.Glob(root + "/run/*"); len(left) > 0 || err != nil {
				t.Errorf("%v %v is left", left, err)
			}
			testutil.Run(t, "", "nft", "flush", "ruleset")
		})
	}
}

// withoutEmpty leaves out of a listing what says that there are chains without rules.
func withoutEmpty(listing string) string {
	var out []string
	for line := range strings.Lines(listing) {
		if strings.Contains(line, "-A ") || strings.Contains(line, "-P ") || strings.Contains(line, "SVCPROXY") ||
			strings.Contains(line, "svcproxy") || strings.Contains(line, "DROP") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// A reboot with saved rules, and a record that cannot be read: of the one with a record nothing is touched.
func TestUnreadableRecordIsARecord(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	for _, m := range []struct{ mode, backend string }{{wire.NFTables, ""}, {wire.IPTables, wire.BackendNFT}} {
		if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), m.mode, m.backend, "a")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(prog.journal.path("0123abcd"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if found := orphansOf(t, prog, nil, true); len(found) > 0 {
			t.Errorf("%+v", found)
		}
		if err := os.Remove(prog.journal.path("0123abcd")); err != nil {
			t.Fatal(err)
		}
		found := orphansOf(t, prog, nil, true)
		if len(found) != 1 {
			t.Errorf("the record is gone: %+v", found)
		}
		if got := orphansOf(t, prog, idsOf(found), false); len(got) != 1 || !got[0].Removed {
			t.Errorf("%+v", got)
		}
		prog = newProgrammer(t, prog.o.Root)
	}
}

// What has a name of ours, and holds what this package never writes, is named, and stays unless it is asked for.
func TestForeignRulesOfOurNamesStay(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, tt := range []struct {
		name, tool, rules, id, why string
	}{
		{
			"a set of theirs", "nft -f -",
			"table ip svcproxy-0123abcd { set blocked { type ipv4_addr; elements = { 192.0.2.1 }; }; }",
			"nftables ip svcproxy-0123abcd", "it has a set blocked",
		},
		{
			"a chain of theirs", "nft -f -", "table ip svcproxy-0123abcd { chain mine { tcp dport 22 drop; }; }",
			"nftables ip svcproxy-0123abcd", "it has a chain mine",
		},
		{
			"a filter", "nft -f -",
			"table ip svcproxy-0123abcd { chain prerouting { type filter hook prerouting priority 0; policy drop; }; }",
			"nftables ip svcproxy-0123abcd", "it has a chain prerouting",
		},
		{
			"a statement", "nft -f -",
			"table ip svcproxy-0123abcd { chain f0 { counter log drop; }; }",
			"nftables ip svcproxy-0123abcd", `f0 has a rule with the statement "counter"`,
		},
		{
			"a table without our mark", "nft -f -", "table ip6 svcproxy-0123abcd { chain f0 { drop; }; }",
			"nftables ip6 svcproxy-0123abcd", "it has no chain made-by-kubectl-svcproxy",
		},
		{
			"a policy", "nft -f -",
			"table ip svcproxy-0123abcd { chain made-by-kubectl-svcproxy { }; chain postrouting { type nat hook postrouting " +
				"priority 95; policy drop; }; }",
			"nftables ip svcproxy-0123abcd", "the policy of its chain postrouting is drop",
		},
		{
			"another family", "nft -f -", "table inet svcproxy-0123abcd { chain f0 { drop; }; }",
			"nftables inet svcproxy-0123abcd", "it is of the family inet",
		},
		{
			"another name", "nft -f -", "table ip svcproxy-metrics { chain f0 { drop; }; }",
			"nftables ip svcproxy-metrics", "svcproxy-metrics is not a name of a table that program writes",
		},
		{
			"a target", "iptables-nft-restore --noflush",
			"*nat\n:SVCPROXY-0123abcd-NAT - [0:0]\n-A SVCPROXY-0123abcd-NAT -p tcp -j LOG\nCOMMIT\n",
			"iptables nft ip 0123abcd", `SVCPROXY-0123abcd-NAT has a rule with the target "LOG"`,
		},
		{
			"a match", "iptables-legacy-restore --noflush",
			"*filter\n:SVCPROXY-0123abcd-DROP - [0:0]\n-A SVCPROXY-0123abcd-DROP -m limit --limit 1/sec -j DROP\nCOMMIT\n",
			"iptables legacy ip 0123abcd", `SVCPROXY-0123abcd-DROP has a rule with the match "limit"`,
		},
		{
			"a jump of theirs", "ip6tables-nft-restore --noflush",
			"*filter\n:SVCPROXY-0123abcd-DROP - [0:0]\n:THEIRS - [0:0]\n-A THEIRS -j SVCPROXY-0123abcd-DROP\nCOMMIT\n",
			"iptables nft ip6 0123abcd", "filter THEIRS leads there by a rule that program does not write",
		},
		{
			"another chain", "iptables-nft-restore --noflush", "*nat\n:SVCPROXY-LOG - [0:0]\nCOMMIT\n",
			"iptables nft ip LOG", "SVCPROXY-LOG is not a name of a chain that program writes",
		},
		{
			"another table", "iptables-nft-restore --noflush",
			"*mangle\n:SVCPROXY-0123abcd-NAT - [0:0]\n-A OUTPUT -j SVCPROXY-0123abcd-NAT\nCOMMIT\n",
			"iptables nft ip 0123abcd", "is in the table mangle, in which program writes nothing",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.tool, "legacy") {
				testutil.LegacyTables(t)
			}
			testutil.Run(t, tt.rules+"\n", strings.Fields(tt.tool)...)
			prog := newProgrammer(t, t.TempDir())
			there := testutil.Listing(t, testutil.Rules...)
			found := orphansOf(t, prog, []string{tt.id}, false)
			if len(found) != 1 || found[0].ID != tt.id || found[0].Removed || found[0].Failed != "" ||
				!strings.Contains(strings.Join(found[0].Foreign, "; "), tt.why) {
				t.Fatalf("%+v, want %s, %s", found, tt.id, tt.why)
			}
			if got := testutil.Listing(t, testutil.Rules...); got != there {
				t.Errorf("it was\n%s\nand is\n%s", there, got)
			}
			if found = orphansOf(t, prog, []string{tt.id}, true); len(found) != 1 || !found[0].Removed {
				t.Errorf("asked for: %+v", found)
			}
			if found = orphansOf(t, prog, nil, true); len(found) > 0 {
				t.Errorf("left: %+v", found)
			}
		})
	}
}

// A table by which probes were traced, that was saved and restored: the process of its name is gone, or runs.
func TestRestoredTraceTable(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	const rules = `{
	set ip-clients { type ipv4_addr; elements = { 192.0.2.1 }; }
	chain output { type filter hook output priority -300; tcp dport 80 ip saddr @ip-clients meta nftrace set 1; }
	chain end-output { type filter hook output priority 300; }
}
`
	testutil.Run(t, "table inet svcproxy-trace-4194399 "+rules+"table inet svcproxy-trace-1 "+rules, "nft", "-f", "-")
	prog := newProgrammer(t, t.TempDir())
	found := orphansOf(t, prog, nil, false)
	want := []string{"nftables inet svcproxy-trace-4194399"}
	if !slices.Equal(idsOf(found), want) || len(found[0].Foreign) > 0 {
		t.Fatalf("%+v", found)
	}
	if found = orphansOf(t, prog, want, false); !found[0].Removed {
		t.Errorf("%+v", found)
	}
	const foreign = "{\nchain input { type filter hook input priority 0; policy drop; }\nset mine { type ipv4_addr; }\n}\n"
	testutil.Run(t, "table inet svcproxy-trace-4194399 "+foreign, "nft", "-f", "-")
	doubts := []string{"it has a set mine", "the policy of its chain input is drop"}
	found = orphansOf(t, prog, want, false)
	if len(found) != 1 || found[0].Removed || !slices.Equal(found[0].Foreign, doubts) {
		t.Errorf("%+v", found)
	}
}

// The device of ipvs mode without a record is found with its addresses; that it is no dummy is said.
func TestDeviceWithoutARecord(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	// Not every kernel of the tests has dummy interfaces.
	testutil.Run(t, "", "ip", "link", "add", "svcproxy-ipvs", "type", "bridge")
	testutil.Run(t, "", "ip", "address", "add", "192.0.2.9/32", "dev", "svcproxy-ipvs")
	testutil.Run(t, "", "ip", "address", "add", "192.0.2.129/25", "dev", "svcproxy-ipvs")
	prog := newProgrammer(t, t.TempDir())
	const id = "ipvs svcproxy-ipvs"
	why := []string{"it is a bridge, not a dummy", "192.0.2.129/25 is bound to it, and program binds addresses alone"}
	found := orphansOf(t, prog, []string{id}, false)
	if len(found) != 1 || found[0].ID != id || !slices.Equal(found[0].Foreign, why) || found[0].Removed ||
		found[0].What != "IPVS: the device svcproxy-ipvs with 2 addresses, and 0 virtual servers at them" {
		t.Fatalf("%+v", found)
	}
	record := prog.journal.path("ffff0000")
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{`{"mode":"ipvs"}`: 0, `{`: 0, `{"mode":"iptables"}`: 1} {
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if found := orphansOf(t, prog, nil, true); len(found) != want {
			t.Errorf("with the record %s: %+v", text, found)
		}
	}
	if err := os.Remove(record); err != nil { // any of them: the order of a map is none
		t.Fatal(err)
	}
	if found = orphansOf(t, prog, []string{id}, true); len(found) != 1 || !found[0].Removed || hasDevice("svcproxy-ipvs") {
		t.Errorf("%+v", found)
	}
}

// A listing of the journal is bounded, and names what cannot be read.
func TestListingOfTheJournal(t *testing.T) {
	root := t.TempDir()
	dir, err := journalDirOf(root)
	if err != nil {
		t.Fatal(err)
	}
	if none, err := Listing(root); err != nil || none.Records == nil || len(none.Records) > 0 {
		t.Errorf("none: %+v %v", none, err)
	}
	j := journal{dir}
	p := web(0, "10.244.1.1:8080")
	for len(p.Frontends) < listedFrontends+3 {
		more := p.Frontends[0]
		more.Address = netip.AddrPortFrom(more.Address.Addr(), uint16(1000+len(p.Frontends)))
		p.Frontends = append(p.Frontends, more)
	}
	if err := j.write(&Record{Version: recordVersion, Mode: wire.NFTables, Plan: *p}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"ffff0000.json": "{", "lock": "", "other": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Listing(root)
	if err != nil || len(got.Records) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	if r := got.Records[0]; r.Plan != "0123abcd" || r.Mode != wire.NFTables || len(r.Frontends) != listedFrontends ||
		r.MoreFrontends != 3 || r.Frontends[0] != "10.96.0.10:80/TCP" || r.Unread != "" {
		t.Errorf("%+v", r)
	}
	if r := got.Records[1]; r.Plan != "ffff0000" || r.Unread == "" || !got.Has("ffff0000") || got.Has("0000ffff") {
		t.Errorf("%+v", r)
	}
	for n := range listedRecords {
		name := filepath.Join(dir, fmt.Sprintf("%08x.json", 0x1000+n))
		if err := os.WriteFile(name, []byte(`{"mode":"ipvs"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err = Listing(root); err != nil || len(got.Records) != listedRecords || got.More != 2 || !got.Has("0000ffff") {
		t.Errorf("%d records, %d more, %v", len(got.Records), got.More, err)
	}
}

// Whatever a save file holds, groups have names of ours only, and what is to be deleted is in the file.
func FuzzChainGroups(f *testing.F) {
	f.Add("*nat\n:SVCPROXY-0123abcd-NAT - [0:0]\n-A OUTPUT -j SVCPROXY-0123abcd-NAT\n" +
		"-A SVCPROXY-0123abcd-NAT -j LOG\nCOMMIT\n")
	f.Add("-A \n:SVCPROXY- - -\n-A SVCPROXY-\n-A x -j\n")
	f.Fuzz(func(t *testing.T, save string) {
		for name, g := range chainGroups([]byte(save), &snapshot.Journal{}) {
			for _, table := range g.tables {
				for _, c := range table.chains {
					if !strings.HasPrefix(c, "SVCPROXY-"+name) || !strings.Contains(save, ":"+c) {
						t.Errorf("%q in the group %q", c, name)
					}
				}
				for _, r := range table.unhook {
					if !strings.Contains(save, "-A"+r[2:]) {
						t.Errorf("%q is not a rule of the file", r)
					}
				}
			}
		}
	})
}

// To ask iptables-legacy for a table makes it: what others have of that backend is read, and no more.
func TestALegacyTableIsNotMadeByAsking(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	testutil.Run(t, "", "iptables-legacy", "-t", "mangle", "-A", "OUTPUT", "-j", "ACCEPT")
	tables := func() string {
		data, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	before := tables()
	prog := newProgrammer(t, t.TempDir())
	for _, dryRun := range []bool{true, false} {
		req := params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")
		req.DryRun = dryRun
		if _, err := prog.Apply(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if got := tables(); got != before {
			t.Errorf("dry run %v: the tables were %q, and are %q", dryRun, before, got)
		}
	}
	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
}

// What is left over of a plan may be of another mode: its rules would be ahead of the new ones, and once there is a
// record of that name nobody would take them for left over.
func TestLeftOverOfAnotherModeIsInTheWay(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	testutil.LegacyTables(t)
	for _, left := range modes {
		for _, next := range modes {
			t.Run(left.mode+" "+left.backend+", then "+next.mode+" "+next.backend, func(t *testing.T) {
				resetRules(t)
				prog := newProgrammer(t, t.TempDir())
				if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), left.mode, left.backend, "a")); err != nil {
					t.Fatal(err)
				}
				if err := os.Remove(prog.journal.path("0123abcd")); err != nil {
					t.Fatal(err)
				}
				there := testutil.Listing(t, testutil.Rules...)
				_, err := newProgrammer(t, prog.o.Root).Apply(t.Context(),
					params(web(0, "10.244.2.2:8080"), next.mode, next.backend, "b"))
				if err == nil || !strings.Contains(err.Error(), "already exists, and no record") {
					t.Errorf("programmed beside it: %v", err)
				}
				if got := testutil.Listing(t, testutil.Rules...); got != there {
					t.Errorf("it was\n%s\nand is\n%s", there, got)
				}
			})
		}
	}
}
