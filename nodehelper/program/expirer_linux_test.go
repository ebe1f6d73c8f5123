// SPDX-License-Identifier: Apache-2.0

package program

import (
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
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// untimed makes a Programmer for a kernel without the match time.
func untimed(t *testing.T, root string) *Programmer {
	t.Helper()
	p := newProgrammer(t, root)
	p.o.Expirer = runExpirer()
	p.modes[wire.IPTables].(*iptables).hasTime = func(*Record) bool { return false }
	return p
}

// There is one expirer for a record, however often it is updated and taken over, and it ends with the record.
func TestOneExpirerForARecord(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	root := withCgroups(t)
	prog := untimed(t, root)
	req := params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "a")
	r, err := prog.Apply(t.Context(), req)
	if err != nil || len(r.Notes) > 0 {
		t.Fatalf("%+v %v", r, err)
	}
	first := onlyRecord(t, prog.journal)
	req.Plan = web(0, "10.244.2.2:8080")
	if r, err = prog.Apply(t.Context(), req); err != nil || r.What != wire.Updated {
		t.Fatalf("%+v %v", r, err)
	}
	now := onlyRecord(t, prog.journal)
	if first.Expirer == nil || *now.Expirer != *first.Expirer || !now.Expirer.alive() ||
		now.Ends != first.Ends {
		t.Errorf("an update: %+v %v, then %+v %v", first.Expirer, first.Ends, now.Expirer, now.Ends)
	}
	// The next helper takes the record over, with its expirer; where that is gone, with another one.
	dies := func() *Programmer {
		now.Holder.Started++ // another process of that number
		if err := prog.journal.write(now); err != nil {
			t.Fatal(err)
		}
		next := untimed(t, root)
		if err := next.Adopt(t.Context(), "a"); err != nil || len(next.Held()) != 1 {
			t.Fatal(err)
		}
		return next
	}
	dies()
	if now = onlyRecord(t, prog.journal); *now.Expirer != *first.Expirer {
		t.Errorf("taken over: %+v, then %+v", first.Expirer, now.Expirer)
	}
	if err := unix.Kill(now.Expirer.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, now.Expirer, time.Second)
	last := dies()
	now = onlyRecord(t, prog.journal)
	if *now.Expirer == *first.Expirer || !now.Expirer.alive() {
		t.Errorf("taken over without an expirer: %+v", now.Expirer)
	}
	if _, err := last.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, now.Expirer, 500*time.Millisecond) // it would see by itself within lookAgain
}

// An expirer ends by itself where its record is gone, and where another process is responsible for it.
func TestAnExpirerThatIsNotNeededEnds(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := untimed(t, t.TempDir())
	for name, change := range map[string]func(*Record) error{
		"the record is gone": func(r *Record) error { return os.Remove(prog.journal.path(r.Plan.Name)) },
		"another one is responsible": func(r *Record) error {
			self, err := processOf(os.Getpid())
			if err != nil {
				return err
			}
			r.Expirer = &self
			return prog.journal.write(r)
		},
	} {
		before := rulesNow(t)
		req := params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "a")
		if _, err := prog.Apply(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		r := onlyRecord(t, prog.journal)
		expirer := *r.Expirer
		if err := change(r); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, &expirer, 3*lookAgain)
		if rulesNow(t) == before {
			t.Errorf("%s: it has undone what it was not to", name)
		}
		if err := prog.journal.write(r); err != nil {
			t.Fatal(err)
		}
		if _, err := prog.Undo(t.Context(), wire.UndoAll); err != nil {
			t.Fatal(err)
		}
	}
}

// A holder that is still there, and does not undo its record in time, does not keep the expirer from it.
func TestAHolderThatHangs(t *testing.T) {
	testutil.Long(t)
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	root, before := t.TempDir(), rulesNow(t)
	h := startHolder(t, root, wire.IPTables, wire.BackendNFT, "1s", "untimed")
	r := onlyRecord(t, newProgrammer(t, root).journal)
	time.Sleep(time.Until(h.expires) + holderTime/2)
	if !r.Expirer.alive() || rulesNow(t) == before {
		t.Error("the holder was given no time")
	}
	awaitEnd(t, r.Expirer, time.Until(h.expires)+holderTime+5*time.Second)
	if got := rulesNow(t); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
}

// What an expirer has undone the holder does not undo again: what is there by then is somebody else's.
func TestTheHolderForgetsWhatIsUndone(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	root := t.TempDir()
	prog := newProgrammer(t, root)
	req := params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")
	req.TTL = time.Second
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := newProgrammer(t, root).Undo(t.Context(), wire.UndoAll); err != nil {
		t.Fatal(err)
	}
	testutil.Run(t, "", "nft", "add", "table", "ip", nftTable(req.Plan.Name))
	if err := prog.Hold(t.Context()); err != nil || len(prog.Held()) != 0 {
		t.Errorf("%v, %d held", err, len(prog.Held()))
	}
	if !strings.Contains(rulesNow(t), nftTable(req.Plan.Name)) {
		t.Error("it has undone it again")
	}
}

