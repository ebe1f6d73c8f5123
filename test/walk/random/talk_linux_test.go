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
	request *segment // as it left the node; nil where it did not
	packets []talked // those behind it; the last one may not have come
}

// talked is a packet behind the first of a connection, and whether it came to its end.
type talked struct {
	turn   netfilter.Turn
	ending netfilter.Ending
	came   bool
	echoed bool // the client's kernel may have sent something that was not waited for: an ACK
}

func (k *talk) String() string {
	out := "not seen on a wire"
	if k.request != nil {
		out = fmt.Sprintf("left as %s > %s by %s", k.request.src, k.request.dst, k.request.wire)
	}
	for _, p := range k.packets {
		name := map[netfilter.Turn]string{
			netfilter.Reply: "answer", netfilter.Later: "later packet", netfilter.Further: "later answer",
		}[p.turn]
		if p.ending == netfilter.Ends {
			name += " with FIN"
		}
		out += fmt.Sprintf(", %s came %v", name, p.came)
	}
	return out
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
	// further sends a packet behind the answer, unless that was sent already: the first of them, or one with data.
	further(data int) error
	// got tells whether a packet of the endpoint with such flags has come.
	got(list []segment, flags uint8) bool
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

func (r *remote) further(data int) error {
	if data == 0 {
		return r.inject(r.p.in, r.p.src, r.p.dst, r.p.proto, flagACK, 2, r.ack, 0)
	}
	return r.inject(r.p.in, r.p.src, r.p.dst, r.p.proto, flagPSH|flagACK, 2, r.ack+uint32(data), data)
}

func (r *remote) got(list []segment, flags uint8) bool {
	return find(list, func(s *segment) bool {
		return s.proto == r.p.proto && s.wire == r.p.in && s.src == r.p.dst && s.dst == r.p.src &&
			(s.proto != netfilter.TCP || s.flags&^0xc0 == flags)
	}) != nil
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
	if _, err := unix.Getpeername(l.fd); err == nil {
		return true
	}
	// Rules may refuse the client's ACK: a SYN is refused otherwise (tcp_reset in net/ipv4/tcp_input.c).
	reason, err := unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err == nil && unix.Errno(reason) == unix.ECONNRESET
}

func (l *local) further(data int) error {
	if data > 0 || l.p.proto == netfilter.UDP {
		_, _ = unix.Write(l.fd, make([]byte, max(data, len("more"))))
	}
	return nil // the kernel has sent its ACK
}

func (l *local) got(_ []segment, flags uint8) bool {
	n, _, err := unix.Recvfrom(l.fd, make([]byte, 2048), unix.MSG_DONTWAIT)
	return err == nil && (n > 0 || flags&flagFIN != 0)
}

func (l *local) close() { _ = unix.Close(l.fd) }

// much is how many bytes packets with data carry.
const much = 200

// little is that of a datagram of IPv6 for a socket of the node. Where a rule changes a field of its header behind
// connection tracking, the sum of the packet that was calculated there is no longer right, and the socket refuses what
// has more than 76 bytes (udp6_csum_init in net/ipv6/ip6_checksum.c). No network card leaves the sum to the kernel.
const little = 40

// talk opens a connection, answers at its far end, and goes on: the client's ACK, data of the endpoint, data of the
// client, and the endpoint's end; of UDP datagrams likewise. It ends with the first packet that is lost.
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
		k.packets = []talked{{turn: netfilter.Reply, came: c.answered(list)}}
		return k, nil
	}
	r := k.request
	if err := x.inject(r.wire, r.dst, r.src, r.proto, flagSYN|flagACK, 100, r.seq+1, 0); err != nil {
		return k, err
	}
	list = x.seen()
	add := func(t talked) bool {
		k.packets = append(k.packets, t)
		return t.came
	}
	if !add(talked{turn: netfilter.Reply, came: c.answered(list)}) {
		return k, nil
	}
	if err := c.further(0); err != nil {
		return k, err
	}
	if !add(talked{turn: netfilter.Later, came: x.followed(r, append(list, x.seen()...), flagACK)}) {
		return k, nil
	}
	size := much
	if p.in == "" && p.proto == netfilter.UDP && !p.v4() {
		size = little
	}
	if err := x.inject(r.wire, r.dst, r.src, r.proto, flagPSH|flagACK, 101, r.seq+1, size); err != nil {
		return k, err
	}
	echoed := p.in == "" && p.proto == netfilter.TCP
	if !add(talked{turn: netfilter.Further, came: c.got(x.seen(), flagPSH|flagACK), echoed: echoed}) {
		return k, nil
	}
	if err := c.further(much); err != nil {
		return k, err
	}
	if !add(talked{turn: netfilter.Later, came: x.followed(r, x.seen(), flagPSH|flagACK)}) || p.proto != netfilter.TCP {
		return k, nil
	}
	if err := x.inject(r.wire, r.dst, r.src, r.proto, flagFIN|flagACK, 101+much, r.seq+1, 0); err != nil {
		return k, err
	}
	add(talked{turn: netfilter.Further, ending: netfilter.Ends, came: c.got(x.seen(), flagFIN|flagACK)})
	return k, nil
}

// followed tells whether a later packet with such flags has left the node as the first one has.
func (x *exchanger) followed(r *segment, list []segment, flags uint8) bool {
	return find(list, func(s *segment) bool {
		return s.proto == r.proto && s.wire == r.wire && s.dst == r.dst && s.src == r.src &&
			(s.proto != netfilter.TCP || s.flags&^0xc0 == flags)
	}) != nil
}
