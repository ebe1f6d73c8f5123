// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// ways are the modes that every kernel of the tests has.
var ways = []struct{ mode, backend string }{
	{wire.IPTables, wire.BackendNFT}, {wire.IPTables, wire.BackendLegacy}, {wire.NFTables, ""},
}

// child is the test's own process, started again to be killed: it programs and undoes what its arguments say.
const child = "SVCPROXY_TEST_PROGRAM"

// web is a plan of one Service port with a cluster IP and a NodePort, with affinity where there are seconds of it.
func web(affinity int32, endpoints ...string) *plan.Plan {
	way := plan.Way{}
	for _, e := range endpoints {
		way.Endpoints = append(way.Endpoints, netip.MustParseAddrPort(e))
	}
	always := way
	always.Masquerade = true
	front := func(at string, byPod plan.Way) plan.Frontend {
		return plan.Frontend{
			Port: "shop/web:http", Kind: "ClusterIP", Address: netip.MustParseAddrPort(at), Protocol: "TCP", Affinity: affinity,
			Pods: &plan.Pods{CIDR: netip.MustParsePrefix("10.244.0.0/16")}, ByPod: &byPod, ByNode: always, ByOthers: always,
		}
	}
	return &plan.Plan{
		Name: "0123abcd", Services: []string{"shop/web"}, Mark: 0x4000,
		Frontends: []plan.Frontend{front("10.96.0.10:80", way), front("192.0.2.10:30080", always)},
	}
}

