// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Of uapi/linux/sock_diag.h and uapi/linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	skMemInfo        = 7  // INET_DIAG_SKMEMINFO
	skV6Only         = 11 // INET_DIAG_SKV6ONLY
	requestSize      = 56 // struct inet_diag_req_v2
	messageSize      = 72 // struct inet_diag_msg
	stateListen      = 1 << 10
	stateClose       = 1 << 7
)

// Diag is a socket as sock_diag tells it.
type Diag struct {
	Socket

	// V6Only: a socket of IPv6 that takes no packets of IPv4.
	V6Only bool
	// Device is the index of the interface that it is bound to; 0 for none.
	Device int
	// Held is how much of its receive buffer is taken, and Buffer how much there is, in bytes with what the
	// kernel needs beside (SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_RCVBUF); 0 where that is not told.
	Held, Buffer uint32
}

// maxDiag bounds how many sockets are listed.
const maxDiag = 1 << 16

// Diagnosed lists what [Listening] does, over sock_diag: with the limit of a listening socket's queue in Send, and
// whether it is for IPv6 alone, which /proc does not tell. The kernel loads the modules inet_diag, tcp_diag and
// udp_diag for it (inet_diag_lock_handler in net/ipv4/inet_diag.c): the caller sees to it that they are there.
func Diagnosed() ([]Diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sock_diag")
	defer f.Close()
	timeout := unix.Timeval{Sec: 10}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, err
	}
	var out []Diag
	for _, q := range []struct {
		protocol byte
		name     string
		states   uint32
	}{{unix.IPPROTO_UDP, "UDP", stateClose}, {unix.IPPROTO_TCP, "TCP", stateListen}} {
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			list, err := diagnose(fd, family, q.protocol, q.states)
			if err != nil {
				return nil, fmt.Errorf("sock_diag: %w", err)
			}
			for i := range list {
				list[i].Protocol = q.name
			}
			if out = append(out, list...); len(out) > maxDiag {
				return nil, fmt.Errorf("there are more than %d sockets that listen", maxDiag)
			}
		}
	}
	return out, nil
}

// diagnose asks for the sockets of a family and protocol that are in one of some states.
func diagnose(fd int, family, protocol byte, states uint32) ([]Diag, error) {
	order := binary.NativeEndian
	req := make([]byte, unix.SizeofNlMsghdr+requestSize)
	order.PutUint32(req, uint32(len(req))) //nolint:gosec // a constant
	order.PutUint16(req[4:], sockDiagByFamily)
	order.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req[unix.SizeofNlMsghdr], req[unix.SizeofNlMsghdr+1] = family, protocol
	req[unix.SizeofNlMsghdr+2] = 1 << (skMemInfo - 1)
	order.PutUint32(req[unix.SizeofNlMsghdr+4:], states)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var out []Diag
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for data := buf[:n]; len(data) >= unix.SizeofNlMsghdr; {
			size := int(order.Uint32(data))
			if size < unix.SizeofNlMsghdr || size > len(data) {
				return nil, errors.New("a message has an invalid length")
			}
			body := data[unix.SizeofNlMsghdr:size]
			switch order.Uint16(data[4:]) {
			case unix.NLMSG_DONE:
				return out, nil
			case unix.NLMSG_ERROR:
				if len(body) < 4 {
					return nil, errors.New("an error without a number")
				}
				return nil, unix.Errno(-int32(order.Uint32(body))) //nolint:gosec // the kernel's own number
			case sockDiagByFamily:
				if d, ok := parseDiag(body); ok && len(out) <= maxDiag {
					out = append(out, d)
				}
			}
			data = data[min((size+3)&^3, len(data)):]
		}
	}
}

// parseDiag reads a struct inet_diag_msg and its attributes (inet_sk_diag_fill in net/ipv4/inet_diag.c).
func parseDiag(m []byte) (d Diag, ok bool) {
	if len(m) < messageSize {
		return d, false
	}
	order := binary.NativeEndian
	address := func(at int) netip.Addr {
		if m[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(m[at:]))
		}
		return netip.AddrFrom16([16]byte(m[at:]))
	}
	d.Local = netip.AddrPortFrom(address(8), binary.BigEndian.Uint16(m[4:]))
	d.Remote = netip.AddrPortFrom(address(24), binary.BigEndian.Uint16(m[6:]))
	d.Device = int(order.Uint32(m[40:]))
	d.Receive, d.Send = int64(order.Uint32(m[56:])), int64(order.Uint32(m[60:]))
	d.Inode = strconv.FormatUint(uint64(order.Uint32(m[68:])), 10)
	for a := m[messageSize:]; len(a) >= unix.SizeofRtAttr; {
		size := int(order.Uint16(a))
		if size < unix.SizeofRtAttr || size > len(a) {
			break
		}
		switch value := a[unix.SizeofRtAttr:size]; order.Uint16(a[2:]) {
		case skV6Only:
			d.V6Only = len(value) > 0 && value[0] != 0
		case skMemInfo:
			if len(value) >= 8 {
				d.Held, d.Buffer = order.Uint32(value), order.Uint32(value[4:])
			}
		}
		a = a[min((size+3)&^3, len(a)):]
	}
	return d, true
}
