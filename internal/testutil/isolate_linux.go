// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// isolated is set, to the test's name, in the process that a test runs in namespaces of its own.
const isolated = "SVCPROXY_TEST_ISOLATED"

// Isolate runs the rest of a test in a process with namespaces of its own (syscall.CLONE_NEWNET, …): threads of one
// process could not be kept apart. It returns true there; outside it waits for the result, and returns false.
// Without root, or a tool, the test is skipped, and where it is skipped there. What the test logs there is logged.
func Isolate(t *testing.T, namespaces uintptr, tools ...string) bool {
	t.Helper()
	if os.Getenv(isolated) == t.Name() {
		return true
	}
	NeedRoot(t, tools...)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// go test takes the pattern apart at slashes, and compares each part with the name of one level.
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	args := []string{"-test.run=" + pattern, "-test.v", "-test.count=1"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+time.Until(deadline).String())
	}
	args = append(args, ownArguments()...)
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // this test itself
	cmd.Env = append(os.Environ(), isolated+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := cmd.CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("--- SKIP: "+t.Name())) {
		t.Skipf("inside:\n%s", out)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
		return false
	}
	t.Logf("inside:\n%s", out)
	return false
}

// IsolateProcesses is [Isolate] with a network, and with processes of its own: it is the first one, and /proc shows it
// and those that it starts.
func IsolateProcesses(t *testing.T, tools ...string) bool {
	t.Helper()
	if !Isolate(t, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS|syscall.CLONE_NEWPID, tools...) {
		return false
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		t.Fatal(err)
	}
	return true
}

// ownArguments are the flags of the test's own package, which are not go test's.
func ownArguments() []string {
	var args []string
	for _, a := range os.Args[1:] {
		if !strings.HasPrefix(a, "-test.") && !strings.HasPrefix(a, "--test.") {
			args = append(args, a)
		}
	}
	return args
}

// NeedRoot skips a test that nobody but root can run, or that needs a tool that is not there.
func NeedRoot(t testing.TB, tools ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
}
