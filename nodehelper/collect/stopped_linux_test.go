// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStoppedProcessesOfTheNode: those with the host network are listed, too, and only those that are stopped.
func TestStoppedProcessesOfTheNode(t *testing.T) {
	var pids [2]int
	for i := range pids {
		c := exec.CommandContext(t.Context(), "sleep", "60")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		pids[i] = c.Process.Pid
	}
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped, other := fmt.Sprintf("%d T\n", pids[0]), fmt.Sprintf("%d T\n", pids[1])
	var list string
	for range 100 { // the signal takes a moment
		data, err := readAllStopped(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if list = "\n" + string(data); strings.Contains(list, "\n"+stopped) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(list, "\n"+stopped) || strings.Contains(list, "\n"+other) {
		t.Errorf("%q, want %q and not %q", list, stopped, other)
	}
}
