// SPDX-License-Identifier: Apache-2.0

package podns

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/ownaddr"
)

// Namespace is the network namespace of a pod, and a process that is in it.
type Namespace struct {
	PID  int
	file *os.File
}

// Close gives up the namespace.
func (n *Namespace) Close() error { return n.file.Close() }

// Inode is the number by which the kernel tells namespaces apart.
func (n *Namespace) Inode() (uint32, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(n.file.Fd()), &s); err != nil {
		return 0, err
	}
	return uint32(s.Ino), nil //nolint:gosec // as the kernel has it (struct ns_common)
}

// The errors of [Find].
var (
	// ErrNone says that no process of the pod is to be found.
	ErrNone = errors.New("no process on the node belongs to the pod: none is in a control group with its UID, or in a " +
		"network namespace with its address")
	// ErrSeveral says that it is not known which network namespace is the pod's.
	ErrSeveral = errors.New("several network namespaces on the node have the pod's address, and not one of them alone " +
		"has a link to the node")
	// ErrNode says that the pod has no network namespace of its own.
	ErrNode = errors.New("the pod's processes are in the node's own network namespace")
)

// proc is where processes are listed; tests have another one.
const proc = "/proc"

// Bounds on what is read of a process.
const (
	maxCgroup    = 64 << 10 // bytes of /proc/PID/cgroup
	maxProcesses = 1 << 16
)

// Find finds the network namespace of a pod: that of a process whose control group names one of the pod's UIDs, as the
// kubelet calls it (with dashes under cgroupfs, with underscores under systemd); else the one that has one of its
// addresses. The caller closes it.
func Find(pod Pod) (*Namespace, error) {
	own, err := os.Readlink(ownNamespace)
	if err != nil {
		return nil, err
	}
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	names := cgroupNames(pod.UIDs)
	shared := false
	for _, pid := range pids {
		if len(names) == 0 || !inCgroup(pid, names) {
			continue
		}
		n, err := open(pid)
		if err != nil {
			continue // it has ended, or is a zombie
		}
		// The process may have ended, and its number be another's, before its namespace was opened.
		if name, err := os.Readlink(n.file.Name()); err == nil && inCgroup(pid, names) {
			if name != own {
				return n, nil
			}
			shared = true
		}
		n.Close()
	}
	if shared {
		return nil, ErrNode
	}
	return byAddress(pids, own, pod.Addresses)
}

// processes lists the numbers of all processes.
func processes() ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids[:min(len(pids), maxProcesses)], nil
}

// cgroupNames are the words that stand for UIDs in the names of control groups (GetPodContainerName in the kubelet's
// pkg/kubelet/cm/pod_container_manager_linux.go).
func cgroupNames(uids []string) []string {
	var out []string
	for _, uid := range uids {
		if len(uid) < 16 {
			continue // no UID, and it might be a part of any name
		}
		out = append(out, "pod"+uid, "pod"+strings.ReplaceAll(uid, "-", "_"))
	}
	return out
}

// inCgroup tells whether a process is in a control group of some name, or in one below it.
func inCgroup(pid int, names []string) bool {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCgroup))
	if err != nil {
		return false
	}
	for part := range strings.FieldsFuncSeq(string(data),
		func(r rune) bool { return r == '/' || r == '\n' || r == ':' }) {
		part = strings.TrimSuffix(part, ".slice")
		for _, name := range names {
			if part == name || strings.HasSuffix(part, "-"+name) {
				return true
			}
		}
	}
	return false
}

func open(pid int) (*Namespace, error) {
	file, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "ns", "net"))
	if err != nil {
		return nil, err
	}
	return &Namespace{PID: pid, file: file}, nil
}

// byAddress finds the namespace that has one of a pod's addresses, each namespace once ([Only]).
func byAddress(pids []int, own string, addresses []netip.Addr) (*Namespace, error) {
	if len(addresses) == 0 {
		return nil, ErrNone
	}
	seen := map[string]bool{own: true}
	var found []*Namespace
	var files []*os.File
	for _, pid := range pids {
		name, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns", "net"))
		if err != nil || seen[name] {
			continue
		}
		seen[name] = true
		n, err := open(pid)
		if err != nil {
			continue
		}
		has := false
		if err := n.Within(func() error {
			has = hasAny(addresses)
			return nil
		}); err != nil || !has {
			n.Close()
			continue
		}
		found, files = append(found, n), append(files, n.file)
	}
	if len(found) == 0 {
		return nil, ErrNone
	}
	only := Only(files)
	for i, n := range found {
		if i != only {
			n.Close()
		}
	}
	if only < 0 {
		return nil, fmt.Errorf("%w: %s", ErrSeveral, addresses[0])
	}
	return found[only], nil
}

// hasAny tells whether the thread's network namespace has one of some addresses.
func hasAny(addresses []netip.Addr) bool {
	list, err := ownaddr.List()
	return err == nil && slices.ContainsFunc(list, func(a netip.Addr) bool { return slices.Contains(addresses, a) })
}

// ownNamespace is that of the calling thread.
const ownNamespace = "/proc/thread-self/ns/net"

// Within runs f on a thread that is in the namespace; programs that f starts are in it, too. The thread never returns
// to this process's namespace: it ends with f. f must not leave the goroutine that it is called on for what depends on
// the namespace.
func (n *Namespace) Within(f func() error) error {
	result := make(chan error, 1)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The runtime does not end the process's first thread, and all below /proc/self would be the pod's from then
			// on. While this goroutine has it, another one gets another thread.
			done := make(chan struct{})
			go func() {
				defer close(done)
				run()
			}()
			<-done
			runtime.UnlockOSThread()
			return
		}
		// Not unlocked: the thread ends with this goroutine.
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("cannot enter the pod's network namespace: %w", err)
			return
		}
		result <- f()
	}
	go run()
	return <-result
}

// File reads a file of the pod's own file system, as its processes see it: up to limit bytes of a regular file. No
// symbolic link leads out of that (RESOLVE_IN_ROOT of openat2, Linux 5.6).
func (n *Namespace) File(path string, limit int64) ([]byte, error) {
	return fileBelow(filepath.Join(proc, strconv.Itoa(n.PID), "root"), path, limit)
}

// fileBelow reads a file below a directory, as if that were the root.
func fileBelow(dir, path string, limit int64) ([]byte, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("%s of the pod: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s of the pod is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s of the pod is larger than %d bytes", path, limit)
	}
	return data, err
}
