// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// sleeper starts a process that does nothing, with a command line of the test's choice behind it.
func sleeper(t *testing.T, words ...string) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", "read x"}, words...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := processOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

// One helper programs a path, somebody undoes it, and another helper programs the same Service: the first one undoes
// nothing of that, whether its time is over, its plugin ends or somebody cleans up.
func TestAHolderUndoesNothingOfItsSuccessor(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	_, successor := sleeper(t)
	for name, undo := range map[string]func(*testing.T, *Programmer) error{
		"its time is over": func(t *testing.T, p *Programmer) error {
			t.Helper()
			return p.Hold(t.Context())
		},
		"its plugin ends": func(t *testing.T, p *Programmer) error {
			t.Helper()
			_, err := p.Undo(t.Context(), wire.UndoMine)
			return err
		},
		"it cleans up what is dead": func(t *testing.T, p *Programmer) error {
			t.Helper()
			_, err := p.Undo(t.Context(), wire.UndoDead)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			resetRules(t)
			root := t.TempDir()
			first := newProgrammer(t, root)
			req := params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")
			req.TTL = time.Second
			if _, err := first.Apply(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			second := newProgrammer(t, root)
			if _, err := second.Undo(t.Context(), wire.UndoAll); err != nil {
				t.Fatal(err)
			}
			if _, err := second.Apply(t.Context(), params(web(0, "10.244.2.2:8080"), wire.NFTables, "", "b")); err != nil {
				t.Fatal(err)
			}
			r := *second.Held()[0]
			r.Holder = successor
			if err := second.journal.write(&r); err != nil {
				t.Fatal(err)
			}
			if err := undo(t, first); err != nil {
				t.Error(err)
			}
			if now := onlyRecord(t, second.journal); now.Holder != successor || !now.Complete ||
				!strings.Contains(rulesNow(t), "10.244.2.2") || len(first.Held()) != 0 {
				t.Errorf("%+v, %d held, %s", now, len(first.Held()), rulesNow(t))
			}
		})
	}
}

// An update that arrives after the time would write rules without effect: it is refused.
func TestNoUpdateAfterTheTime(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	req := params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")
	req.TTL = time.Second
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	for _, endpoint := range []string{"10.244.1.1:8080", "10.244.2.2:8080"} {
		req.Plan = web(0, endpoint)
		if r, err := prog.Apply(t.Context(), req); err == nil || !strings.Contains(err.Error(), "cannot be extended") {
			t.Errorf("%s: %+v %v", endpoint, r, err)
		}
	}
	if _, err := prog.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
}

// A record names a process as its expirer that is none: it is not ended.
func TestNoOtherProcessIsEnded(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := newProgrammer(t, t.TempDir())
	_, other := sleeper(t)
	_, ofAnother := sleeper(t, "--root", "/", "ffff0005")
	_, ours := sleeper(t, "--root", "/", "0123abcd")
	for _, c := range []struct {
		name    string
		process Process
		stays   bool
	}{
		{"another program", other, true}, {"the expirer of another plan", ofAnother, true}, {"the expirer", ours, false},
	} {
		if _, err := prog.Apply(t.Context(), params(web(0, "10.244.1.1:8080"), wire.NFTables, "", "a")); err != nil {
			t.Fatal(err)
		}
		next := dies(t, prog, func(r *Record) { r.Expirer = &c.process })
		if _, err := next.Undo(t.Context(), wire.UndoDead); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.stays {
			awaitEnd(t, &c.process, time.Second)
			continue
		}
		time.Sleep(50 * time.Millisecond)
		if !c.process.alive() {
			t.Errorf("%s is ended", c.name)
		}
	}
	for _, pid := range []int{0, -1} {
		r := &Record{
			Version: recordVersion, Mode: wire.NFTables, Plan: *web(0, "10.244.1.1:8080"), Holder: other,
			Expirer: &Process{PID: pid},
		}
		if err := r.check(); err == nil || !strings.Contains(err.Error(), "an impossible process") {
			t.Errorf("the expirer %d: %v", pid, err)
		}
	}
}

// The record becomes unreadable while its expirer waits: the path ends at its time all the same.
func TestAnExpirerOfARecordThatIsDamaged(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	root, before := t.TempDir(), rulesNow(t)
	h := startHolder(t, root, wire.IPTables, wire.BackendNFT, "3s", "untimed")
	j := newProgrammer(t, root).journal
	r := onlyRecord(t, j)
	h.kill(t)
	time.Sleep(2 * lookAgain / 3)
	if err := os.WriteFile(j.path(r.Plan.Name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, r.Expirer, time.Until(h.expires)+5*time.Second)
	if got := rulesNow(t); got != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, got)
	}
}

// The kernel has the match time when a record is taken over, and had not when its rules were written: they have no end.
func TestAnExpirerIsReplacedThoughTheKernelCouldEndIt(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, executables...) {
		return
	}
	prog := untimed(t, withCgroups(t))
	req := params(web(0, "10.244.1.1:8080"), wire.IPTables, wire.BackendNFT, "a")
	if _, err := prog.Apply(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	first := *onlyRecord(t, prog.journal).Expirer
	if err := unix.Kill(first.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, &first, time.Second)
	next := dies(t, prog, func(*Record) {})
	next.o.Expirer = runExpirer()
	next.modes[wire.IPTables].(*iptables).hasTime = func(*Record) bool { return true }
	if err := next.Adopt(t.Context(), "a"); err != nil || len(next.Held()) != 1 {
		t.Fatal(err)
	}
	if r := onlyRecord(t, prog.journal); r.Expirer == nil || *r.Expirer == first || !r.Expirer.alive() {
		t.Errorf("%+v", r.Expirer)
	}
	if _, err := next.Undo(t.Context(), wire.UndoMine); err != nil {
		t.Fatal(err)
	}
}
