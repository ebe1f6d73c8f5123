// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfnl"
)

// group is where nfnetlink_log sends what has no group of its own, as traces have none (default_loginfo in net/netfilter/nfnetlink_log.c).
const group = 0

// shown is how much of a packet comes with a message: an IPv6 header, and ports behind it.
const shown = 64

// Of a request to nfnetlink_log (uapi/linux/netfilter/nfnetlink_log.h).
const (
	messageConfig  = unix.NFNL_SUBSYS_ULOG<<8 | 1 // NFULNL_MSG_CONFIG
	messagePacket  = unix.NFNL_SUBSYS_ULOG << 8   // NFULNL_MSG_PACKET
	configCommand  = 1                            // NFULA_CFG_CMD
	configMode     = 2                            // NFULA_CFG_MODE
	configBatch    = 5                            // NFULA_CFG_QTHRESH
	commandBind    = 1                            // NFULNL_CFG_CMD_BIND
	copyPacket     = 2                            // NFULNL_COPY_PACKET
	packetMark     = 2                            // NFULA_MARK
	packetIn       = 4                            // NFULA_IFINDEX_INDEV
	packetOut      = 5                            // NFULA_IFINDEX_OUTDEV
	packetPayload  = 9                            // NFULA_PAYLOAD
	packetPrefix   = 10                           // NFULA_PREFIX
	tracePrefix    = "TRACE: "                    // trace_packet in net/ipv4/netfilter/ip_tables.c
	policyPosition = "policy"
)

// listenToLog has the messages of nfnetlink_log come to the Listener as well, each at once, so that they stand among those of nf_tables in the
// order in which the packet met the rules. The error is EPERM where another program of the network namespace has them
// (nfulnl_recv_config).
func (l *Listener) listenToLog() error {
	mode := append(binary.BigEndian.AppendUint32(nil, shown), copyPacket, 0)
	return errors.Join(
		l.configure(nl.NewRtAttr(configCommand, []byte{commandBind})),
		l.configure(nl.NewRtAttr(configMode, mode), nfnl.Uint32(configBatch, 1)),
	)
}

// configure sends one request, and waits for its answer.
func (l *Listener) configure(attrs ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(messageConfig, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0, ResId: group})
	for _, a := range attrs {
		req.AddData(a)
	}
	if err := unix.Sendto(l.fd, req.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		n, _, err := unix.Recvfrom(l.fd, l.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b := l.buf[:n]
		if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR || binary.NativeEndian.Uint32(b[8:]) != req.Seq {
			continue // a message about a packet
		}
		if no := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); no != 0 { //nolint:gosec // an error number, negative
			return unix.Errno(-no) //nolint:gosec // as above
		}
		return nil
	}
}

// logged reads one message of nfnetlink_log (__build_packet_message); ok is false where it is not of a trace.
func logged(b []byte) (e Event, ok bool, err error) {
	if len(b) < nl.SizeofNfgenmsg {
		return e, false, errShort
	}
	attrs, err := nfnl.Attributes(b[nl.SizeofNfgenmsg:])
	if err != nil {
		return e, false, fmt.Errorf("a message of nfnetlink_log: %w", err)
	}
	e.Family, e.Legacy = families[b[0]], true
	for _, a := range attrs {
		switch v := a.Value; a.Attr.Type {
		case packetPrefix:
			ok = e.position(unix.ByteSliceToString(v))
		case packetMark:
			e.Mark, err = number(v)
		case packetIn:
			e.In, err = number(v)
		case packetOut:
			e.Out, err = number(v)
		case packetPayload:
			if header := headerSize(v); header <= len(v) {
				e.headers(v[:header], v[header:])
			}
		}
		if err != nil {
			return e, false, err
		}
	}
	return e, ok, nil
}

// headerSize is that of an IP packet's header; IPv6's extensions are none.
func headerSize(packet []byte) int {
	if len(packet) > 0 && packet[0]>>4 == 4 { //nolint:mnd // RFC 791
		return int(packet[0]&0xf) * 4 //nolint:mnd // as above
	}
	return 40 //nolint:mnd // RFC 8200
}

// position reads "TRACE: TABLE:CHAIN:rule:NUMBER ", where a chain's name may hold anything. In place of "rule" stands "return" or "policy" for the end
// of a chain, and for a rule that is nothing but a verdict: ip_tables does not tell the two apart (get_chainname_rulenum), their number does.
func (e *Event) position(prefix string) bool {
	at, isTrace := strings.CutPrefix(strings.TrimSpace(prefix), tracePrefix)
	parts := strings.Split(at, ":")
	if !isTrace || len(parts) < 4 { //nolint:mnd // as above
		return false
	}
	n := len(parts)
	e.Table, e.Chain = parts[0], strings.Join(parts[1:n-2], ":")
	if parts[n-2] == policyPosition {
		e.Kind = unix.NFT_TRACETYPE_POLICY
	}
	var err error
	e.Rule, err = strconv.Atoi(parts[n-1])
	return err == nil && e.Rule > 0
}
