// SPDX-License-Identifier: Apache-2.0

// Package nfnl changes nf_tables over netlink, where nft has no words for it: tables that belong to a socket, and removal of what is empty only.
package nfnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Conn is a socket to nf_tables. It is for one goroutine.
type Conn struct {
	fd  int
	seq uint32
}

// Open opens a socket. The caller closes it.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &Conn{fd: fd}, nil
}

// Close closes it, and with it goes every table that it owns.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Text is an attribute that is a string.
func Text(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(s)) }

// Uint32 is an attribute that is a number, in network byte order.
func Uint32(kind int, v uint32) *nl.RtAttr {
	return nl.NewRtAttr(kind, binary.BigEndian.AppendUint32(nil, v))
}

// Nested is an attribute of attributes.
func Nested(kind int, children ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	for _, c := range children {
		a.AddChild(c)
	}
	return a
}

// Attributes are those of a message from the kernel, behind its header, or of a nested attribute. nl.ParseRouteAttr panics where the last attribute
// comes without its padding, which the kernel never leaves out (__nla_reserve), and so it is added. The error is of a length that cannot be.
func Attributes(b []byte) ([]syscall.NetlinkRouteAttr, error) {
	if missing := -len(b) & (unix.NLA_ALIGNTO - 1); missing > 0 {
		b = append(slices.Clip(b), make([]byte, missing)...)
	}
	return nl.ParseRouteAttr(b)
}

// Message is one change.
type Message struct {
	Family byte // NFPROTO_…
	Kind   int  // NFT_MSG_…
	Flags  int  // NLM_F_…
	Attrs  []*nl.RtAttr
}

// The frame of a transaction (uapi/linux/netfilter/nfnetlink.h).
const (
	batchBegin = 0x10
	batchEnd   = 0x11
)

// Commit makes changes, all or none (net/netfilter/nfnetlink.c, nfnetlink_rcv_batch).
func (c *Conn) Commit(messages ...Message) error {
	var batch []byte
	frame := func(family byte, kind, flags int, attrs ...*nl.RtAttr) {
		c.seq++
		subsystem := uint16(0)
		if kind == batchBegin || kind == batchEnd {
			subsystem = unix.NFNL_SUBSYS_NFTABLES
		} else {
			kind |= unix.NFNL_SUBSYS_NFTABLES << 8 //nolint:mnd // NFNL_SUBSYS_ID
		}
		body := binary.BigEndian.AppendUint16([]byte{family, nl.NFNETLINK_V0}, subsystem)
		for _, a := range attrs {
			body = append(body, a.Serialize()...)
		}
		batch = binary.NativeEndian.AppendUint32(batch, uint32(unix.SizeofNlMsghdr+len(body))) //nolint:gosec // some hundred bytes
		batch = binary.NativeEndian.AppendUint16(batch, uint16(kind))                          //nolint:gosec // a message type
		batch = binary.NativeEndian.AppendUint16(batch, uint16(unix.NLM_F_REQUEST|flags))      //nolint:gosec // flags
		batch = binary.NativeEndian.AppendUint32(batch, c.seq)
		batch = binary.NativeEndian.AppendUint32(batch, 0)
		batch = append(batch, body...)
	}
	frame(unix.AF_UNSPEC, batchBegin, 0)
	for _, m := range messages {
		frame(m.Family, m.Kind, m.Flags|unix.NLM_F_ACK, m.Attrs...)
	}
	frame(unix.AF_UNSPEC, batchEnd, 0)
	if err := unix.Sendto(c.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	return c.acknowledged(len(messages))
}

// patience is for the kernel's answers to a transaction.
const patience = 10_000 // milliseconds

// acknowledged reads as many answers; the first error is the transaction's.
func (c *Conn) acknowledged(left int) error {
	buf := make([]byte, 1<<16) //nolint:mnd // more than an answer has
	for left > 0 {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}, patience) //nolint:gosec // a file descriptor
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if ready == 0 {
			return errors.New("the kernel does not answer")
		}
		n, _, err := unix.Recvfrom(c.fd, buf, 0)
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= unix.SizeofNlMsghdr+4; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr+4 || size > len(b) {
				return errors.New("the kernel's answer is cut short")
			}
			if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
				if no := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); no != 0 { //nolint:gosec // negative
					return unix.Errno(-no) //nolint:gosec // an error number
				}
				left--
			}
			b = b[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
		}
	}
	return nil
}
