// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nfgenmsgSize is the size of struct nfgenmsg (uapi/linux/netfilter/nfnetlink.h): family, version and a resource.
const nfgenmsgSize = 4

// errShort is the error of a message that is shorter than its headers say.
var errShort = errors.New("netlink: a message is incomplete")

// Message is a message from the kernel.
type Message struct {
	netlink.Header

	Body []byte // what follows struct nlmsghdr
	raw  []byte // the whole message with its padding
}

// Size is how many bytes the message takes, with its padding.
func (m *Message) Size() int { return len(m.raw) }

// Is tells whether the message is of a subsystem (unix.NFNL_SUBSYS_…) and a type within it.
func (m *Message) Is(subsystem, kind uint8) bool {
	return uint16(m.Type) == messageType(subsystem, kind)
}

func messageType(subsystem, kind uint8) uint16 {
	return uint16(subsystem)<<8 | uint16(kind) // NFNL_SUBSYS_ID and NFNL_MSG_TYPE
}

// Attributes returns the family (unix.NFPROTO_…) and the attributes of a message of nfnetlink, which begins with
// struct nfgenmsg.
func (m *Message) Attributes() (family uint8, attributes []Attribute, err error) {
	if len(m.Body) < nfgenmsgSize {
		return 0, nil, errShort
	}
	attributes, err = Decode(m.Body[nfgenmsgSize:])
	return m.Body[0], attributes, err
}

// Messages yields the messages of a datagram. An error is the last that it yields: it is one of a message that is not
// complete.
func Messages(datagram []byte) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for b := datagram; len(b) > 0; {
			if len(b) < unix.SizeofNlMsghdr {
				yield(Message{}, errShort)
				return
			}
			size := binary.NativeEndian.Uint32(b)
			if size < unix.SizeofNlMsghdr || uint64(size) > uint64(len(b)) {
				yield(Message{}, errShort)
				return
			}
			padded := min(align(int(size)), len(b))
			m := Message{
				Header: netlink.Header{
					Length:   size,
					Type:     netlink.HeaderType(binary.NativeEndian.Uint16(b[4:])),
					Flags:    netlink.HeaderFlags(binary.NativeEndian.Uint16(b[6:])),
					Sequence: binary.NativeEndian.Uint32(b[8:]),
					PID:      binary.NativeEndian.Uint32(b[12:]),
				},
				Body: b[unix.SizeofNlMsghdr:size],
				raw:  b[:padded],
			}
			if !yield(m, nil) {
				return
			}
			b = b[padded:]
		}
	}
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// last tells whether the message ends the answer to a request.
func (m *Message) last() bool { return m.Type == netlink.Error || m.Type == netlink.Done }

// err returns the error that a message of type NLMSG_ERROR or NLMSG_DONE reports: a unix.Errno, with the kernel's
// explanation if there is one (extended acknowledgement); nil if the request succeeded.
func (m *Message) err() error {
	const codeSize = 4
	if len(m.Body) < codeSize {
		if m.Type == netlink.Done {
			return nil
		}
		return errShort
	}
	code := int32(binary.NativeEndian.Uint32(m.Body)) //nolint:gosec // it is an int in the kernel
	if code >= 0 {
		return nil
	}
	errno := unix.Errno(-code)
	if text := m.explanation(m.Body[codeSize:]); text != "" {
		return fmt.Errorf("%w (%s)", errno, text)
	}
	return errno
}

// attrMessage is NLMSGERR_ATTR_MSG of uapi/linux/netlink.h.
const attrMessage = 1

// explanation returns the text of an extended acknowledgement, of which b is what follows the error code: in a message
// of type NLMSG_ERROR the request that it answers, or its header alone, and then the attributes (netlink_ack in
// net/netlink/af_netlink.c).
func (m *Message) explanation(b []byte) string {
	if m.Flags&netlink.AcknowledgeTLVs == 0 {
		return ""
	}
	if m.Type == netlink.Error {
		if len(b) < unix.SizeofNlMsghdr {
			return ""
		}
		request := uint64(unix.SizeofNlMsghdr)
		if m.Flags&netlink.Capped == 0 {
			request = uint64(binary.NativeEndian.Uint32(b))
		}
		if request > uint64(len(b)) {
			return ""
		}
		b = b[min(align(int(request)), len(b)):]
	}
	attributes, err := Decode(b)
	if err != nil {
		return "" // the error code tells enough
	}
	for _, a := range attributes {
		if a.Type == attrMessage {
			return unix.ByteSliceToString(a.Value)
		}
	}
	return ""
}
