// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
)

// A container's runtime ends the processes of its cgroup (runc's signalAllProcesses; cgroup.kill). One that is to
// outlive the container has to be in another one: that of the node's first process, which exists on every node.

// leaveContainer moves this process to the cgroups of the node's first process. root is the node's file system. With
// dry it only finds out whether it may.
func leaveContainer(root string, dry bool) error {
	return cgroup.OnNode(func(entered error) error { return moveThread(root, dry, entered) })
}

func moveThread(root string, dry bool, entered error) error {
	init, err := cgroup.Of("1")
	if err != nil {
		return err
	}
	self, err := cgroup.Of("thread-self")
	if err != nil {
		return err
	}
	for _, h := range init {
		if slices.Contains(self, h) {
			continue
		}
		if entered != nil && strings.HasPrefix(h.Path, "/..") { // outside of this process's namespace
			return entered
		}
		f, err := h.Open(root, "cgroup.procs", os.O_WRONLY) // takes processes into the group
		if err != nil {
			return err
		}
		if !dry {
			_, err = f.WriteString("0") // the process that writes
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
