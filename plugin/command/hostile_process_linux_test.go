// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// builtPlugin builds the plugin as people run it: the race detector, with which the tests are built, takes several
// times the memory. The flags are those of make build, so that little is compiled anew.
func builtPlugin(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubectl-svcproxy")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file,
		"../../cmd/kubectl-svcproxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// measured runs the plugin for a snapshot; memory is its peak in bytes, spent the time of the processors.
func measured(t *testing.T, plugin, path string) (
	code int, stdout, stderr string, memory int64, spent time.Duration,
) {
	t.Helper()
	return measuredRun(t, plugin, "verify", "-A", "--snapshot", path)
}

// measuredRun runs the plugin, and measures its memory and the processors' time.
func measuredRun(t *testing.T, plugin string, args ...string) (
	code int, stdout, stderr string, memory int64, spent time.Duration,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, plugin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/nonexistent")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop, peak := make(chan struct{}), make(chan int64)
	go func() {
		highest := int64(0)
		for {
			highest = max(highest, peakOf(cmd.Process.Pid))
			select {
			case <-stop:
				peak <- highest
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	err := cmd.Wait()
	close(stop)
	memory = <-peak
	if ctx.Err() != nil {
		t.Fatalf("it did not end within 2 minutes (%v)", err)
	}
	if memory == 0 { // on a busy machine it has ended before it was looked at
		return measuredRun(t, plugin, args...)
	}
	used := cmd.ProcessState
	return used.ExitCode(), out.String(), errOut.String(), memory, used.UserTime() + used.SystemTime()
}

// peakOf is the most memory that a running process has had, in bytes; 0 where it has ended. The kernel's ru_maxrss
// (getrusage) has that of the parent before exec, too.
func peakOf(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		return 0 // it has ended, and nobody has taken note
	}
	return kilobytes << 10
}
