// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Ready starts a command, and waits until it, or a child that has its output, says "ready". The end of its input and
// SIGKILL end it with the test, or before by stop.
func Ready(t testing.TB, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	buf := make([]byte, 16)
	if n, err := out.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "ready") {
		stop() // what it has said is whole then
		t.Fatalf("%q does not run: %q %v %s", cmd.Args, buf[:n], err, said.String())
	}
	return stop
}
