// SPDX-License-Identifier: Apache-2.0

package random

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// segment is a packet that was seen on a wire.
type segment struct {
	proto    uint8
	src, dst netip.AddrPort
	flags    uint8
	seq, ack uint32
	wire     string
}

func parseSegment(frame []byte) (s segment, ok bool) {
	if len(frame) < 14+20+8 {
		return s, false
	}
	typ, b := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	var src, dst netip.Addr
	switch typ {
	case unix.ETH_P_IP:
		s.proto = b[9]
		src, dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[int(b[0]&15)*4:]
	case unix.ETH_P_IPV6:
		if len(b) < 48 {
			return s, false
		}
		s.proto = b[6]
		src, dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40:]
	}
	if s.proto != netfilter.TCP && s.proto != netfilter.UDP || len(b) < 8 {
		return s, false
	}
	s.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
	s.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
	if s.proto == netfilter.TCP && len(b) >= 20 {
		s.seq, s.ack, s.flags = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), b[13]
	}
	return s, true
}

// talk is what became of a connection, as far as it came.
type talk struct {
	request           *segment // as it left the node; nil where it did not
	answered          bool
	followed, further bool // further: a later packet was sent
}

func (k *talk) String() string {
	if k.request == nil {
		return fmt.Sprintf("not seen on a wire, answered %v", k.answered)
	}
	return fmt.Sprintf("left as %s > %s by %s, answered %v, followed %v", k.request.src, k.request.dst, k.request.wire,
		k.answered, k.followed)
}

// find returns the first segment of some that a function takes.
func find(list []segment, take func(*segment) bool) *segment {
	for i := range list {
		if take(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// opener is who begins a connection.
type opener interface {
	// open sends the first packet.
	open() error
	// answered tells whether the answer has come, among what was seen.
	answered(list []segment) bool
	// further sends a later packet, unless that was sent already.
	further() error
	close()
}

// remote is a client beyond a wire.
type remote struct {
	*exchanger

	p   packet
	ack uint32
}

func (r *remote) open() error { return r.put(r.p) }

func (r *remote) answered(list []segment) bool {
	s := find(list, func(s *segment) bool {
		return s.proto == r.p.proto && s.wire == r.p.in && s.src == r.p.dst && s.dst == r.p.src &&
			(s.proto != netfilter.TCP || s.flags&^0xc0 == flagSYN|flagACK)
	})
	if s != nil {
		r.ack = s.seq + 1
	}
	return s != nil
}

func (r *remote) further() error {
	return r.inject(r.p.in, r.p.src, r.p.dst, r.p.proto, flagACK, 2, r.ack)
}

func (r *remote) close() {}

// local is a client of the node.
type local struct {
	p  packet
	fd int
}

func (l *local) address(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func (l *local) open() (err error) {
	family, typ := unix.AF_INET6, unix.SOCK_DGRAM
	if l.p.v4() {
		family = unix.AF_INET
	}
	if l.p.proto == netfilter.TCP {
		typ = unix.SOCK_STREAM
	}
	l.fd, err = unix.Socket(family, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_ = unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	_ = unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err := unix.Bind(l.fd, l.address(l.p.src)); err != nil {
		return err
	}
	if err := unix.Connect(l.fd, l.address(l.p.dst)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil // refused at once
	}
	if l.p.proto == netfilter.UDP {
		_, _ = unix.Write(l.fd, []byte("ask?"))
	}
	return nil
}

func (l *local) answered([]segment) bool {
	if l.p.proto == netfilter.UDP {
		n, _, err := unix.Recvfrom(l.fd, make([]byte, 64), unix.MSG_DONTWAIT)
		return err == nil && n > 0
	}
	_, err := unix.Getpeername(l.fd)
	return err == nil
}

func (l *local) further() error {
	if l.p.proto == netfilter.UDP {
		_, _ = unix.Write(l.fd, []byte("more"))
	}
	return nil // the kernel has sent its ACK
}

func (l *local) close() { _ = unix.Close(l.fd) }

// talk opens a connection, answers at its far end, and sends a later packet.
func (x *exchanger) talk(p packet) (k talk, err error) {
	var c opener = &remote{exchanger: x, p: p}
	if p.in == "" {
		c = &local{p: p, fd: -1}
	}
	defer c.close()
	x.seen()
	if err := c.open(); err != nil {
		return k, err
	}
	list := x.seen()
	first := func(s *segment) bool {
		return s.proto == p.proto && (s.proto != netfilter.TCP || s.flags&^0xc0 == flagSYN)
	}
	if k.request = find(list, first); k.request == nil {
		k.answered = c.answered(list)
		return k, nil
	}
	r := k.request
	if err := x.inject(r.wire, r.dst, r.src, r.proto, flagSYN|flagACK, 100, r.seq+1); err != nil {
		return k, err
	}
	list = x.seen()
	if k.answered = c.answered(list); !k.answered {
		return k, nil
	}
	k.further = true
	if err := c.further(); err != nil {
		return k, err
	}
	k.followed = find(append(list, x.seen()...), func(s *segment) bool {
		return s.proto == r.proto && s.wire == r.wire && s.dst == r.dst && s.src == r.src &&
			(s.proto != netfilter.TCP || s.flags&^0xc0 == flagACK)
	}) != nil
	return k, nil
}
