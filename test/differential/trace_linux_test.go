// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// event is one message of nf_tables' tracing (net/netfilter/nf_tables_trace.c, nft_trace_notify): a rule that applied, or the end of a
// chain.
type event struct {
	family  string // "ip", "ip6" or "inet", that of the table
	table   string
	chain   string
	handle  uint64 // of the rule; 0 for the end of a chain
	kind    uint32 // NFT_TRACETYPE_…
	verdict int32  // NF_ACCEPT and NF_DROP, or NFT_CONTINUE, NFT_JUMP, …
	to      string // the chain of a jump or goto
	policy  uint32
	mark    uint32
	in, out uint32 // interface indices
	headers *headers
}

// headers are a packet's addresses and ports; the first message of each base chain has them.
type headers struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
}

// Verdicts of nf_tables besides those of netfilter (include/uapi/linux/netfilter/nf_tables.h, enum nft_verdicts).
const (
	nfDrop      = 0
	nfAccept    = 1
	nftContinue = -1
	nftBreak    = -2
	nftJump     = -3
	nftGoto     = -4
	nftReturn   = -5
)

// tracer receives the messages of this thread's network namespace.
type tracer struct {
	fd  int
	buf []byte
}

// traceBuffer holds the messages of one packet, however many rules it meets.
const traceBuffer = 64 << 20

func newTracer() (*tracer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, traceBuffer),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTRACE),
	)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &tracer{fd, make([]byte, 1<<16)}, nil
}

func (t *tracer) close() { _ = unix.Close(t.fd) }

var errSilent = errors.New("the kernel reported nothing more")

// drain returns the messages that have come already.
func (t *tracer) drain() (out []event, err error) {
	for {
		n, _, err := unix.Recvfrom(t.fd, t.buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return out, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return out, err
		}
		events, err := parseEvents(t.buf[:n])
		if err != nil {
			return out, err
		}
		out = append(out, events...)
	}
}

// read returns the messages up to the first for which last is true, and that one with them.
func (t *tracer) read(last func(event) bool) ([]event, error) {
	var out []event
	end := time.Now().Add(2 * time.Second)
	for {
		n, _, err := unix.Recvfrom(t.fd, t.buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			left := time.Until(end)
			if left <= 0 {
				return out, errSilent
			}
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return out, err
			}
			continue
		}
		if err != nil {
			return out, err
		}
		events, err := parseEvents(t.buf[:n])
		out = append(out, events...)
		if err != nil || slices.ContainsFunc(events, last) {
			return out, err
		}
	}
}

// parseEvents reads the messages of a datagram.
func parseEvents(b []byte) (out []event, err error) {
	for at := 0; at+unix.SizeofNlMsghdr <= len(b); {
		size := int(binary.NativeEndian.Uint32(b[at:]))
		if size < unix.SizeofNlMsghdr || at+size > len(b) {
			return out, fmt.Errorf("a netlink message of %d bytes in %d", size, len(b)-at)
		}
		if typ := binary.NativeEndian.Uint16(b[at+4:]); typ == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
			e, err := parseEvent(b[at+unix.SizeofNlMsghdr : at+size])
			if err != nil {
				return out, err
			}
			out = append(out, e)
		}
		at += (size + 3) &^ 3
	}
	return out, nil
}

var traceFamilies = map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6"}

func parseEvent(b []byte) (event, error) {
	const nfgenmsg = 4
	if len(b) < nfgenmsg {
		return event{}, errors.New("a trace message without a header")
	}
	e := event{family: traceFamilies[b[0]]}
	attrs, err := nl.ParseRouteAttr(b[nfgenmsg:])
	if err != nil {
		return e, err
	}
	var network, transport []byte
	for _, a := range attrs {
		v := a.Value
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.NFTA_TRACE_TABLE:
			e.table = unix.ByteSliceToString(v)
		case unix.NFTA_TRACE_CHAIN:
			e.chain = unix.ByteSliceToString(v)
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.handle = binary.BigEndian.Uint64(v)
		case unix.NFTA_TRACE_TYPE:
			e.kind = binary.BigEndian.Uint32(v)
		case unix.NFTA_TRACE_VERDICT:
			inner, err := nl.ParseRouteAttr(v)
			if err != nil {
				return e, err
			}
			for _, i := range inner {
				switch i.Attr.Type {
				case unix.NFTA_VERDICT_CODE:
					e.verdict = int32(binary.BigEndian.Uint32(i.Value))
				case unix.NFTA_VERDICT_CHAIN:
					e.to = unix.ByteSliceToString(i.Value)
				}
			}
		case unix.NFTA_TRACE_POLICY:
			e.policy = binary.BigEndian.Uint32(v)
		case unix.NFTA_TRACE_MARK:
			e.mark = binary.BigEndian.Uint32(v)
		case unix.NFTA_TRACE_IIF:
			e.in = binary.BigEndian.Uint32(v)
		case unix.NFTA_TRACE_OIF:
			e.out = binary.BigEndian.Uint32(v)
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = v
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = v
		}
	}
	e.headers = parseHeaders(network, transport)
	return e, nil
}

// parseHeaders reads an IP header and the ports behind it; nil where they are not there.
func parseHeaders(network, transport []byte) *headers {
	if len(network) < 20 || len(transport) < 4 {
		return nil
	}
	h := &headers{srcPort: binary.BigEndian.Uint16(transport), dstPort: binary.BigEndian.Uint16(transport[2:])}
	switch {
	case network[0]>>4 == 4:
		h.src, h.dst = netip.AddrFrom4([4]byte(network[12:16])), netip.AddrFrom4([4]byte(network[16:20]))
	case len(network) >= 40:
		h.src, h.dst = netip.AddrFrom16([16]byte(network[8:24])), netip.AddrFrom16([16]byte(network[24:40]))
	default:
		return nil
	}
	return h
}
