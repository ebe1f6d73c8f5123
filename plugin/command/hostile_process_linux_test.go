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

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestMain is the plugin where a test has started this program as a process of its own, so that its memory and time can
// be measured.
func TestMain(m *testing.M) {
	path := os.Getenv("SVCPROXY_TEST_SNAPSHOT")
	if path == "" {
		os.Exit(m.Run()) //nolint:forbidigo // TestMain is a main function
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr} //nolint:forbidigo // a process
	code := Main(context.Background(), []string{"verify", "-A", "--snapshot", path}, streams, System{})
	// The peak of this process's own memory: ru_maxrss has that of the parent before exec, too.
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		err = os.WriteFile(os.Getenv("SVCPROXY_TEST_STATUS"), status, 0o600)
	}
	if err != nil {
		panic(err)
	}
	os.Exit(code) //nolint:forbidigo // of the process
}

// measured runs the plugin in a process of its own; memory is its peak in bytes, spent the time of the processors.
func measured(t *testing.T, path string) (code int, stdout, stderr string, memory int64, spent time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	statusFile := filepath.Join(t.TempDir(), "status")
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "SVCPROXY_TEST_SNAPSHOT="+path, "SVCPROXY_TEST_STATUS="+statusFile,
		"KUBECONFIG=/nonexistent", "GOGC=200", "GOMEMLIMIT=448MiB") // as cmd/kubectl-svcproxy sets them
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("it did not end within 2 minutes (%v)", err)
	}
	status, err := os.ReadFile(statusFile)
	if err != nil {
		t.Fatalf("it did not end in order (%v): %.1000s", err, errOut.String())
	}
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		t.Fatal(err)
	}
	used := cmd.ProcessState
	return used.ExitCode(), out.String(), errOut.String(), kilobytes << 10, used.UserTime() + used.SystemTime()
}
