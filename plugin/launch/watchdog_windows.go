// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os/exec"
	"syscall"
)

// detachedProcess is DETACHED_PROCESS of CreateProcess: without the console of its parent.
const detachedProcess = 0x00000008

// detach takes a process out of the console, and with it out of reach of Ctrl-C.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | detachedProcess}
}
