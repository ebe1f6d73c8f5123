// SPDX-License-Identifier: Apache-2.0

// Package cgroup reads the control groups of processes (cgroups(7)), from within a container.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Hierarchy is a line of /proc/PID/cgroup: a control group of one tree of them.
type Hierarchy struct {
	Name string // the controllers of version 1, or the name of a tree without any; "" for version 2
	Path string // relative to the cgroup namespace of who reads it, with which it may begin with /../
}

// Of returns the control groups of a process, one in each tree: of its number, or of a word as "thread-self".
func Of(process string) ([]Hierarchy, error) {
	data, err := os.ReadFile("/proc/" + process + "/cgroup")
	if err != nil {
		return nil, err
	}
	var out []Hierarchy
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 {
			out = append(out, Hierarchy{strings.TrimPrefix(fields[1], "name="), fields[2]})
		}
	}
	return out, nil
}

// Open opens a file of the group, where root is the file system that has /sys/fs/cgroup. Version 2 is mounted there
// itself, or beside version 1. The error is that of the last place that was tried.
func (h Hierarchy) Open(root, file string, flag int) (*os.File, error) {
	mount := filepath.Join(root, "sys", "fs", "cgroup")
	places := []string{filepath.Join(mount, h.Name)}
	if h.Name == "" {
		places = append(places, filepath.Join(mount, "unified"))
	}
	var errs []error
	for _, place := range places {
		f, err := os.OpenFile(filepath.Join(place, h.Path, file), flag, 0)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, errs[len(errs)-1]
}

// OnNode runs a function in a thread of its own, which is in the cgroup namespace of the node's first process: paths
// are relative to that, and processes are moved only within it (cgroup_procs_write_permission of
// kernel/cgroup/cgroup.c). entered says why it is not, if the namespace cannot be entered.
func OnNode[T any](do func(entered error) T) T {
	done := make(chan T, 1)
	go func() {
		// The thread is not unlocked: in another cgroup namespace it must not run anything else, and ends.
		runtime.LockOSThread()
		done <- do(enter())
	}()
	return <-done
}

// enter enters the cgroup namespace of the node's first process, if this is another one.
func enter() error {
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

// freezer are the files that tell that a group is frozen, with the line that does: of version 2 also of a group below
// one that is (cgroup.events), of version 1 likewise (freezer.state).
var freezer = map[string]struct{ file, line string }{
	"": {"cgroup.events", "frozen 1"}, "freezer": {"freezer.state", "FROZEN"},
}

// Frozen returns those of some processes whose control group is frozen, as that of a paused container is: the kernel
// lets none of its processes run, and shows them as sleeping. root is as for Open. The error is that of a group that
// could not be read; a process that has ended is not frozen.
func Frozen(root string, pids []string) ([]string, error) {
	type result struct {
		frozen []string
		err    error
	}
	r := OnNode(func(entered error) (r result) {
		known := map[Hierarchy]bool{}
		for _, pid := range pids {
			groups, err := Of(pid)
			if err != nil {
				continue
			}
			for _, h := range groups {
				f, ok := freezer[h.Name]
				if !ok || h.Path == "/" {
					continue // the root of a tree is never frozen
				}
				is, read := known[h]
				if !read {
					is, err = h.has(root, f.file, f.line)
					if left, gone := Of(pid); err != nil && (gone != nil || !slices.Contains(left, h)) {
						break // it has ended, or was moved
					}
					if err != nil {
						r.err = errors.Join(entered, err)
						return r
					}
					known[h] = is
				}
				if is {
					r.frozen = append(r.frozen, pid)
					break
				}
			}
		}
		return r
	})
	return r.frozen, r.err
}

func (h Hierarchy) has(root, file, line string) (bool, error) {
	f, err := h.Open(root, file, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if lines.Text() == line {
			return true, nil
		}
	}
	return false, lines.Err()
}
