// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/ownaddr"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/process"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// namespace is a network namespace to make sockets in. A socket stays in the one that it was made in.
type namespace struct {
	file *os.File // nil: this process's own
}

// socket makes a socket for a target.
func (s *namespace) socket(t snapshot.ProbeTarget) (fd int, err error) {
	family := unix.AF_INET
	if t.To.Addr().Is6() {
		family = unix.AF_INET6
	}
	k := kinds[t.Protocol]
	open := func() error {
		fd, err = unix.Socket(family, k.kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(k.proto))
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
			return fmt.Errorf("the node's kernel has no %s", t.Protocol)
		}
		return err
	}
	if s.file == nil {
		err = open()
		return fd, err
	}
	return fd, within(s.file, open)
}

// within runs f on a thread that enters a network namespace, and returns the thread to this process's. It must be
// returned: if it is the process's first one, everything below /proc/self would be that of the pod from then on.
func within(file *os.File, f func() error) error {
	result := make(chan error)
	go func() { result <- visit(file, f) }()
	return <-result
}

func visit(file *os.File, f func() error) (err error) {
	runtime.LockOSThread()
	own, err := os.Open(ownNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("cannot enter the pod's network namespace: %w", err)
	}
	defer func() {
		if e := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); e != nil {
			err = errors.Join(err, fmt.Errorf("cannot return from the pod's network namespace: %w", e))
			return // the thread stays locked, and ends with this goroutine
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// ownNamespace is that of the calling thread.
const ownNamespace = "/proc/thread-self/ns/net"

// namespaces finds the network namespaces of pods by their addresses.
type namespaces struct {
	once   sync.Once
	byAddr map[netip.Addr][]*namespace
	all    []*os.File
	err    error
}

// of returns the namespace that has an address; this process's own for the zero Addr.
func (n *namespaces) of(a netip.Addr) (*namespace, error) {
	if !a.IsValid() {
		return &namespace{}, nil
	}
	n.once.Do(n.find)
	if n.err != nil {
		return nil, n.err
	}
	list := n.byAddr[a]
	if len(list) == 0 {
		return nil, fmt.Errorf("no process on the node is in the network namespace of a pod with the address %s", a)
	}
	files := make([]*os.File, len(list))
	for i, s := range list {
		files[i] = s.file
	}
	only := podns.Only(files)
	if only < 0 {
		return nil, fmt.Errorf("%w: %s", podns.ErrSeveral, a)
	}
	return list[only], nil
}

// find enters the network namespaces of all processes, each once.
func (n *namespaces) find() {
	own, err := os.Readlink(ownNamespace)
	if err != nil {
		n.err = err
		return
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		n.err = err
		return
	}
	n.byAddr = map[netip.Addr][]*namespace{}
	seen := map[string]bool{own: true}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		path := "/proc/" + e.Name() + "/ns/net"
		name, err := os.Readlink(path)
		if err != nil || seen[name] {
			continue // it has ended, or access is denied
		}
		seen[name] = true
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		if !process.OfNode(file) { // any user can make one in a user namespace, with any addresses
			file.Close()
			continue
		}
		n.all = append(n.all, file)
		s := &namespace{file: file}
		if err := within(file, func() error { return n.addresses(s) }); err != nil {
			n.err = err
			return
		}
	}
}

// addresses notes the addresses of the namespace that the thread is in.
func (n *namespaces) addresses(s *namespace) error {
	list, err := ownaddr.List()
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.IsGlobalUnicast() && !slices.Contains(n.byAddr[a], s) {
			n.byAddr[a] = append(n.byAddr[a], s)
		}
	}
	return nil
}

func (n *namespaces) close() {
	for _, f := range n.all {
		f.Close()
	}
}
