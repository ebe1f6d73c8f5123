// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Request is a message to a subsystem of nfnetlink.
type Request struct {
	Subsystem  uint8  // unix.NFNL_SUBSYS_…
	Type       uint8  // of the subsystem, for instance unix.NFT_MSG_GETRULE
	Flags      uint16 // unix.NLM_F_…, besides NLM_F_REQUEST and NLM_F_ACK, which are set where they are needed
	Family     uint8  // unix.NFPROTO_…
	Resource   uint16 // the number of a group or queue, for subsystems that have them
	Attributes []Attribute
}

// message encodes a request. Length, sequence number and port are set when it is sent.
func (r *Request) message() (netlink.Message, error) {
	attributes, err := Encode(r.Attributes)
	if err != nil {
		return netlink.Message{}, err
	}
	body := make([]byte, 0, nfgenmsgSize+len(attributes))
	body = append(body, r.Family, unix.NFNETLINK_V0)
	body = binary.BigEndian.AppendUint16(body, r.Resource)
	return netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(messageType(r.Subsystem, r.Type)),
			Flags: netlink.Request | netlink.HeaderFlags(r.Flags),
		},
		Data: append(body, attributes...),
	}, nil
}

// ErrInterrupted says that the kernel's data changed while it was read, so that the answer may be of two states
// (NLM_F_DUMP_INTR of uapi/linux/netlink.h). The answer is complete otherwise.
var ErrInterrupted = errors.New("netlink: the data changed while it was read")

// Do sends a request and returns the messages that the kernel answers with, without the one that ends the answer. They
// are valid until the connection is used again. The error is a unix.Errno where the kernel refuses the request, and
// [ErrInterrupted] as for [Conn.Append].
func (c *Conn) Do(r Request) ([]Message, error) {
	raw, err := c.Append(c.buffer[:0], r)
	c.buffer = raw[:0]
	if err != nil {
		return nil, err
	}
	var out []Message
	for m, err := range Messages(raw) {
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Append sends a request and appends the messages that the kernel answers with, as they are: struct nlmsghdr, struct
// nfgenmsg, attributes, padding. The message that ends the answer is left out. The error is a unix.Errno where the
// kernel refuses the request. With [ErrInterrupted] the answer is appended all the same.
func (c *Conn) Append(out []byte, r Request) ([]byte, error) {
	if r.Flags&unix.NLM_F_DUMP != unix.NLM_F_DUMP {
		r.Flags |= unix.NLM_F_ACK
	}
	sent, err := c.send(r)
	if err != nil {
		return out, err
	}
	for interrupted := false; ; {
		var datagram []byte
		if out, datagram, err = c.receiveBehind(out); err != nil {
			return out, err
		}
		for m, err := range Messages(datagram) {
			switch {
			case err != nil:
				return out, err
			case m.Sequence != sent[0].Header.Sequence:
				continue // about an earlier request, or a notification
			}
			interrupted = interrupted || m.Flags&netlink.DumpInterrupted != 0
			if !m.last() {
				out = append(out, m.raw...) // it was received right there
				continue
			}
			if err = m.err(); err == nil && interrupted {
				err = ErrInterrupted
			}
			return out, err
		}
	}
}

// send sends requests as one datagram, with sequence numbers that follow one another.
func (c *Conn) send(requests ...Request) ([]netlink.Message, error) {
	messages := make([]netlink.Message, len(requests))
	for i := range requests {
		var err error
		if messages[i], err = requests[i].message(); err != nil {
			return nil, err
		}
	}
	sent, err := c.conn.SendMessages(messages)
	if err != nil {
		return nil, unwrap(err)
	}
	return sent, nil
}
