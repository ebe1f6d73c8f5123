// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
)

// held is how long the lock of iptables is held in the tests, and less is less than that.
const (
	held = 20 * time.Second
	less = 2 * time.Second
)

// programmed starts a helper that has programmed a path with iptables-legacy, as a pod runs it. /run is the test's own,
// and the lock of iptables with it.
func programmed(t *testing.T, root string, args ...string) (cmd *exec.Cmd, stderr *strings.Builder) {
	t.Helper()
	cmd, stderr, program := helper(t, root, args...)
	if err := program(); err != nil {
		t.Fatal(err)
	}
	if got := testutil.Run(t, "", "iptables-legacy-save"); !strings.Contains(got, "10.244.1.1") {
		t.Fatalf("nothing is programmed: %s", got)
	}
	return cmd, stderr
}

// helper starts a helper, and returns what has it program a path.
func helper(t *testing.T, root string, args ...string) (cmd *exec.Cmd, stderr *strings.Builder, program func() error) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Getenv(binary), append([]string{"serve", "--root=" + root}, args...)...)
	stderr = &strings.Builder{}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := wire.NewClient(stdout, stdin, "v1", wire.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	to := plan.Destination{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:8080")}}
	encoded, err := json.Marshal(&plan.Plan{
		Name: "0123abcd", Services: []string{"shop/web"}, Mark: 0x4000,
		Frontends: []plan.Frontend{{
			Port: "shop/web:http", Kind: "ClusterIP", Address: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: "TCP",
			ForNode: to, ForOthers: to,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return cmd, stderr, func() error {
		return c.Call(wire.MethodProgram, wire.ProgramParams{Plan: encoded, ProgramOptions: wire.ProgramOptions{
			Mode: wire.IPTables, Backend: wire.BackendLegacy, TTL: time.Hour, Run: "a", By: "someone",
			Allow: plan.Askable(),
		}}, wire.Sink{File: func(wire.Received) {}})
	}
}

// hold holds the lock of iptables for a while, as another program does that writes rules; free is closed after it.
func hold(t *testing.T, how time.Duration) (free <-chan struct{}) {
	t.Helper()
	f, err := os.OpenFile("/run/xtables.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	time.AfterFunc(how, func() {
		f.Close()
		close(done)
	})
	return done
}

// binary is the environment variable that names the command, built outside of the test's namespaces.
const binary = "SVCPROXY_TEST_NODEHELPER"

func inOwnRun(t *testing.T) bool {
	t.Helper()
	if os.Getenv(binary) == "" {
		testutil.NeedRoot(t, "iptables-legacy-restore")
		t.Setenv(binary, build(t))
	}
	if !testutil.Isolate(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS, "iptables-legacy-restore") {
		return false
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	return true
}

// A helper whose pod is deleted while others have the lock of iptables for 20 seconds takes the path away within the
// pod's grace period.
func TestSIGTERMWhileTheLockIsHeld(t *testing.T) {
	testutil.Long(t)
	if !inOwnRun(t) {
		return
	}
	cmd, stderr := programmed(t, t.TempDir(), "--run=a")
	hold(t, held)
	begin := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, stderr)
	}
	took := time.Since(begin)
	if got := testutil.Run(t, "", "iptables-legacy-save"); strings.Contains(got, "SVCPROXY") {
		t.Errorf("left: %s", got)
	}
	if took < held || took > programGrace {
		t.Errorf("it took %v", took)
	}
	t.Logf("the lock was held for %v, and the path taken away after %v", held, took)
}

// If the lock is held for longer than the grace period, the helper says what to do, and another one undoes it.
func TestSIGTERMWhileTheLockIsHeldForTooLong(t *testing.T) {
	testutil.Long(t)
	if !inOwnRun(t) {
		return
	}
	root := t.TempDir()
	cmd, stderr := programmed(t, root, "--grace="+less.String())
	hold(t, 2*less)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{"undoing did not end within 2s", "kubectl svcproxy cleanup --node NODE"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is not in %s", want, stderr)
		}
	}
	if records, err := filepath.Glob(root + "/run/svcproxy/*/0123abcd.json"); err != nil || len(records) != 1 {
		t.Errorf("the record: %v %v", records, err)
	}
	// The pod is started again.
	next := exec.CommandContext(t.Context(), os.Getenv(binary), "serve", "--root="+root, "--run=a")
	if err := next.Run(); next.ProcessState.ExitCode() != 1 { // nobody says hello
		t.Errorf("the next helper: %v", err)
	}
	if got := testutil.Run(t, "", "iptables-legacy-save"); strings.Contains(got, "SVCPROXY") {
		t.Errorf("left: %s", got)
	}
}

// SIGTERM comes while a helper waits for the lock to program a path: nothing of it is written, then or once the lock is
// free, and no record stays that the next helper does not end.
func TestSIGTERMWhileProgrammingWaitsForTheLock(t *testing.T) {
	testutil.Long(t)
	if !inOwnRun(t) {
		return
	}
	for name, c := range map[string]struct {
		grace time.Duration
		code  int
	}{"with time enough": {held, 0}, "without": {less / 2, 1}} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			cmd, stderr, program := helper(t, root, "--grace="+c.grace.String())
			free := hold(t, 2*less)
			go program() //nolint:errcheck // it breaks off
			records := func() []string {
				left, err := filepath.Glob(root + "/run/svcproxy/*/0123abcd.json")
				if err != nil {
					t.Fatal(err)
				}
				return left
			}
			for len(records()) == 0 || !waits(t, cmd.Process.Pid) {
				time.Sleep(time.Millisecond)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != c.code {
				t.Errorf("it ended with %v: %s", err, stderr)
			}
			if (len(records()) == 0) != (c.code == 0) {
				t.Errorf("the records: %v", records())
			}
			<-free
			next := exec.CommandContext(t.Context(), os.Getenv(binary), "serve", "--root="+root, "--run=a")
			_ = next.Run() // no one says hello
			if got := testutil.Run(t, "", "iptables-legacy-save"); strings.Contains(got, "SVCPROXY") || len(records()) > 0 {
				t.Errorf("left: %s %v", got, records())
			}
		})
	}
}

// waits reports whether a process has a child that restores rules.
func waits(t *testing.T, pid int) bool {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatalf("the helper has ended: %v", err)
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.Contains(string(line), "--noflush") && !strings.Contains(string(line), "--test") {
				return true
			}
		}
	}
	return false
}
