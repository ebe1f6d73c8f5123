// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// namespace is a network namespace to make sockets in. A socket stays in the one that it was made in.
type namespace struct {
	pod *podns.Namespace // nil: this process's own
	err error            // why it was not found
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
	if s.pod == nil {
		err = open()
		return fd, err
	}
	return fd, s.pod.Within(open)
}

// namespaces are the network namespaces of pods, each found once, by what is known of the pod with its address.
type namespaces struct {
	pods   []podns.Pod
	byAddr map[netip.Addr]*namespace
}

// of returns the namespace of the pod that has an address; this process's own for the zero Addr.
func (n *namespaces) of(a netip.Addr) (*namespace, error) {
	if !a.IsValid() {
		return &namespace{}, nil
	}
	s := n.byAddr[a]
	if s == nil {
		s = &namespace{}
		s.pod, s.err = podns.Find(n.podAt(a))
		n.byAddr[a] = s
	}
	if s.err != nil {
		return nil, fmt.Errorf("the pod with the address %s: %w", a, s.err)
	}
	return s, nil
}

// podAt is what is known of the pod that has an address. The API may have one there that has ended, too, without
// processes.
func (n *namespaces) podAt(a netip.Addr) podns.Pod {
	out := podns.Pod{Addresses: []netip.Addr{a}}
	for _, p := range n.pods {
		if slices.Contains(p.Addresses, a) {
			out.UIDs = append(out.UIDs, p.UIDs...)
		}
	}
	return out
}

func (n *namespaces) close() {
	for _, s := range n.byAddr {
		if s.pod != nil {
			s.pod.Close()
		}
	}
}
