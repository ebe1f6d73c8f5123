// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// nothingLeft fails if the node has anything of a path, or the journal a record.
func nothingLeft(t *testing.T, root string) {
	t.Helper()
	if got := testutil.Listing(t, testutil.Rules...); strings.Contains(strings.ToUpper(got), "SVCPROXY-") {
		t.Errorf("left: %s", got[:min(len(got), 2000)])
	}
	if left, err := filepath.Glob(root + "/run/svcproxy/*/*"); len(left) > 0 || err != nil {
		t.Errorf("of the journal %v %v is left", left, err)
	}
}

// What undoing needs is short for a moment (here files; the kernel's memory is likewise), from the beginning or once
// the journal is locked: it is tried again. Before, the path stayed.
func TestUndoingWaitsForWhatIsScarce(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for _, m := range append(modes, struct{ mode, backend string }{wire.Userspace, wire.BackendNFT}) {
		for _, files := range []uint64{0, 1} {
			t.Run(fmt.Sprint(m.mode, " ", m.backend, ", ", files), func(t *testing.T) {
				root := t.TempDir()
				prog := newProgrammer(t, root)
				if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), m.mode, m.backend, "a")); err != nil {
					t.Fatal(err)
				}
				again := leaveFiles(t, files)
				defer again()
				time.AfterFunc(300*time.Millisecond, again)
				if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
					t.Error(err)
				}
				nothingLeft(t, root)
			})
		}
	}
}

// leaveFiles lets this process open n more files only, until again is called.
func leaveFiles(t *testing.T, n uint64) (again func()) {
	t.Helper()
	var before unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before)
	next, err2 := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0) // of the lowest number that is free
	if err = errors.Join(err, err2, unix.Close(next)); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: uint64(next) + n, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }
}

// The file system of the journal is full: nothing is programmed, and what is programmed can be undone.
func TestAFullJournal(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, executables...) {
		return
	}
	ownRun(t)
	for _, m := range modes {
		t.Run(m.mode+" "+m.backend, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(root+"/run", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", root+"/run", "tmpfs", 0, "size=64k"); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(root+"/run", 0) //nolint:errcheck // it goes with the namespace, too
			prog := newProgrammer(t, root)
			req := params(manyPorts(500, "10.244.1.1:8080"), m.mode, m.backend, "a")
			if _, err := prog.Apply(t.Context(), req); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("a plan that is larger than the file system: %v", err)
			}
			nothingLeft(t, root)
			req = params(web(0, "10.244.1.1:8080"), m.mode, m.backend, "a")
			if _, err := prog.Apply(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			all := make([]byte, 64<<10)
			if err := os.WriteFile(root+"/run/others", all, 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("it is not full: %v", err)
			}
			req.Plan = web(0, "10.244.2.2:8080")
			if _, err := prog.Apply(t.Context(), req); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("an update: %v", err)
			}
			if got := testutil.Listing(t, testutil.Rules...); !strings.Contains(got, "10.244.1.1") {
				t.Errorf("an update that is refused has changed the path: %s", got)
			}
			if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
				t.Error(err)
			}
			nothingLeft(t, root)
		})
	}
}

// The kernel has no memory left while a path is programmed, and ends the program that writes the rules: of the path
// nothing stays, and the next attempt succeeds.
func TestNoMemoryWhileProgramming(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, executables...) {
		return
	}
	ownRun(t)
	for _, m := range modes[:2] { // nftables mode runs no program
		t.Run(m.mode+" "+m.backend, func(t *testing.T) {
			root := t.TempDir()
			prog := newProgrammer(t, root)
			ended := 0
			for try := 0; ended < 3 && try < 50; try++ {
				stop := make(chan struct{})
				killed := make(chan bool, 1)
				go func() { killed <- killWriter(stop) }()
				_, err := prog.Apply(t.Context(), params(manyPorts(500, "10.244.1.1:8080"), m.mode, m.backend, "a"))
				close(stop)
				if err != nil {
					ended++
					if !<-killed || !strings.Contains(err.Error(), "signal: killed") {
						t.Fatal(err)
					}
					nothingLeft(t, root)
					continue
				}
				if <-killed {
					t.Log("it was ended after it had written all")
				}
				if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
					t.Fatal(err)
				}
				nothingLeft(t, root)
			}
			if ended == 0 {
				t.Error("nothing was ended in time")
			}
		})
	}
}

// killWriter kills a child of this process that writes rules, as soon as there is one.
func killWriter(stop <-chan struct{}) bool {
	for {
		select {
		case <-stop:
			return false
		default:
		}
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, list := range lists {
			pids, _ := os.ReadFile(list)
			for pid := range strings.FieldsSeq(string(pids)) {
				line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				n, err := strconv.Atoi(pid)
				if err == nil && strings.Contains(string(line), "--noflush") && !strings.Contains(string(line), "--test") {
					return unix.Kill(n, unix.SIGKILL) == nil
				}
			}
		}
	}
}

// A listing of interfaces that changed meanwhile is made again; an error does not make the address of a container one
// that anybody may take. Before, it did.
func TestAnErrorHidesNoContainer(t *testing.T) {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: 5}}
	for tries, want := range map[int]bool{0: true, 1: true, dumpTries: true, dumpTries + 1: false} {
		got, err := linksToContainers(func() ([]netlink.Link, error) {
			tries--
			if tries >= 0 {
				return nil, netlink.ErrDumpInterrupted
			}
			return []netlink.Link{veth}, nil
		})
		if got[5] != want || (err == nil) != want {
			t.Errorf("%v %v; want %v", got, err, want)
		}
	}
	for _, e := range []error{unix.ENOBUFS, unix.ENOMEM, unix.EINTR} {
		_, _, err := onLink(func(net.IP) ([]netlink.Route, error) { return nil, e }, netip.MustParseAddr("10.88.0.7"))
		if !errors.Is(err, e) {
			t.Errorf("%v: %v", e, err)
		}
	}
	_, ok, err := onLink(func(net.IP) ([]netlink.Route, error) { return nil, unix.ENETUNREACH },
		netip.MustParseAddr("10.88.0.7"))
	if ok || err != nil {
		t.Errorf("an address without a route: %v %v", ok, err)
	}
}
