// SPDX-License-Identifier: Apache-2.0

// Package sctp listens for the tests, which net cannot for SCTP.
package sctp

import (
	"errors"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// backlog is how many associations may wait to be accepted.
const backlog = 128

// Listen opens a socket of the one-to-one style (RFC 6458, section 4), which Go's net package knows how to accept
// from. At the unspecified address of IPv6 it is one for IPv4, too. The error is that of the kernel, which may have
// no SCTP.
func Listen(at netip.AddrPort) (net.Listener, error) {
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sctp")
	defer f.Close()
	if err := errors.Join(unix.Bind(fd, address), unix.Listen(fd, backlog)); err != nil {
		return nil, err
	}
	return net.FileListener(f)
}
