// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// detach gives a process a session of its own: the terminal's signals do not reach it. Of what the shell left open for
// this program (a lock, a pipe that somebody reads to its end) it gets nothing: it would keep that open for as long as
// it runs.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
