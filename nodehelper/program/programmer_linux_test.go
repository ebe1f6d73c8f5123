// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// modes are the modes that every kernel of the tests supports.
var modes = []struct{ mode, backend string }{
	{wire.IPTables, wire.BackendNFT}, {wire.IPTables, wire.BackendLegacy}, {wire.NFTables, ""},
}

// web is a plan of one Service port with a cluster IP and a NodePort; affinity is in seconds, 0 for none.
func web(affinity int32, endpoints ...string) *plan.Plan {
	direct := plan.Destination{}
	for _, e := range endpoints {
		direct.Endpoints = append(direct.Endpoints, netip.MustParseAddrPort(e))
	}
	masqueraded := direct
	masqueraded.Masquerade = true
	front := func(at string, byPod plan.Destination) plan.Frontend {
		return plan.Frontend{
			Port: "shop/web:http", Kind: "ClusterIP", Address: netip.MustParseAddrPort(at), Protocol: "TCP", Affinity: affinity,
			Pods: &plan.Pods{CIDR: netip.MustParsePrefix("10.244.0.0/16")}, ForPods: &byPod, ForNode: masqueraded,
			ForOthers: masqueraded,
		}
	}
	return &plan.Plan{
		Name: "0123abcd", Services: []string{"shop/web"}, Mark: 0x4000,
		Frontends: []plan.Frontend{front("10.96.0.10:80", direct), front("192.0.2.10:30080", masqueraded)},
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

var executables = []string{"nft", "iptables-nft-restore", "iptables-legacy-restore", "ip"}

func params(p *plan.Plan, mode, backend, run string) *Request {
	return &Request{Plan: p, ProgramOptions: wire.ProgramOptions{
		Mode: mode, Backend: backend, TTL: time.Minute, Run: run, By: "someone", Allow: plan.Askable(),
	}}
}

// Rules are added and removed again without a change of existing ones; a dry run changes nothing.
func TestProgramAndUndo(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, w := range modes {
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
			// Another state of the plan.
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

// Plans of two people do not affect each other.
func TestTwoPeople(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
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
			!strings.Contains(err.Error(), "is programmed on this node already, in nftables mode, by someone, until ") {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		if testutil.Listing(t, testutil.Rules...) != there {
			t.Errorf("%s changed something", name)
		}
	}
	r, err := two.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "b"))
	if err != nil || r.What != wire.Unchanged || r.By != "someone" {
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
		t.Errorf("what is held by someone alive was taken for left: %v", err)
	}
	if _, err := one.Undo(t.Context(), wire.UndoAll); err != nil {
		t.Fatal(err)
	}
	if got := testutil.Listing(t, testutil.Rules...); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
}

// Plans are undone when they expire, and at the end of the context.
func TestHold(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
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

// Where one path cannot be undone, the others are held until their own time, and the error names the one.
func TestHoldAfterAFailure(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	first, second := params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a"), web(0, "10.244.1.1:8080")
	second.Name, second.Services = "ffff0002", []string{"default/second"}
	for i := range second.Frontends {
		second.Frontends[i].Address = netip.AddrPortFrom(second.Frontends[i].Address.Addr(), 99+uint16(i))
	}
	next := params(second, wire.NFTables, "", "a")
	first.TTL, next.TTL = time.Second, 3*time.Second
	for _, req := range []*Request{first, next} {
		if _, err := prog.Apply(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	held := map[string]*Record{}
	for _, r := range prog.Held() {
		held[r.Plan.Name] = r
	}
	held[first.Plan.Name].Mode = "of another version"
	err := prog.Hold(t.Context())
	if now := time.Now(); now.Before(held["ffff0002"].Expires) {
		t.Errorf("Hold ended at %v, the second path at %v", now, held["ffff0002"].Expires)
	}
	if text := fmt.Sprint(err); !strings.Contains(text, first.Plan.Services[0]) || strings.Contains(text, "second") {
		t.Errorf("error %v", err)
	}
	if left := prog.Held(); len(left) != 1 || left[0].Plan.Name != first.Plan.Name {
		t.Errorf("%d paths are held at the end", len(left))
	}
	if got := testutil.Listing(t, testutil.Rules...); strings.Contains(got, "ffff0002") {
		t.Errorf("the second path's rules are left: %s", got)
	}
}
