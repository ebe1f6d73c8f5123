// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"os/exec"
	"syscall"
)

// detach gives a process a session of its own: the terminal's signals do not reach it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
