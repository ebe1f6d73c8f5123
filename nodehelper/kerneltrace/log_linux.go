// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// logGroup is the group of nfnetlink_log for messages that name none, as traces do (default_loginfo in
// net/netfilter/nfnetlink_log.c).
const logGroup = 0

// loggedBytes is how much of a packet comes with a message: an IPv6 header, and the ports behind it.
const loggedBytes = 64

// Of uapi/linux/netfilter/nfnetlink_log.h.
const (
	logMessagePacket = 0 // NFULNL_MSG_PACKET
	logMessageConfig = 1 // NFULNL_MSG_CONFIG

	logConfigCommand   = 1 // NFULA_CFG_CMD
	logConfigMode      = 2 // NFULA_CFG_MODE
	logConfigThreshold = 5 // NFULA_CFG_QTHRESH
	logCommandBind     = 1 // NFULNL_CFG_CMD_BIND
	logCopyPacket      = 2 // NFULNL_COPY_PACKET

	logMark    = 2  // NFULA_MARK
	logIn      = 4  // NFULA_IFINDEX_INDEV
	logOut     = 5  // NFULA_IFINDEX_OUTDEV
	logPayload = 9  // NFULA_PAYLOAD
	logPrefix  = 10 // NFULA_PREFIX
)

// listenToLog makes the Listener receive the messages of nfnetlink_log, too. The kernel sends each at once, so that
// they are received among those of nf_tables in the order in which the packet traversed the rules. The error is EPERM
// if another program of the network namespace receives them (nfulnl_recv_config).
func (l *Listener) listenToLog() error {
	configure := func(attributes ...netlink.Attribute) error {
		_, err := l.conn.Do(netlink.Request{
			Subsystem:  unix.NFNL_SUBSYS_ULOG,
			Type:       logMessageConfig,
			Resource:   logGroup,
			Attributes: attributes,
		})
		return err
	}
	mode := append(binary.BigEndian.AppendUint32(nil, loggedBytes), logCopyPacket, 0)
	return errors.Join(
		configure(netlink.Bytes(logConfigCommand, []byte{logCommandBind})),
		configure(netlink.Bytes(logConfigMode, mode), netlink.Uint32(logConfigThreshold, 1)),
	)
}

// logged reads a message of nfnetlink_log (__build_packet_message); ok is false if it is not about a trace.
func logged(family uint8, attributes []netlink.Attribute) (e Event, ok bool, err error) {
	e.Family, e.Legacy = families[family], true
	for _, a := range attributes {
		switch a.Type {
		case logPrefix:
			ok = e.parsePrefix(unix.ByteSliceToString(a.Value))
		case logMark:
			e.Mark, err = number(a.Value)
		case logIn:
			e.In, err = number(a.Value)
		case logOut:
			e.Out, err = number(a.Value)
		case logPayload:
			if size := headerSize(a.Value); size <= len(a.Value) {
				e.parseHeaders(a.Value[:size], a.Value[size:])
			}
		}
		if err != nil {
			return e, false, err
		}
	}
	return e, ok, nil
}

// headerSize is the size of an IP packet's header in bytes, without extension headers of IPv6.
func headerSize(packet []byte) int {
	if len(packet) > 0 && packet[0]>>4 == 4 { // RFC 791
		return int(packet[0]&0xf) * 4 // as above
	}
	return 40 // RFC 8200
}

// parsePrefix reads "TRACE: TABLE:CHAIN:rule:NUMBER " (trace_packet in net/ipv4/netfilter/ip_tables.c); a chain's name
// may contain anything. Instead of "rule" the kernel writes "return" or "policy" for the end of a chain, and for a rule
// that is nothing but a verdict: ip_tables does not tell the two apart (get_chainname_rulenum), only their number does.
// The result is false if the message is not about a trace.
func (e *Event) parsePrefix(prefix string) bool {
	position, isTrace := strings.CutPrefix(strings.TrimSpace(prefix), "TRACE: ")
	parts := strings.Split(position, ":")
	if !isTrace || len(parts) < 4 { // as above
		return false
	}
	n := len(parts)
	e.Table, e.Chain = parts[0], strings.Join(parts[1:n-2], ":")
	if parts[n-2] == "policy" {
		e.Kind = unix.NFT_TRACETYPE_POLICY
	}
	var err error
	e.Rule, err = strconv.Atoi(parts[n-1])
	return err == nil && e.Rule > 0
}
