// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A container's runtime ends the processes of its cgroup (runc's signalAllProcesses; cgroup.kill). One that is to
// outlive the container has to be in another one: that of the node's first process, which exists on every node.

// hierarchy is a line of /proc/PID/cgroup (cgroups(7)).
type hierarchy struct {
	name string // the controllers of version 1, or name=NAME; "" for version 2
	path string
}

func cgroupsOf(process string) ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/" + process + "/cgroup")
	if err != nil {
		return nil, err
	}
	var out []hierarchy
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 {
			out = append(out, hierarchy{strings.TrimPrefix(fields[1], "name="), fields[2]})
		}
	}
	return out, nil
}

// open opens the file that takes processes into the cgroup. Version 2 is mounted on /sys/fs/cgroup itself, or beside
// version 1.
func (h hierarchy) open(root string) (*os.File, error) {
	mount := filepath.Join(root, "sys", "fs", "cgroup")
	places := []string{filepath.Join(mount, h.name)}
	if h.name == "" {
		places = append(places, filepath.Join(mount, "unified"))
	}
	var errs []error
	for _, place := range places {
		f, err := os.OpenFile(filepath.Join(place, h.path, "cgroup.procs"), os.O_WRONLY, 0)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, errs[len(errs)-1]
}

// leaveContainer moves this process to the cgroups of the node's first process. root is the node's file system. With
// dry it only finds out whether it may.
func leaveContainer(root string, dry bool) error {
	done := make(chan error, 1)
	go func() {
		// The thread is not unlocked: in another cgroup namespace it must not run anything else, and ends.
		runtime.LockOSThread()
		done <- moveThread(root, dry)
	}()
	return <-done
}

// moveThread is leaveContainer, in a thread of its own: paths of cgroups are relative to the namespace, and processes
// are moved only within it (cgroup_procs_write_permission of kernel/cgroup/cgroup.c).
func moveThread(root string, dry bool) error {
	entered := enterCgroups()
	init, err := cgroupsOf("1")
	if err != nil {
		return err
	}
	self, err := cgroupsOf("thread-self")
	if err != nil {
		return err
	}
	for _, h := range init {
		if slices.Contains(self, h) {
			continue
		}
		if entered != nil && strings.HasPrefix(h.path, "/..") { // outside of this process's namespace
			return entered
		}
		f, err := h.open(root)
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

// enterCgroups enters the cgroup namespace of the node's first process, if this is another one.
func enterCgroups() error {
	const first = "/proc/1/ns/cgroup"
	theirs, err := os.Readlink(first)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without them
	}
	if err != nil {
		return fmt.Errorf("the node's cgroup namespace cannot be read: %w", err)
	}
	if own, err := os.Readlink("/proc/thread-self/ns/cgroup"); err == nil && own == theirs {
		return nil
	}
	f, err := os.Open(first)
	if err != nil {
		return fmt.Errorf("the node's cgroup namespace cannot be entered: %w", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("the node's cgroup namespace cannot be entered: %w", err)
	}
	return nil
}
