// SPDX-License-Identifier: Apache-2.0

package podns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/ownaddr"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/cgroup"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
)

// Namespace is the network namespace of a pod, and a process that is in it.
type Namespace struct {
	PID        int
	file, root *os.File
}

// Close gives up the namespace.
func (n *Namespace) Close() error { return errors.Join(n.file.Close(), n.root.Close()) }

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
	ErrNone = errors.New(
		"no process on the node belongs to the pod: none is in a control group of the kubelet's with its " +
			"UID, or in a network namespace of the node's own with its address",
	)
	// ErrSeveral says that it is not known which network namespace is the pod's.
	ErrSeveral = errors.New("several network namespaces on the node have the pod's address, and not one of them alone " +
		"has a link to the node")
	// ErrNode says that the pod has no network namespace of its own.
	ErrNode = errors.New("the pod's processes are in the node's own network namespace")
)

// Find finds the network namespace of a pod: that of a process which the kubelet has put into the pod's control group
// ([cgroup.PodOf]); else the one that has one of its addresses, if only root of the node can have made it and it is no
// other pod's: whose the kubelet's are is not asked of a pod without UIDs. The caller closes it.
func Find(pod Pod) (*Namespace, error) {
	own, err := os.Readlink(ownNamespace)
	if err != nil {
		return nil, err
	}
	shared := false
	var others []*Namespace // that may have the pod's address
	found := cgroup.OnNode(func(error) (found *Namespace) {
		seen := map[string]bool{own: true}
		err = process.Each(func(pid int, dir *os.File) bool {
			if found != nil {
				return false
			}
			n, uid, err := look(pid, dir)
			if err != nil {
				return false // it has ended, or is a zombie
			}
			name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n.file.Fd()))
			switch {
			case err != nil:
			case uid != "" && slices.Contains(pod.UIDs, uid) && name != own:
				found = n
				return false
			case uid != "" && slices.Contains(pod.UIDs, uid):
				shared = true
			case (uid == "" || len(pod.UIDs) == 0) && !seen[name] && process.OfNode(n.file):
				seen[name] = true
				others = append(others, n)
				return false
			}
			n.Close()
			return false
		})
		return found
	})
	if found == nil && err == nil && !shared {
		return byAddress(others, pod.Addresses)
	}
	for _, n := range others {
		n.Close()
	}
	if found == nil && err == nil {
		err = ErrNode
	}
	return found, err
}

// look opens the network namespace of a process, and returns the pod that it belongs to; "" where it belongs to none,
// as far as its control group tells. Both are of the one process.
func look(pid int, dir *os.File) (n *Namespace, uid string, err error) {
	n, err = open(pid, dir)
	if err != nil {
		return nil, "", err
	}
	groups, err := cgroup.In(dir)
	if err != nil {
		n.Close()
		return nil, "", err
	}
	uid, _ = cgroup.PodOf(groups)
	return n, uid, nil
}

func open(pid int, dir *os.File) (*Namespace, error) {
	fd, err := unix.Openat(int(dir.Fd()), "ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	root, err := unix.Openat(int(dir.Fd()), "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Namespace{PID: pid, file: os.NewFile(uintptr(fd), "net"), root: os.NewFile(uintptr(root), "root")}, nil
}

// byAddress finds the one among network namespaces that has one of a pod's addresses ([Only]), and closes the others.
func byAddress(all []*Namespace, addresses []netip.Addr) (*Namespace, error) {
	var found []*Namespace
	var files []*os.File
	for _, n := range all {
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

// File reads a file of the pod's own file system, as its processes see it: see [process.FileIn].
func (n *Namespace) File(path string, limit int64) ([]byte, error) {
	return process.FileIn(n.root, path, limit)
}