func newProgrammer(t *testing.T, root string) *Programmer {
	t.Helper()
	p, err := New(Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var programs = []string{"nft", "iptables-nft-restore", "iptables-legacy-restore", "ip"}

func params(p *plan.Plan, mode, backend, run string) *Request {
	return &Request{Plan: p, ProgramOptions: wire.ProgramOptions{
		Mode: mode, Backend: backend, TTL: time.Minute, Run: run, By: "somebody",
	}}
}

// What iptables-nft leaves of tables that somebody has emptied stays as it is.
func TestEmptyTablesStay(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
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
	for _, w := range ways {
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

// Beside rules that are there already, what is programmed comes and goes, and leaves nothing; a dry run leaves nothing
// from the start.
func TestProgramAndUndo(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
		return
	}
	for _, w := range ways {
		t.Run(w.mode+" "+w.backend, func(t *testing.T) {
			if w.backend == wire.BackendLegacy {
				testutil.LegacyTables(t)
			}
			root := t.TempDir()
			prog := newProgrammer(t, root)
			before := testutil.Listing(t, testutil.Rules...)
			req := params(web(0, "10.244.1.1:8080", "10.244.2.2:8080"), w.mode, w.backend, "a")
			req.DryRun = true
			r, err := prog.Apply(t.Context(), req)
			if err != nil || r.What != wire.Planned || len(r.Commands) != 1 || len(r.Added) < 10 || len(r.Removed) != 0 {
				t.Fatalf("%+v %v", r, err)
			}
			if got := testutil.Listing(t, testutil.Rules...); got != before {
				t.Errorf("a dry run left %s", got)
			}
			if left, err := filepath.Glob(root + "/run/svcproxy/*/*"); len(left) > 0 || err != nil {
				t.Errorf("a dry run left %v %v", left, err)
			}
			req.DryRun = false
			if r, err = prog.Apply(t.Context(), req); err != nil || r.What != wire.Programmed {
				t.Fatalf("%+v %v", r, err)
			}
			there := testutil.Listing(t, testutil.Rules...)
			for _, want := range []string{"10.244.1.1", "10.244.2.2"} {
				if !strings.Contains(there, want) {
					t.Errorf("%s is not in %s", want, there)
				}
			}
			if r, err = prog.Apply(t.Context(), req); err != nil || r.What != wire.Unchanged ||
				testutil.Listing(t, testutil.Rules...) != there {
				t.Errorf("a second time: %+v %v", r, err)
			}
			// Another state of it.
			req.Plan = web(0, "10.244.2.2:8080", "10.244.3.3:8080", "10.244.3.4:8080")
			req.DryRun = true
			if r, err = prog.Apply(t.Context(), req); err != nil || r.What != wire.Planned || len(r.Added) == 0 ||
				len(r.Removed) == 0 || testutil.Listing(t, testutil.Rules...) != there {
				t.Fatalf("%+v %v", r, err)
			}
			req.DryRun = false
			if r, err = prog.Apply(t.Context(), req); err != nil || r.What != wire.Updated {
				t.Fatalf("%+v %v", r, err)
			}
			now := testutil.Listing(t, testutil.Rules...)
			if strings.Contains(now, "10.244.1.1") || !strings.Contains(now, "10.244.3.4") {
				t.Errorf("updated to %s", now)
			}
			undone, err := prog.Undo(t.Context(), wire.UndoMine)
			if err != nil || len(undone) != 1 {
				t.Errorf("%v %v", undone, err)
			}
			if got := testutil.Listing(t, testutil.Rules...); got != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, got)
			}
			if left, err := filepath.Glob(root + "/run/*"); len(left) > 0 || err != nil {
				t.Errorf("%v %v is left", left, err)
			}
		})
	}
}

// What two people program does not mix.
func TestTwoPeople(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
		return
	}
	root := t.TempDir()
	one, two := newProgrammer(t, root), newProgrammer(t, root)
	before := testutil.Listing(t, testutil.Rules...)
	first := params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")
	if _, err := one.Apply(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	there := testutil.Listing(t, testutil.Rules...)
	refused := func(name string, req *Request) {
		t.Helper()
		var refusal RefusalError
		r, err := two.Apply(t.Context(), req)
		if !errors.As(err, &refusal) ||
			!strings.Contains(err.Error(), "is programmed on this node already, in nftables mode, by somebody, until ") {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		if testutil.Listing(t, testutil.Rules...) != there {
			t.Errorf("%s changed something", name)
		}
	}
	r, err := two.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "b"))
	if err != nil || r.What != wire.Unchanged || r.By != "somebody" {
		t.Errorf("the same: %+v %v", r, err)
	}
	refused("other endpoints", params(web(0, "10.244.9.9:8080"), wire.NFTables, "", "b"))
	refused("another mode", params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "b"))
	other := web(0, "10.244.1.1:8080")
	other.Name, other.Services = "ffff0000", []string{"shop/other"}
	other.Frontends = other.Frontends[1:]
	refused("another Service with one of its ports", params(other, wire.NFTables, "", "b"))
	apart := web(0, "10.244.5.5:8080")
	apart.Name = "ffff0001"
	for i := range apart.Frontends {
		apart.Frontends[i].Address = netip.AddrPortFrom(apart.Frontends[i].Address.Addr(),
			apart.Frontends[i].Address.Port()+1)
	}
	if _, err := two.Apply(t.Context(), params(apart, wire.IPTables, wire.BackendNFT, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
	got := testutil.Listing(t, testutil.Rules...)
	if strings.Contains(got, "10.244.1.1") || !strings.Contains(got, "10.244.5.5") {
		t.Errorf("the first one undone: %s", got)
	}
	_, err = one.Undo(t.Context(), wire.UndoDead)
	if err != nil || !strings.Contains(testutil.Listing(t, testutil.Rules...), "10.244.5.5") {
		t.Errorf("what is held by somebody alive was taken for left: %v", err)
	}
	if _, err := one.Undo(t.Context(), wire.UndoAll); err != nil {
		t.Fatal(err)
	}
	if got := testutil.Listing(t, testutil.Rules...); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
}

// The tables that iptables-nft made for two go with the last of them, whichever that is.
func TestNothingStaysOfTwo(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
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

// kube-proxy comes back meanwhile and writes all of its rules, its jumps ahead of ours; and somebody flushes a chain of
// ours.
func TestOthersWriteMeanwhile(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
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
			// The base chains that it uses it has not made, so they stay.
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

// A client stays with its endpoint while others come and go.
func TestUpdateKeepsClients(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	req := params(web(600, "10.244.1.1:8080", "10.244.2.2:8080"), wire.NFTables, "", "a")
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	l := layoutOf(req.Plan, false)
	set := "a-" + l.ends[1].name
	testutil.Run(t, "", "nft", "add", "element", "ip", nftTable(req.Plan.Name), set, "{ 10.244.7.7 }")
	req.Plan = web(600, "10.244.0.1:8080", "10.244.2.2:8080", "10.244.3.3:8080")
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	got := testutil.Run(t, "", "nft", "list", "set", "ip", nftTable(req.Plan.Name), set)
	if !strings.Contains(got, "10.244.7.7") {
		t.Errorf("the client of %s is forgotten: %s", l.ends[1].address, got)
	}
	got = testutil.Listing(t, testutil.Rules...)
	if strings.Contains(got, "a-"+l.ends[0].name) || strings.Contains(got, "e-"+l.ends[0].name) {
		t.Errorf("something of %s is left: %s", l.ends[0].address, got)
	}
}

// Helpers are killed in the middle of programming, updating and undoing. What the next one finds in the journal always
// leads back.
func TestKilled(t *testing.T) {
	if spec := os.Getenv(child); spec != "" {
		runChild(t, spec)
		return
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
		return
	}
	testutil.LegacyTables(t)
	before := testutil.Listing(t, testutil.Rules...)
	root := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	prog := newProgrammer(t, root)
	half, killings := 0, testutil.Count(t, testutil.Kills, 40)
	for i := range killings {
		w := ways[random.IntN(len(ways))]
		if random.IntN(4) == 0 {
			w.mode, w.backend = wire.Userspace, wire.BackendNFT
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), child+"="+root+" "+w.mode+" "+w.backend)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // it begins
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_, _ = in.Close(), cmd.Wait()
		// A program that it ran may go on alone, with the lock that it has inherited.
		if testutil.Listing(t, testutil.Rules...) != before {
			half++
		}
		if _, err := prog.Undo(t.Context(), wire.UndoDead); err != nil {
			t.Fatalf("killing %d, %s: %v", i, w, err)
		}
		if got := testutil.Listing(t, testutil.Rules...); got != before {
			t.Fatalf("killing %d, %s: before:\n%s\nafter:\n%s", i, w, before, got)
		}
		if left, err := filepath.Glob(root + "/run/*"); len(left) > 0 || err != nil {
			t.Fatalf("killing %d: %v %v is left", i, left, err)
		}
	}
	t.Logf("%d killed, %d of them with something to undo", killings, half)
	if half < killings/10 {
		t.Errorf("only %d of %d were killed with something on the node", half, killings)
	}
}

// runChild programs, updates and undoes until it is killed.
func runChild(t *testing.T, spec string) {
	t.Helper()
	words := strings.Fields(spec + " -")
	prog := newProgrammer(t, words[0])
	backend := strings.TrimSuffix(words[2], "-")
	if _, err := os.Stdout.WriteString("."); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		req := params(web(0, "10.244.1.1:8080", "10.244.2."+strconv.Itoa(i%200+1)+":8080"), words[1], backend, "a")
		if _, err := prog.Apply(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if i%3 == 2 {
			if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What is held ends at its time, and at the end of the context.
func TestHold(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
		return
	}
	before := testutil.Listing(t, testutil.Rules...)
	prog := newProgrammer(t, t.TempDir())
	short, long := params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a"), web(0, "10.244.1.1:8080")
	short.TTL = time.Second
	long.Name = "ffff0002"
	for i := range long.Frontends {
		long.Frontends[i].Address = netip.AddrPortFrom(long.Frontends[i].Address.Addr(), 99+uint16(i))
	}
	for _, req := range []*Request{params(long, wire.NFTables, "", "a"), short} {
		if _, err := prog.Apply(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	go func() {
		for len(prog.Held()) == 2 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		got := testutil.Listing(t, testutil.Rules...)
		if strings.Contains(got, "0123abcd") || !strings.Contains(got, "ffff0002") {
			t.Errorf("at the end of the shorter time: %s", got)
		}
	}()
	if err := prog.Hold(ctx); err != nil {
		t.Fatal(err)
	}
	if got := testutil.Listing(t, testutil.Rules...); got != before {
		t.Errorf("after all: %s", got)
	}
}

// A helper that was killed is started again, and takes over what it held; what it had not completed it undoes.
func TestAdopt(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
		return
	}
	before := testutil.Listing(t, testutil.Rules...)
	prog := newProgrammer(t, t.TempDir())
	if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")); err != nil {
		t.Fatal(err)
	}
	there := testutil.Listing(t, testutil.Rules...)
	dies := func(change func(*Record)) *Programmer {
		r := prog.Held()[0]
		r.Holder.Started++ // another process of that number
		change(r)
		if err := prog.journal.write(r); err != nil {
			t.Fatal(err)
		}
		return newProgrammer(t, prog.o.Root)
	}
	next := dies(func(*Record) {})
	if err := next.Adopt(t.Context(), "b"); err != nil || len(next.Held()) != 0 {
		t.Errorf("what another run left is taken over: %v", err)
	}
	err := next.Adopt(t.Context(), "a")
	if err != nil || len(next.Held()) != 1 || testutil.Listing(t, testutil.Rules...) != there {
		t.Errorf("not taken over: %v", err)
	}
	last := dies(func(r *Record) { r.Complete = false })
	err = last.Adopt(t.Context(), "a")
	if err != nil || len(last.Held()) != 0 || testutil.Listing(t, testutil.Rules...) != before {
		t.Errorf("half of a change: %v, %s", err, testutil.Listing(t, testutil.Rules...))
	}
}

// A journal that cannot be read is said to be so, and nothing is changed over it.
func TestBadJournal(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, programs...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	if err := os.MkdirAll(prog.journal.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	later, err := json.Marshal(Record{Version: 99})
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"{": "cannot be read", string(later): "of version 99", `{"version":1}`: "no name of a plan",
	} {
		if err := os.WriteFile(filepath.Join(prog.journal.dir, "0123abcd.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: programmed over it: %v", content, err)
		}
		if _, err := prog.Undo(t.Context(), wire.UndoAll); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: undone: %v", content, err)
		}
	}
}
