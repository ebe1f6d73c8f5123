// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfnl"
)

// Event is one message of the kernel's: a rule that applied, or the end of a chain.
type Event struct {
	ID     uint32 // of the packet, at one hook
	Family string // of the table: "ip", "ip6", "inet"
	Table  string
	Chain  string
	Handle uint64 // of the rule; 0 for the end of a chain
	// Legacy: of iptables-legacy, which tells the number of the rule, as save files count, and no verdict. Rule is that number; at the end of a chain it
	// is one more than there are rules.
	Legacy  bool
	Rule    int
	Kind    uint32 // NFT_TRACETYPE_…
	Verdict string // accept, drop, continue, jump, goto, return, queue, …; a policy's
	To      string // the chain of a jump or goto
	Mark    uint32
	In, Out uint32 // numbers of interfaces
	// Source and Destination are the packet's, zero where the message has no headers: the first of each base chain has them.
	Source, Destination netip.AddrPort
}

// Policy tells whether the base chain's policy has decided.
func (e *Event) Policy() bool { return e.Kind == unix.NFT_TRACETYPE_POLICY }

// verdicts are those of nf_tables besides netfilter's own (include/uapi/linux/netfilter/nf_tables.h, enum nft_verdicts).
var verdicts = map[int32]string{
	0: "drop", 1: "accept", 2: "stolen", 3: "queue", 4: "repeat", -1: "continue", -2: "break", -3: "jump", -4: "goto", -5: "return",
}

// Listener receives the events of this thread's network namespace.
type Listener struct {
	fd  int
	buf []byte
}

// Room is for the events of some packets, however many rules they meet, in bytes.
const Room = 4 << 20

// Listen begins to receive, with room for so many bytes. The caller closes it.
func Listen(room int) (*Listener, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTRACE),
	)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("nf_tables' trace: %w", err)
	}
	return &Listener{fd, make([]byte, 1<<16)}, nil
}

// Close ends the receiving.
func (l *Listener) Close() error { return unix.Close(l.fd) }

// Collect returns the events that come until none has come for so long. The error is one of the socket: ENOBUFS where events were lost.
func (l *Listener) Collect(quiet time.Duration) ([]Event, error) {
	return l.until(func(*Event) bool { return false }, quiet)
}

// ErrSilent is the end of patience.
var ErrSilent = errors.New("the kernel reported nothing more")

// Read returns the events up to the first for which last is true, with those that came together with it. The error is [ErrSilent] where none
// has come for so long.
func (l *Listener) Read(last func(*Event) bool, patience time.Duration) ([]Event, error) {
	out, err := l.until(last, patience)
	if err == nil && !slices.ContainsFunc(out, func(e Event) bool { return last(&e) }) {
		err = ErrSilent
	}
	return out, err
}

// until receives until an event is the last, or none has come for so long.
func (l *Listener) until(last func(*Event) bool, quiet time.Duration) ([]Event, error) {
	var out []Event
	for {
		n, _, err := unix.Recvfrom(l.fd, l.buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, int(quiet.Milliseconds())) //nolint:gosec // a file descriptor
			if err != nil && !errors.Is(err, unix.EINTR) {
				return out, err
			}
			if ready == 0 {
				return out, nil
			}
			continue
		case err != nil:
			return out, err
		}
		events, err := parse(l.buf[:n])
		if err != nil {
			return out, err
		}
		out = append(out, events...)
		if slices.ContainsFunc(events, func(e Event) bool { return last(&e) }) {
			return out, nil
		}
	}
}

// parse reads the messages of a datagram.
func parse(b []byte) (out []Event, err error) {
	for at := 0; at+unix.SizeofNlMsghdr <= len(b); {
		size := int(binary.NativeEndian.Uint32(b[at:]))
		if size < unix.SizeofNlMsghdr || at+size > len(b) {
			return out, fmt.Errorf("a netlink message of %d bytes in %d", size, len(b)-at)
		}
		var e Event
		ok := false
		switch body := b[at+unix.SizeofNlMsghdr : at+size]; binary.NativeEndian.Uint16(b[at+4:]) {
		case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_TRACE:
			ok = true
			e, err = event(body)
		case messagePacket:
			e, ok, err = logged(body)
		}
		if err != nil {
			return out, err
		}
		if ok {
			out = append(out, e)
		}
		at += (size + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
	}
	return out, nil
}

var families = map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge"}

var errShort = errors.New("a trace message that breaks off")

// event reads one message (nft_trace_notify).
func event(b []byte) (e Event, err error) {
	if len(b) < nl.SizeofNfgenmsg {
		return e, errShort
	}
	e.Family = families[b[0]]
	attrs, err := nfnl.Attributes(b[nl.SizeofNfgenmsg:])
	if err != nil {
		return e, fmt.Errorf("a trace message: %w", err)
	}
	var network, transport []byte
	for _, a := range attrs {
		v := a.Value
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.NFTA_TRACE_ID:
			e.ID, err = number(v)
		case unix.NFTA_TRACE_TABLE:
			e.Table = unix.ByteSliceToString(v)
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = unix.ByteSliceToString(v)
		case unix.NFTA_TRACE_RULE_HANDLE:
			if len(v) != 8 { //nolint:mnd // bytes of a handle
				return e, errShort
			}
			e.Handle = binary.BigEndian.Uint64(v)
		case unix.NFTA_TRACE_TYPE:
			e.Kind, err = number(v)
		case unix.NFTA_TRACE_MARK:
			e.Mark, err = number(v)
		case unix.NFTA_TRACE_IIF:
			e.In, err = number(v)
		case unix.NFTA_TRACE_OIF:
			e.Out, err = number(v)
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = v
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = v
		case unix.NFTA_TRACE_VERDICT:
			err = e.verdict(v)
		case unix.NFTA_TRACE_POLICY:
			var code uint32
			code, err = number(v)
			e.Verdict = verdicts[int32(code)] //nolint:gosec // as the kernel has it
		}
		if err != nil {
			return e, err
		}
	}
	e.headers(network, transport)
	return e, nil
}

// headers reads an IP header (RFC 791, RFC 8200) and the ports behind it, if they are there.
func (e *Event) headers(network, transport []byte) {
	if len(network) < 20 || len(transport) < 4 {
		return
	}
	src, dst := binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
	switch {
	case network[0]>>4 == 4:
		e.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(network[12:16])), src)
		e.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(network[16:20])), dst)
	case len(network) >= 40:
		e.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(network[8:24])), src)
		e.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(network[24:40])), dst)
	}
}

func number(v []byte) (uint32, error) {
	if len(v) != 4 { //nolint:mnd // bytes of a u32
		return 0, errShort
	}
	return binary.BigEndian.Uint32(v), nil
}

func (e *Event) verdict(b []byte) error {
	attrs, err := nfnl.Attributes(b)
	if err != nil {
		return fmt.Errorf("a trace message's verdict: %w", err)
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.NFTA_VERDICT_CODE:
			code, err := number(a.Value)
			if err != nil {
				return err
			}
			if e.Verdict = verdicts[int32(code)]; e.Verdict == "" { //nolint:gosec // as the kernel has it
				e.Verdict = fmt.Sprintf("verdict %d", int32(code)) //nolint:gosec // as above
			}
		case unix.NFTA_VERDICT_CHAIN:
			e.To = unix.ByteSliceToString(a.Value)
		}
	}
	return nil
}
