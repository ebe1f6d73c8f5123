// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/binary"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the system for a socket that never waits. They are made without the scheduler's knowledge: the net
// package and x/sys/unix announce each, and for any that takes longer than some 20 µs, as one does that sends a packet
// over a virtual link, the scheduler's monitor wakes up again and again, to take the processor from it. That took a
// seventh of the proxy's time.

// so6OriginalDst is IP6T_SO_ORIGINAL_DST of uapi/linux/netfilter_ipv6/ip6_tables.h.
const so6OriginalDst = 80

// sockaddr is a struct sockaddr_in, or a struct sockaddr_in6.
type sockaddr struct {
	bytes [unix.SizeofSockaddrInet6]byte
	size  uint32
}

func sockaddrOf(at netip.AddrPort) *sockaddr {
	a := &sockaddr{}
	family := uint16(unix.AF_INET)
	if at.Addr().Is4() {
		a.size = unix.SizeofSockaddrInet4
		copy(a.bytes[4:], at.Addr().AsSlice())
	} else {
		family, a.size = unix.AF_INET6, unix.SizeofSockaddrInet6
		copy(a.bytes[8:], at.Addr().AsSlice())
	}
	binary.NativeEndian.PutUint16(a.bytes[:], family)
	binary.BigEndian.PutUint16(a.bytes[2:], at.Port())
	return a
}

func (a *sockaddr) address() netip.AddrPort {
	ip := netip.AddrFrom4([4]byte(a.bytes[4:8]))
	if binary.NativeEndian.Uint16(a.bytes[:]) == unix.AF_INET6 {
		ip = netip.AddrFrom16([16]byte(a.bytes[8:24]))
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(a.bytes[2:]))
}

// accept returns the next connection of a listener, and its client.
func accept(listener int) (fd int, from netip.AddrPort, errno unix.Errno) {
	a := &sockaddr{size: unix.SizeofSockaddrInet6}
	//nolint:gosec // the kernel's interface
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(&a.bytes)),
		uintptr(unsafe.Pointer(&a.size)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int(n), a.address(), errno
}

// originalDestination asks connection tracking where a connection was sent before a rule redirected it (getorigdst in
// net/netfilter/nf_conntrack_proto.c). Of one that nobody redirected it is the socket's own address.
func originalDestination(fd int, v6 bool) (netip.AddrPort, unix.Errno) {
	a := &sockaddr{size: unix.SizeofSockaddrInet4}
	var level, name uintptr = unix.SOL_IP, unix.SO_ORIGINAL_DST
	if v6 {
		a.size, level, name = unix.SizeofSockaddrInet6, unix.SOL_IPV6, so6OriginalDst
	}
	//nolint:gosec // the kernel's interface
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), level, name, uintptr(unsafe.Pointer(&a.bytes)),
		uintptr(unsafe.Pointer(&a.size)), 0)
	return a.address(), errno
}

// ownName is a socket's own address.
func ownName(fd int) netip.AddrPort {
	a := &sockaddr{size: unix.SizeofSockaddrInet6}
	//nolint:gosec // the kernel's interface
	_, _, _ = unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&a.bytes)),
		uintptr(unsafe.Pointer(&a.size)))
	return a.address()
}

// connectTo begins to connect a new socket to an address. It is not bound to a port of the kernel's choice before: that
// leaves fewer of them.
func connectTo(to netip.AddrPort) (fd int, err error) {
	a := sockaddrOf(to)
	fd, err = unix.Socket(int(binary.NativeEndian.Uint16(a.bytes[:])), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|
		unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	setOption(fd, unix.SOL_TCP, unix.TCP_NODELAY, &enabled)
	//nolint:gosec // the kernel's interface
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a.bytes)), uintptr(a.size))
	if errno != 0 && errno != unix.EINPROGRESS {
		closeSocket(fd)
		return -1, errno
	}
	return fd, nil
}

var (
	enabled = int32(1)
	resets  = unix.Linger{Onoff: 1}
)

// reset has the end of a connection be one that the other side takes for an error.
func reset(fd int) { setOption(fd, unix.SOL_SOCKET, unix.SO_LINGER, &resets) }

// setOption sets an option of a socket that it has in any case.
func setOption[T any](fd int, level, name uintptr, value *T) {
	//nolint:gosec // the kernel's interface
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), level, name, uintptr(unsafe.Pointer(value)),
		unsafe.Sizeof(*value), 0)
}

// socketError returns the error of a socket, which is forgotten with that.
func socketError(fd int) error {
	value, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && value != 0 {
		err = unix.Errno(value)
	}
	return err
}

func receive(fd int, b []byte) (int, unix.Errno) {
	//nolint:gosec // the kernel's interface
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

func send(fd int, b []byte) (int, unix.Errno) {
	//nolint:gosec // the kernel's interface
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// closeWrite tells the other side that no more comes.
func closeWrite(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0) }

func closeSocket(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// readyNow returns how many events there are now.
func readyNow(epoll int, events []unix.EpollEvent) int {
	//nolint:gosec // the kernel's interface
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0 // interrupted
	}
	return int(n)
}

// waitFor waits until there are events, and returns how many; none where it was interrupted, or until is over, which is
// never where it is zero. The scheduler is told of this call, as it takes long.
func waitFor(epoll int, events []unix.EpollEvent, until time.Time) int {
	ms := -1
	if !until.IsZero() {
		ms = int(max(0, time.Until(until)+time.Millisecond-1) / time.Millisecond)
	}
	n, err := unix.EpollWait(epoll, events, ms)
	if err != nil {
		return 0 // interrupted
	}
	return n
}
