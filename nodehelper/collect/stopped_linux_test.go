// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStoppedProcesses: of those that listen the ones that are stopped are listed, and no others.
func TestStoppedProcesses(t *testing.T) {
	var pids [2]int
	for i := range pids {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "sleep", "60") // it alone has the socket in the end
		c.ExtraFiles = []*os.File{f}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		_, _ = f.Close(), l.Close()
		pids[i] = c.Process.Pid
	}
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped, other := fmt.Sprintf("\n%d T\n", pids[0]), fmt.Sprintf("\n%d T\n", pids[1])
	var list string
	for range 100 { // the signal takes a moment
		data, err := readStopped(t.Context(), &reader{kernel: newKernel("")})
		if err != nil {
			t.Fatal(err)
		}
		if list = "\n" + string(data); strings.Contains(list, stopped) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(list, stopped) || strings.Contains(list, other) {
		t.Errorf("%q, want %q and not %q", list, stopped, other)
	}
}
