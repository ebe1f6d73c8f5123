// SPDX-License-Identifier: Apache-2.0

// Package ctnetlink asks the kernel's connection table for single connections.
package ctnetlink

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Entry is what the table knows of a connection: where its answers come from, and whether there was none yet.
type Entry struct {
	From      netip.AddrPort
	Unreplied bool
}

// ipsSeenReply is the bit of a connection's status that an answer sets (IPS_SEEN_REPLY in uapi/linux/netfilter/nf_conntrack_common.h).
const ipsSeenReply = 1 << 1

// ctaStatus and the others are attributes of uapi/linux/netfilter/nfnetlink_conntrack.h.
const ctaStatus = 3

// subsystem is that of connection tracking (NFNL_SUBSYS_CTNETLINK in uapi/linux/netfilter/nfnetlink.h).
const subsystem = 1

// Find asks the kernel's connection table for the entry of a connection, by its first packet; nil where there is none. It asks for this one
// alone (ctnetlink_get_conntrack in net/netfilter/nf_conntrack_netlink.c): to list the table takes long where it is large.
func Find(proto uint8, from, to netip.AddrPort) *Entry {
	if !from.IsValid() {
		return nil
	}
	req := nl.NewNetlinkRequest(subsystem<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	family := uint8(unix.AF_INET)
	src, dst := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if to.Addr().Is6() {
		family, src, dst = unix.AF_INET6, nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	ip := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(src, from.Addr().AsSlice())
	ip.AddRtAttr(dst, to.Addr().AsSlice())
	port := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	port.AddRtAttr(nl.CTA_PROTO_NUM, []byte{proto})
	port.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(from.Port()))
	port.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(to.Port()))
	req.AddData(tuple)
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil || len(answers) == 0 {
		return nil // ENOENT: there is none
	}
	return entryOf(answers[0][nl.SizeofNfgenmsg:])
}

// entryOf reads the attributes of an entry.
func entryOf(data []byte) *Entry {
	e := &Entry{Unreplied: true}
	for kind, value := range attributes(data) {
		switch kind {
		case ctaStatus:
			if len(value) == 4 {
				e.Unreplied = binary.BigEndian.Uint32(value)&ipsSeenReply == 0
			}
		case nl.CTA_TUPLE_REPLY:
			e.From = source(value)
		}
	}
	if !e.From.IsValid() {
		return nil
	}
	return e
}

// source reads the source of a tuple.
func source(data []byte) netip.AddrPort {
	var a netip.Addr
	var port uint16
	for kind, value := range attributes(data) {
		switch kind {
		case nl.CTA_TUPLE_IP:
			for kind, value := range attributes(value) {
				if kind == nl.CTA_IP_V4_SRC || kind == nl.CTA_IP_V6_SRC {
					a, _ = netip.AddrFromSlice(value)
				}
			}
		case nl.CTA_TUPLE_PROTO:
			for kind, value := range attributes(value) {
				if kind == nl.CTA_PROTO_SRC_PORT && len(value) == 2 {
					port = binary.BigEndian.Uint16(value)
				}
			}
		}
	}
	if !a.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, port)
}

// attributes yields netlink attributes by their types, without the flag for nested ones. It ends at the first that does not fit.
func attributes(data []byte) func(yield func(kind int, value []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for len(data) >= unix.NLA_HDRLEN {
			size := int(binary.NativeEndian.Uint16(data))
			if size < unix.NLA_HDRLEN || size > len(data) {
				return
			}
			kind := int(binary.NativeEndian.Uint16(data[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER))
			if !yield(kind, data[unix.NLA_HDRLEN:size]) {
				return
			}
			data = data[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(data)):]
		}
	}
}
