// SPDX-License-Identifier: Apache-2.0

// Package cgroup reads the control groups of processes (cgroups(7)), from within a container.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/lazyregexp"
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
	return parse(data), nil
}

// maxText bounds what is read of /proc/PID/cgroup, in bytes: a path has 4,096, and there are some ten trees.
const maxText = 64 << 10

// In is [Of], by the process's open directory in /proc.
func In(process *os.File) ([]Hierarchy, error) {
	fd, err := unix.Openat(int(process.Fd()), "cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "cgroup")
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxText))
	return parse(data), err
}

func parse(data []byte) (out []Hierarchy) {
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 {
			out = append(out, Hierarchy{strings.TrimPrefix(fields[1], "name="), fields[2]})
		}
	}
	return out
}

// Line is the control group that tells most about a process, as a line of /proc/PID/cgroup has it: of version 2, else
// of systemd's own tree; "" where neither is told.
func Line(groups []Hierarchy) string {
	var systemd string
	for _, h := range groups {
		switch {
		case h.Name == "" && h.Path != "/":
			return "0::" + h.Path
		case h.Name == "systemd":
			systemd = "1:name=systemd:" + h.Path
		}
	}
	return systemd
}

// Names of control groups that the kubelet makes (pkg/kubelet/cm/cgroup_manager_linux.go,
// pkg/kubelet/cm/pod_container_manager_linux.go): of all pods, kubepods or, below a root of its own, as
// kubelet-kubepods.slice; and of a pod, podUID with dashes, or kubepods-burstable-podUID.slice with underscores.
var (
	ofPods = lazyregexp.New(`^([^/]+-)?kubepods(\.slice)?$`)
	ofPod  = lazyregexp.New(`^(?:[^/]+-)?pod([0-9a-f][0-9a-f_-]{14,35})(?:\.slice)?$`)
)

// PodOf returns the UID of the pod that a process belongs to by its control groups, as the node sees them (see
// [OnNode]): that of a pod, below that of all pods, in directories that are all root's and that no one else may write.
// Of a static pod it is the hash of its manifest. A directory of this name that a user makes in a control group of
// their own is none.
func PodOf(groups []Hierarchy) (uid string, err error) {
	err = errors.New("its control group is no pod's")
	for _, h := range groups {
		pods := false
		for end := range steps(h.Path) {
			name := filepath.Base(h.Path[:end])
			if match := ofPod().FindStringSubmatch(name); pods && match != nil {
				if err = h.rootOnly(h.Path[:end]); err == nil {
					return strings.ReplaceAll(match[1], "_", "-"), nil
				}
				break
			}
			pods = pods || ofPods().MatchString(name)
		}
	}
	return "", err
}

// BelowPods reports whether a process is in a control group below that of all pods, whoever has made it.
func BelowPods(groups []Hierarchy) bool {
	return slices.ContainsFunc(groups, func(h Hierarchy) bool {
		return strings.Contains(h.Path, "kubepods")
	})
}

// steps are the lengths of a path's beginnings, each by one element longer.
func steps(path string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 1; i <= len(path); i++ {
			if (i == len(path) || path[i] == '/') && !yield(i) {
				return
			}
		}
	}
}

// nodeRoot is where the node's file system is.
const nodeRoot = "/proc/1/root"

// rootOnly returns an error unless each directory of a path is root's, and no one else may write it.
func (h Hierarchy) rootOnly(path string) error {
	if strings.Contains(h.Path, "..") {
		return errors.New("its control group is not below the node's own")
	}
	dir, err := h.Open(nodeRoot, ".", os.O_RDONLY)
	if err != nil {
		return err
	}
	place := strings.TrimSuffix(dir.Name(), h.Path)
	dir.Close()
	for end := range steps(path) {
		var st unix.Stat_t
		if err := unix.Lstat(place+path[:end], &st); err != nil {
			return fmt.Errorf("its control group: %w", err)
		}
		if st.Uid != 0 || st.Mode&0o022 != 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return errors.New("its control group can be changed by others than root")
		}
	}
	return nil
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
