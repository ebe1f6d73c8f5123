// SPDX-License-Identifier: Apache-2.0

package random

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// packet is the first packet of a connection, and where it starts: in is the interface that it comes in by, "" for one
// that a process of the node sends.
type packet struct {
	proto    uint8
	src, dst netip.AddrPort
	in       string

	// Of a packet of TCP that is no SYN; the sequence number of a SYN is 1.
	flags    uint8
	seq, ack uint32
	data     int // how many bytes it carries besides those of bytes
}

func (p packet) String() string {
	proto, from := "UDP", "by "+p.in
	if p.proto == netfilter.TCP {
		proto = "TCP"
	}
	if p.in == "" {
		from = "from the node"
	}
	return fmt.Sprintf("%s %s > %s %s", proto, p.src, p.dst, from)
}

func (p packet) v4() bool { return p.dst.Addr().Is4() }

// start is where the walk begins.
func (p packet) start() netfilter.Start {
	s := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
		Family: netfilter.FamilyOf(p.dst.Addr()), Proto: p.proto, In: p.in,
		Src: p.src.Addr(), Dst: p.dst.Addr(), SrcPort: p.src.Port(), DstPort: p.dst.Port(),
	}}
	if p.in == "" {
		s.Hook = netfilter.Output
	}
	return s
}

// bytes returns the packet from its IP header on: a SYN, or a datagram of four bytes.
func (p packet) bytes() []byte {
	var l4 []byte
	if p.proto == netfilter.TCP {
		l4 = make([]byte, 20+p.data)
		seq, flags := p.seq, p.flags
		if flags == 0 {
			seq, flags = 1, 2 // SYN
		}
		binary.BigEndian.PutUint32(l4[4:], seq)
		binary.BigEndian.PutUint32(l4[8:], p.ack)
		l4[12] = 5 << 4 // words of header
		l4[13] = flags
		binary.BigEndian.PutUint16(l4[14:], 64240)
	} else {
		l4 = make([]byte, 12+p.data)
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	binary.BigEndian.PutUint16(l4, p.src.Port())
	binary.BigEndian.PutUint16(l4[2:], p.dst.Port())
	src, dst := p.src.Addr().AsSlice(), p.dst.Addr().AsSlice()
	sum := add(add(add(uint32(p.proto)+uint32(len(l4)), src), dst), l4)
	at := 16
	if p.proto != netfilter.TCP {
		at = 6
	}
	check := fold(sum)
	if check == 0 && p.proto != netfilter.TCP {
		check = 0xffff // 0 stands for no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(l4[at:], check)
	if !p.v4() {
		h := make([]byte, 8, 40+len(l4))
		h[0] = 6 << 4
		binary.BigEndian.PutUint16(h[4:], uint16(len(l4)))
		h[6], h[7] = p.proto, 64
		return append(append(append(h, src...), dst...), l4...)
	}
	h := make([]byte, 12, 20+len(l4))
	h[0] = 4<<4 | 5
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(l4)))
	binary.BigEndian.PutUint16(h[4:], p.src.Port())
	h[8], h[9] = 64, p.proto
	h = append(append(h, src...), dst...)
	binary.BigEndian.PutUint16(h[10:], fold(add(0, h)))
	return append(h, l4...)
}

// add and fold make the Internet checksum (RFC 1071).
func add(sum uint32, b []byte) uint32 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// from is the packet from another port.
func (p packet) from(port uint16) packet {
	p.src = netip.AddrPortFrom(p.src.Addr(), port)
	return p
}