// Nobody outlives the helper without a program for it, and the user is told.
func TestNoExpirerIsSaid(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	for name, argv := range map[string][]string{
		"none": nil, "no such program": {"/no/such/program"}, "one that says nothing": {"/bin/true"},
	} {
		prog := untimed(t, t.TempDir())
		prog.o.Expirer = argv
		r, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "a"))
		const want = "the path stays beyond its time, until kubectl svcproxy cleanup removes it: "
		if err != nil || !strings.Contains(strings.Join(r.Notes, " "), want) {
			t.Errorf("%s: %+v %v", name, r, err)
		}
		if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
			t.Fatal(err)
		}
	}
}

// withCgroups makes a file system for the journal, which has the machine's cgroups.
func withCgroups(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "sys", "fs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/sys/fs/cgroup", filepath.Join(root, "sys", "fs", "cgroup")); err != nil {
		t.Fatal(err)
	}
	return root
}

// testCgroup makes a cgroup of this test in every hierarchy that takes one, and returns their directories.
func testCgroup(t *testing.T) (dirs []string) {
	t.Helper()
	init, err := cgroup.Of("1")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range init {
		f, err := h.Open("/", "cgroup.procs", os.O_WRONLY)
		if err != nil {
			continue
		}
		f.Close()
		dir := filepath.Join(filepath.Dir(f.Name()), "svcproxy-test-"+strconv.Itoa(os.Getpid()))
		if h.Name == "cpuset" || os.Mkdir(dir, 0o755) != nil { // a cpuset takes no process before it has been set up
			continue
		}
		t.Cleanup(func() {
			// A process that was killed may still be on its way out.
			err := os.Remove(dir)
			for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); err = os.Remove(dir) {
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil {
				t.Error(err)
			}
		})
		dirs = append(dirs, dir)
	}
	if len(dirs) == 0 {
		t.Skip("no cgroup can be made here")
	}
	return dirs
}

// The processes of a container are killed by its cgroup, in each of the hierarchies.
func TestAnExpirerOutlivesTheContainer(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	dirs := testCgroup(t)
	root, before := withCgroups(t), rulesNow(t)
	script := "for dir in " + strings.Join(dirs, " ") + "; do echo $$ >$dir/cgroup.procs || exit 1; done; exec " +
		os.Args[0] + " -test.run='^TestRunHolder$'"
	h := startHolderBy(t, exec.CommandContext(t.Context(), "sh", "-c", script), root, wire.IPTables, wire.BackendNFT, "4s",
		"untimed")
	if h.warning != "" {
		t.Fatal(h.warning)
	}
	r := onlyRecord(t, newProgrammer(t, root).journal)
	inside := map[int]bool{}
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		pids := strings.Fields(string(data))
		if !slices.Contains(pids, strconv.Itoa(h.Process.Pid)) {
			t.Errorf("the helper is not in %s: %v", dir, pids)
		}
		for _, s := range pids {
			pid, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			inside[pid] = true
		}
	}
	if inside[r.Expirer.PID] {
		t.Error("the expirer is in a cgroup of the container")
	}
	for pid := range inside {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	_ = h.Wait() // it was killed
	if !r.Expirer.alive() || rulesNow(t) == before {
		t.Fatal("the expirer ended with the container, or undid before the time")
	}
	awaitEnd(t, r.Expirer, time.Until(h.expires)+5*time.Second)
	if got := rulesNow(t); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
}

// Where it may not leave the container's cgroups the user is told, before and when it is programmed.
func TestAnExpirerThatEndsWithTheContainerIsSaid(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	dirs, root := testCgroup(t), t.TempDir() // which has no sys/fs/cgroup
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			t.Fatal(err)
		}
		back := filepath.Join(filepath.Dir(dir), "cgroup.procs")
		t.Cleanup(func() { _ = os.WriteFile(back, []byte("0"), 0o644) })
	}
	prog := untimed(t, root)
	req := params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "a")
	req.DryRun = true
	r, err := prog.Apply(t.Context(), req)
	if err != nil || !strings.Contains(strings.Join(r.Notes, " "), "would stay beyond its time: ") ||
		!strings.Contains(strings.Join(r.Notes, " "), "sys/fs/cgroup") {
		t.Errorf("before: %q %v", r.Notes, err)
	}
	req.DryRun = false
	r, err = prog.Apply(t.Context(), req)
	if err != nil || !strings.Contains(strings.Join(r.Notes, " "), "sys/fs/cgroup") {
		t.Errorf("programmed: %q %v", r.Notes, err)
	}
	// It is of use all the same, where the process alone ends.
	if e := onlyRecord(t, prog.journal).Expirer; e == nil || !e.alive() {
		t.Errorf("%+v", e)
	}
	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
}
