// SPDX-License-Identifier: Apache-2.0

// Package ctnetlink asks the kernel's connection tracking for single connections.
package ctnetlink

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// Entry is what connection tracking knows of a connection.
type Entry struct {
	From      netip.AddrPort // the source of the connection's replies
	To        netip.AddrPort // their destination: the connection's source, or what that was translated to
	Unreplied bool           // there was no reply yet
	Assured   bool           // packets have gone both ways; of TCP: the connection was open
}

// Of uapi/linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h.
const (
	messageGet = 1 // IPCTNL_MSG_CT_GET

	attrTupleOrig  = 1 // CTA_TUPLE_ORIG
	attrTupleReply = 2 // CTA_TUPLE_REPLY
	attrStatus     = 3 // CTA_STATUS

	attrTupleIP    = 1 // CTA_TUPLE_IP
	attrTupleProto = 2 // CTA_TUPLE_PROTO

	attrSourceV4      = 1 // CTA_IP_V4_SRC
	attrDestinationV4 = 2 // CTA_IP_V4_DST
	attrSourceV6      = 3 // CTA_IP_V6_SRC
	attrDestinationV6 = 4 // CTA_IP_V6_DST

	attrProtocol        = 1 // CTA_PROTO_NUM
	attrSourcePort      = 2 // CTA_PROTO_SRC_PORT
	attrDestinationPort = 3 // CTA_PROTO_DST_PORT

	statusSeenReply = 1 << 1 // IPS_SEEN_REPLY
	statusAssured   = 1 << 2 // IPS_ASSURED
)

// Find returns the entry of a connection, which is given by its first packet: its protocol (unix.IPPROTO_…), source
// and destination. It is nil if there is none, or if the kernel does not tell. Only this entry is asked for
// (ctnetlink_get_conntrack in net/netfilter/nf_conntrack_netlink.c), as a large table takes long to list.
func Find(proto uint8, from, to netip.AddrPort) *Entry {
	if !from.IsValid() {
		return nil
	}
	conn, err := netlink.Dial()
	if err != nil {
		return nil
	}
	defer conn.Close()
	answer, err := conn.Do(request(proto, from, to))
	if err != nil || len(answer) == 0 {
		return nil // ENOENT: there is none
	}
	_, attributes, err := answer[0].Attributes()
	if err != nil {
		return nil
	}
	return entryOf(attributes)
}

func request(proto uint8, from, to netip.AddrPort) netlink.Request {
	family, source, destination := uint8(unix.NFPROTO_IPV4), uint16(attrSourceV4), uint16(attrDestinationV4)
	if to.Addr().Is6() {
		family, source, destination = unix.NFPROTO_IPV6, attrSourceV6, attrDestinationV6
	}
	return netlink.Request{
		Subsystem: unix.NFNL_SUBSYS_CTNETLINK,
		Type:      messageGet,
		Family:    family,
		Attributes: []netlink.Attribute{netlink.Nested(attrTupleOrig,
			netlink.Nested(attrTupleIP,
				netlink.Bytes(source, from.Addr().AsSlice()),
				netlink.Bytes(destination, to.Addr().AsSlice()),
			),
			netlink.Nested(attrTupleProto,
				netlink.Bytes(attrProtocol, []byte{proto}),
				netlink.Uint16(attrSourcePort, from.Port()),
				netlink.Uint16(attrDestinationPort, to.Port()),
			),
		)},
	}
}

// entryOf reads the attributes of an entry; nil if they do not name the source of replies.
func entryOf(attributes []netlink.Attribute) *Entry {
	e := &Entry{Unreplied: true}
	for _, a := range attributes {
		switch a.Type {
		case attrStatus:
			if len(a.Value) == 4 { // bytes of a number
				status := binary.BigEndian.Uint32(a.Value)
				e.Unreplied, e.Assured = status&statusSeenReply == 0, status&statusAssured != 0
			}
		case attrTupleReply:
			ends := endsOf(a.Value)
			e.From, e.To = ends.source, ends.destination
		}
	}
	if !e.From.IsValid() {
		return nil
	}
	return e
}

// ends are the two ends of one direction of a connection; the zero value of each that is not told.
type ends struct {
	proto               uint8
	source, destination netip.AddrPort
}

// endsOf reads a tuple; the zero value if it cannot be read.
func endsOf(value []byte) (out ends) {
	parts, err := netlink.Decode(value)
	if err != nil {
		return ends{}
	}
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	for _, part := range parts {
		attributes, err := netlink.Decode(part.Value)
		if err != nil {
			return ends{}
		}
		for _, a := range attributes {
			switch {
			case part.Type == attrTupleIP && (a.Type == attrSourceV4 || a.Type == attrSourceV6):
				source, _ = netip.AddrFromSlice(a.Value)
			case part.Type == attrTupleIP && (a.Type == attrDestinationV4 || a.Type == attrDestinationV6):
				destination, _ = netip.AddrFromSlice(a.Value)
			case part.Type == attrTupleProto && a.Type == attrProtocol && len(a.Value) == 1:
				out.proto = a.Value[0]
			case part.Type == attrTupleProto && a.Type == attrSourcePort && len(a.Value) == 2:
				sourcePort = binary.BigEndian.Uint16(a.Value)
			case part.Type == attrTupleProto && a.Type == attrDestinationPort && len(a.Value) == 2:
				destinationPort = binary.BigEndian.Uint16(a.Value)
			}
		}
	}
	if source.IsValid() {
		out.source = netip.AddrPortFrom(source, sourcePort)
	}
	if destination.IsValid() {
		out.destination = netip.AddrPortFrom(destination, destinationPort)
	}
	return out
}
