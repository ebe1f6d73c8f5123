// SPDX-License-Identifier: Apache-2.0

// Package isolate runs tests in namespaces of their own.
package isolate

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

// inside is set in the process that a test runs in namespaces of its own.
const inside = "SVCPROXY_TEST_ISOLATED"

// Process runs the rest of a test in a process with namespaces of its own (syscall.CLONE_NEWNET, …): threads of one process could not be
// kept apart. It returns true there; outside it waits for the result, and returns false. Without root, or a tool, the test is skipped, and where it
// is skipped there.
func Process(t *testing.T, namespaces uintptr, tools ...string) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing", tool)
		}
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1") //nolint:gosec // this test itself
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
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
