// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/nfnl"
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
	conn *nfnl.Conn
	name string
}

// hooks that a connection's packets may enter by.
var hooks = []struct {
	name   string
	number uint32
}{{"prerouting", unix.NF_INET_PRE_ROUTING}, {"output", unix.NF_INET_LOCAL_OUT}}

// Open makes the table, without a rule. The caller closes it. The error says what the kernel lacks.
func Open() (*Table, error) {
	conn, err := nfnl.Open()
	if err != nil {
		return nil, err
	}
	t := &Table{conn: conn, name: fmt.Sprint(TableName, os.Getpid())}
	const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	messages := []nfnl.Message{change(unix.NFT_MSG_NEWTABLE, create, nfnl.Text(unix.NFTA_TABLE_NAME, t.name), nfnl.Uint32(unix.NFTA_TABLE_FLAGS, ownerFlag))}
	for _, h := range hooks {
		hook := nfnl.Nested(unix.NFTA_CHAIN_HOOK, nfnl.Uint32(unix.NFTA_HOOK_HOOKNUM, h.number), nfnl.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(first&0xffffffff)))
		messages = append(messages, change(unix.NFT_MSG_NEWCHAIN, create,
			nfnl.Text(unix.NFTA_CHAIN_TABLE, t.name), nfnl.Text(unix.NFTA_CHAIN_NAME, h.name), hook, nfnl.Text(unix.NFTA_CHAIN_TYPE, "filter"),
		))
	}
	if err := t.conn.Commit(messages...); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("a table of nf_tables with an owner (Linux 5.12 and later): %w", err)
	}
	return t, nil
}

// change is a change of the table's family.
func change(kind, flags int, attrs ...*nl.RtAttr) nfnl.Message {
	return nfnl.Message{Family: unix.NFPROTO_INET, Kind: kind, Flags: flags, Attrs: attrs}
}

// Name is the table's name, by which its own events can be told.
func (t *Table) Name() string { return t.name }

// Close removes the table: the kernel does so with the socket.
func (t *Table) Close() error { return t.conn.Close() }

// Connection is that of one probe, by its first packet.
type Connection struct {
	Protocol uint8
	From, To netip.AddrPort
}

// Trace has the packets of a connection traced that go from its beginning to its end; those of the other way are not.
func (t *Table) Trace(c Connection) error {
	messages := make([]nfnl.Message, 0, len(hooks))
	for _, h := range hooks {
		messages = append(messages, change(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND,
			nfnl.Text(unix.NFTA_RULE_TABLE, t.name), nfnl.Text(unix.NFTA_RULE_CHAIN, h.name), c.rule(),
		))
	}
	return t.conn.Commit(messages...)
}

// Stop ends all tracing.
func (t *Table) Stop() error {
	return t.conn.Commit(change(unix.NFT_MSG_DELRULE, 0, nfnl.Text(unix.NFTA_RULE_TABLE, t.name)))
}

// rule makes the expressions of "ip saddr A ip daddr B tcp sport C tcp dport D meta nftrace set 1".
func (c *Connection) rule() *nl.RtAttr {
	family, src, dst := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16) //nolint:mnd // offsets in the header (RFC 791)
	if c.To.Addr().Is6() {
		family, src, dst = unix.NFPROTO_IPV6, 8, 24 //nolint:mnd // RFC 8200
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	return nfnl.Nested(unix.NFTA_RULE_EXPRESSIONS,
		load("meta", nfnl.Uint32(unix.NFTA_META_DREG, unix.NFT_REG_1), nfnl.Uint32(unix.NFTA_META_KEY, unix.NFT_META_NFPROTO)), equal([]byte{family}),
		load("meta", nfnl.Uint32(unix.NFTA_META_DREG, unix.NFT_REG_1), nfnl.Uint32(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO)), equal([]byte{c.Protocol}),
		payload(unix.NFT_PAYLOAD_NETWORK_HEADER, src, c.From.Addr().AsSlice()), equal(c.From.Addr().AsSlice()),
		payload(unix.NFT_PAYLOAD_NETWORK_HEADER, dst, c.To.Addr().AsSlice()), equal(c.To.Addr().AsSlice()),
		payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, port(c.From.Port())), equal(port(c.From.Port())),
		payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, port(c.To.Port())), equal(port(c.To.Port())), //nolint:mnd // RFC 768, 9260, 9293
		load("immediate", nfnl.Uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1), nfnl.Nested(unix.NFTA_IMMEDIATE_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, []byte{1}))),
		load("meta", nfnl.Uint32(unix.NFTA_META_SREG, unix.NFT_REG_1), nfnl.Uint32(unix.NFTA_META_KEY, unix.NFT_META_NFTRACE)),
	)
}

// load makes an expression.
func load(name string, data ...*nl.RtAttr) *nl.RtAttr {
	return nfnl.Nested(unix.NFTA_LIST_ELEM, nfnl.Text(unix.NFTA_EXPR_NAME, name), nfnl.Nested(unix.NFTA_EXPR_DATA, data...))
}

func payload(base, offset uint32, like []byte) *nl.RtAttr {
	return load("payload", nfnl.Uint32(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1), nfnl.Uint32(unix.NFTA_PAYLOAD_BASE, base),
		nfnl.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset), nfnl.Uint32(unix.NFTA_PAYLOAD_LEN, uint32(len(like)))) //nolint:gosec // at most 16
}

func equal(value []byte) *nl.RtAttr {
	return load("cmp", nfnl.Uint32(unix.NFTA_CMP_SREG, unix.NFT_REG_1), nfnl.Uint32(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ), nfnl.Nested(unix.NFTA_CMP_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, value)))
}
