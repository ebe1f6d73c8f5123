// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TableName begins the name of the table; the process's number follows.
const TableName = "svcproxy-trace-"

// ownerFlag binds a table to the socket that made it: nobody else may change it, and the kernel removes it with the socket
// (NFT_TABLE_F_OWNER of uapi/linux/netfilter/nf_tables.h; since Linux 5.12).
const ownerFlag = 0x2

// first is ahead of every other chain's priority.
const first = -1 << 31

// Table turns tracing on for single connections. It is for one goroutine.
type Table struct {
	fd   int
	seq  uint32
	name string
}

// hooks that a connection's packets may enter by.
var hooks = []struct {
	name   string
	number uint32
}{{"prerouting", unix.NF_INET_PRE_ROUTING}, {"output", unix.NF_INET_LOCAL_OUT}}

// Open makes the table, without a rule. The caller closes it. The error says what the kernel lacks.
func Open() (*Table, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	t := &Table{fd: fd, name: fmt.Sprint(TableName, os.Getpid())}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("netlink: %w", err)
	}
	const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	messages := []message{{unix.NFT_MSG_NEWTABLE, create, []*nl.RtAttr{text(unix.NFTA_TABLE_NAME, t.name), big32(unix.NFTA_TABLE_FLAGS, ownerFlag)}}}
	for _, h := range hooks {
		hook := nested(unix.NFTA_CHAIN_HOOK, big32(unix.NFTA_HOOK_HOOKNUM, h.number), big32(unix.NFTA_HOOK_PRIORITY, uint32(first&0xffffffff)))
		messages = append(messages, message{unix.NFT_MSG_NEWCHAIN, create, []*nl.RtAttr{
			text(unix.NFTA_CHAIN_TABLE, t.name), text(unix.NFTA_CHAIN_NAME, h.name), hook, text(unix.NFTA_CHAIN_TYPE, "filter"),
		}})
	}
	if err := t.commit(messages...); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("a table of nf_tables with an owner (Linux 5.12 and later): %w", err)
	}
	return t, nil
}

// Name is the table's name, by which its own events can be told.
func (t *Table) Name() string { return t.name }

// Close removes the table: the kernel does so with the socket.
func (t *Table) Close() error { return unix.Close(t.fd) }

// Connection is that of one probe, by its first packet.
type Connection struct {
	Protocol uint8
	From, To netip.AddrPort
}

// Trace has the packets of a connection traced that go from its beginning to its end; those of the other way are not.
func (t *Table) Trace(c Connection) error {
	messages := make([]message, 0, len(hooks))
	for _, h := range hooks {
		messages = append(messages, message{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND, []*nl.RtAttr{
			text(unix.NFTA_RULE_TABLE, t.name), text(unix.NFTA_RULE_CHAIN, h.name), c.rule(),
		}})
	}
	return t.commit(messages...)
}

// Stop ends all tracing.
func (t *Table) Stop() error {
	return t.commit(message{unix.NFT_MSG_DELRULE, 0, []*nl.RtAttr{text(unix.NFTA_RULE_TABLE, t.name)}})
}

// rule makes the expressions of "ip saddr A ip daddr B tcp sport C tcp dport D meta nftrace set 1".
func (c *Connection) rule() *nl.RtAttr {
	family, src, dst := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16) //nolint:mnd // offsets in the header (RFC 791)
	if c.To.Addr().Is6() {
		family, src, dst = unix.NFPROTO_IPV6, 8, 24 //nolint:mnd // RFC 8200
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	return nested(unix.NFTA_RULE_EXPRESSIONS,
		load("meta", big32(unix.NFTA_META_DREG, unix.NFT_REG_1), big32(unix.NFTA_META_KEY, unix.NFT_META_NFPROTO)), equal([]byte{family}),
		load("meta", big32(unix.NFTA_META_DREG, unix.NFT_REG_1), big32(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO)), equal([]byte{c.Protocol}),
		payload(unix.NFT_PAYLOAD_NETWORK_HEADER, src, c.From.Addr().AsSlice()), equal(c.From.Addr().AsSlice()),
		payload(unix.NFT_PAYLOAD_NETWORK_HEADER, dst, c.To.Addr().AsSlice()), equal(c.To.Addr().AsSlice()),
		payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, port(c.From.Port())), equal(port(c.From.Port())),
		payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, port(c.To.Port())), equal(port(c.To.Port())), //nolint:mnd // RFC 768, 9260, 9293
		load("immediate", big32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1), nested(unix.NFTA_IMMEDIATE_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, []byte{1}))),
		load("meta", big32(unix.NFTA_META_SREG, unix.NFT_REG_1), big32(unix.NFTA_META_KEY, unix.NFT_META_NFTRACE)),
	)
}

// load makes an expression.
func load(name string, data ...*nl.RtAttr) *nl.RtAttr {
	return nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nested(unix.NFTA_EXPR_DATA, data...))
}

func payload(base, offset uint32, like []byte) *nl.RtAttr {
	return load("payload", big32(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1), big32(unix.NFTA_PAYLOAD_BASE, base),
		big32(unix.NFTA_PAYLOAD_OFFSET, offset), big32(unix.NFTA_PAYLOAD_LEN, uint32(len(like)))) //nolint:gosec // at most 16
}

func equal(value []byte) *nl.RtAttr {
	return load("cmp", big32(unix.NFTA_CMP_SREG, unix.NFT_REG_1), big32(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ), nested(unix.NFTA_CMP_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, value)))
}

func text(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(s)) }

func big32(kind int, v uint32) *nl.RtAttr {
	return nl.NewRtAttr(kind, binary.BigEndian.AppendUint32(nil, v))
}

func nested(kind int, children ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	for _, c := range children {
		a.AddChild(c)
	}
	return a
}

// message is one change of nf_tables.
type message struct {
	kind  int
	flags int
	attrs []*nl.RtAttr
}

// The frame of a transaction (uapi/linux/netfilter/nfnetlink.h).
const (
	batchBegin = 0x10
	batchEnd   = 0x11
)

// commit makes changes, all or none (net/netfilter/nfnetlink.c, nfnetlink_rcv_batch).
func (t *Table) commit(messages ...message) error {
	var batch []byte
	frame := func(kind, flags int, attrs ...*nl.RtAttr) {
		t.seq++
		family, subsystem := byte(unix.NFPROTO_INET), uint16(0)
		if kind == batchBegin || kind == batchEnd {
			family, subsystem = unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES
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
		batch = binary.NativeEndian.AppendUint32(batch, t.seq)
		batch = binary.NativeEndian.AppendUint32(batch, 0)
		batch = append(batch, body...)
	}
	frame(batchBegin, 0)
	for _, m := range messages {
		frame(m.kind, m.flags|unix.NLM_F_ACK, m.attrs...)
	}
	frame(batchEnd, 0)
	if err := unix.Sendto(t.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	return t.acknowledged(len(messages))
}

// patience is for the kernel's answers to a transaction.
const patience = 10_000 // milliseconds

// acknowledged reads as many answers; the first error is the transaction's.
func (t *Table) acknowledged(left int) error {
	buf := make([]byte, 1<<16) //nolint:mnd // more than an answer has
	for left > 0 {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}}, patience) //nolint:gosec // a file descriptor
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if ready == 0 {
			return errors.New("the kernel does not answer")
		}
		n, _, err := unix.Recvfrom(t.fd, buf, 0)
		if err != nil {
			return err
		}
		for b := buf[:n]; len(b) >= unix.SizeofNlMsghdr+4; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr+4 || size > len(b) {
				return errShort
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
