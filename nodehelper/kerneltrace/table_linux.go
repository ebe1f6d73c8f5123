// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TableName begins the name of the table; the number of the process follows.
const TableName = kubeproxy.TraceTablePrefix

// tableOwner binds a table to the socket that made it: nobody else may change it, and the kernel removes it with the
// socket (NFT_TABLE_F_OWNER of uapi/linux/netfilter/nf_tables.h; since Linux 5.12).
const tableOwner = 0x2

// lowestPriority is that of our chains, which come before all others.
const lowestPriority = math.MinInt32

// Table turns tracing on for single connections. It is for one goroutine.
type Table struct {
	conn *netlink.Conn
	name string
}

// highestPriority is that of our chains that come behind all others.
const highestPriority = math.MaxInt32

// trackedPriority is that of our chains which come when connection tracking has found the packet's entry
// (NF_IP_PRI_CONNTRACK in uapi/linux/netfilter_ipv4.h is -200).
const trackedPriority = -199

// hooks are those that the first packet of a connection enters by; each has a chain of that name.
var hooks = []string{"prerouting", "output"}

// The chains of a hook are called like the hook, with these in front.
const (
	endOf    = "end-"    // behind all others
	answerOf = "answer-" // where answers are told by their entry
)

// chains are those of the table. Those that have no rules report that a traced packet came there.
var chains = []struct {
	name     string
	hook     uint32
	priority int32
}{
	{"prerouting", unix.NF_INET_PRE_ROUTING, lowestPriority},
	{"input", unix.NF_INET_LOCAL_IN, lowestPriority},
	{"forward", unix.NF_INET_FORWARD, lowestPriority},
	{"output", unix.NF_INET_LOCAL_OUT, lowestPriority},
	{"postrouting", unix.NF_INET_POST_ROUTING, lowestPriority},
	{answerOf + "prerouting", unix.NF_INET_PRE_ROUTING, trackedPriority},
	{answerOf + "output", unix.NF_INET_LOCAL_OUT, trackedPriority},
	{endOf + "prerouting", unix.NF_INET_PRE_ROUTING, highestPriority},
	{endOf + "input", unix.NF_INET_LOCAL_IN, highestPriority},
	{endOf + "forward", unix.NF_INET_FORWARD, highestPriority},
	{endOf + "output", unix.NF_INET_LOCAL_OUT, highestPriority},
	{endOf + "postrouting", unix.NF_INET_POST_ROUTING, highestPriority},
}

// Hook returns the hook that a chain of the table is of, and whether it stands behind all others there.
func Hook(chain string) (hook string, end bool) {
	if h, ok := strings.CutPrefix(chain, endOf); ok {
		return h, true
	}
	return strings.TrimPrefix(chain, answerOf), false
}

// Open creates the table, without a rule. The caller closes it. The error says what the kernel lacks.
func Open() (*Table, error) {
	conn, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	t := &Table{conn: conn, name: fmt.Sprint(TableName, os.Getpid())}
	const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	changes := []netlink.Request{change(unix.NFT_MSG_NEWTABLE, create,
		netlink.String(unix.NFTA_TABLE_NAME, t.name), netlink.Uint32(unix.NFTA_TABLE_FLAGS, tableOwner))}
	for _, c := range chains {
		changes = append(changes, change(unix.NFT_MSG_NEWCHAIN, create,
			netlink.String(unix.NFTA_CHAIN_TABLE, t.name),
			netlink.String(unix.NFTA_CHAIN_NAME, c.name),
			netlink.Nested(unix.NFTA_CHAIN_HOOK,
				netlink.Uint32(unix.NFTA_HOOK_HOOKNUM, c.hook),
				netlink.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.priority)), //nolint:gosec // the kernel reads an int
			),
			netlink.String(unix.NFTA_CHAIN_TYPE, "filter"),
		))
	}
	if err := t.conn.Commit(changes...); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("a table of nf_tables with an owner (Linux 5.12 and later): %w", err)
	}
	return t, nil
}

// change is a change of nf_tables in the table's family.
func change(kind uint8, flags uint16, attributes ...netlink.Attribute) netlink.Request {
	return netlink.Request{
		Subsystem:  unix.NFNL_SUBSYS_NFTABLES,
		Type:       kind,
		Flags:      flags,
		Family:     unix.NFPROTO_INET,
		Attributes: attributes,
	}
}

// Name is the table's name, by which its own events can be told from others.
func (t *Table) Name() string { return t.name }

// Close removes the table: the kernel does so with the socket.
func (t *Table) Close() error { return t.conn.Close() }

// Connection is the connection of one probe, given by its first packet.
type Connection struct {
	Protocol uint8 // unix.IPPROTO_…
	From, To netip.AddrPort
}

// Trace makes the kernel trace the packets of a connection from its source to its destination, and where it tracks
// connections the replies, from the moment on when they have been told by their entry.
func (t *Table) Trace(c Connection) error {
	changes := make([]netlink.Request, 0, 2*len(hooks)) // a chain each for requests and replies
	add := func(chain string, expressions netlink.Attribute) {
		changes = append(changes, change(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND,
			netlink.String(unix.NFTA_RULE_TABLE, t.name), netlink.String(unix.NFTA_RULE_CHAIN, chain), expressions,
		))
	}
	// A rule that asks connection tracking turns it on for the network namespace: that is left to others.
	_, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_count")
	for _, h := range hooks {
		add(h, c.expressions())
		if err == nil {
			add(answerOf+h, c.answers())
		}
	}
	return t.conn.Commit(changes...)
}

// Stop ends the tracing of all connections.
func (t *Table) Stop() error {
	return t.conn.Commit(change(unix.NFT_MSG_DELRULE, 0, netlink.String(unix.NFTA_RULE_TABLE, t.name)))
}

// expressions are those of a rule "ip saddr A ip daddr B tcp sport C tcp dport D meta nftrace set 1".
func (c *Connection) expressions() netlink.Attribute {
	family, src, dst := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16) // offsets in the header (RFC 791)
	if c.To.Addr().Is6() {
		family, src, dst = unix.NFPROTO_IPV6, 8, 24 // RFC 8200
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	return netlink.Nested(unix.NFTA_RULE_EXPRESSIONS,
		loadMeta(unix.NFT_META_NFPROTO), equal([]byte{family}),
		loadMeta(unix.NFT_META_L4PROTO), equal([]byte{c.Protocol}),
		loadPayload(unix.NFT_PAYLOAD_NETWORK_HEADER, src, c.From.Addr().BitLen()), equal(c.From.Addr().AsSlice()),
		loadPayload(unix.NFT_PAYLOAD_NETWORK_HEADER, dst, c.To.Addr().BitLen()), equal(c.To.Addr().AsSlice()),
		// The ports, of 16 bits, are at the same offsets in TCP, UDP and SCTP (RFC 9293, 768, 9260).
		loadPayload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 16), equal(port(c.From.Port())),
		loadPayload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 16), equal(port(c.To.Port())),
		one(), setTrace(),
	)
}

// answers are the expressions of a rule "ct direction reply ct original ip saddr A ip daddr B ct original proto-src C
// proto-dst D meta nftrace set 1", for one protocol.
func (c *Connection) answers() netlink.Attribute {
	family, src, dst := byte(unix.NFPROTO_IPV4), uint32(unix.NFT_CT_SRC_IP), uint32(unix.NFT_CT_DST_IP)
	if c.To.Addr().Is6() {
		family, src, dst = unix.NFPROTO_IPV6, unix.NFT_CT_SRC_IP6, unix.NFT_CT_DST_IP6
	}
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	return netlink.Nested(unix.NFTA_RULE_EXPRESSIONS,
		loadMeta(unix.NFT_META_NFPROTO), equal([]byte{family}),
		loadMeta(unix.NFT_META_L4PROTO), equal([]byte{c.Protocol}),
		expression("ct",
			netlink.Uint32(unix.NFTA_CT_DREG, unix.NFT_REG_1), netlink.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_DIRECTION)),
		equal([]byte{directionReply}),
		loadOriginal(src), equal(c.From.Addr().AsSlice()),
		loadOriginal(dst), equal(c.To.Addr().AsSlice()),
		loadOriginal(unix.NFT_CT_PROTO_SRC), equal(port(c.From.Port())),
		loadOriginal(unix.NFT_CT_PROTO_DST), equal(port(c.To.Port())),
		one(), setTrace(),
	)
}

// Of enum ip_conntrack_dir in uapi/linux/netfilter/nf_conntrack_tuple_common.h.
const (
	directionOriginal = 0
	directionReply    = 1
)

// loadOriginal loads a part of the connection's first packet into the first register.
func loadOriginal(key uint32) netlink.Attribute {
	return expression("ct",
		netlink.Uint32(unix.NFTA_CT_DREG, unix.NFT_REG_1), netlink.Uint32(unix.NFTA_CT_KEY, key),
		netlink.Bytes(unix.NFTA_CT_DIRECTION, []byte{directionOriginal}))
}

// one loads 1 into the first register.
func one() netlink.Attribute {
	return expression("immediate",
		netlink.Uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1), value(unix.NFTA_IMMEDIATE_DATA, []byte{1}))
}

// setTrace turns tracing of the packet on, if the first register is not 0.
func setTrace() netlink.Attribute {
	return expression("meta",
		netlink.Uint32(unix.NFTA_META_SREG, unix.NFT_REG_1), netlink.Uint32(unix.NFTA_META_KEY, unix.NFT_META_NFTRACE))
}

// expression is an expression of a rule, by its name in the kernel.
func expression(name string, data ...netlink.Attribute) netlink.Attribute {
	return netlink.Nested(unix.NFTA_LIST_ELEM,
		netlink.String(unix.NFTA_EXPR_NAME, name), netlink.Nested(unix.NFTA_EXPR_DATA, data...))
}

// loadMeta loads a property of the packet into the first register.
func loadMeta(key uint32) netlink.Attribute {
	return expression("meta",
		netlink.Uint32(unix.NFTA_META_DREG, unix.NFT_REG_1), netlink.Uint32(unix.NFTA_META_KEY, key))
}

// loadPayload loads bits of a header into the first register. The offset is in bytes.
func loadPayload(header, offset uint32, bits int) netlink.Attribute {
	return load(header, offset, bits, unix.NFT_REG_1)
}

// load loads bits of a header into the registers that begin with this one. The offset is in bytes.
func load(header, offset uint32, bits int, to uint32) netlink.Attribute {
	return expression("payload",
		netlink.Uint32(unix.NFTA_PAYLOAD_DREG, to),
		netlink.Uint32(unix.NFTA_PAYLOAD_BASE, header),
		netlink.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset),
		netlink.Uint32(unix.NFTA_PAYLOAD_LEN, uint32(bits/8))) //nolint:gosec // at most 128 bits
}

// equal compares the first register.
func equal(with []byte) netlink.Attribute { return compared(unix.NFT_CMP_EQ, with) }

// different is the opposite of equal.
func different(from []byte) netlink.Attribute { return compared(unix.NFT_CMP_NEQ, from) }

func compared(how uint32, with []byte) netlink.Attribute {
	return expression("cmp",
		netlink.Uint32(unix.NFTA_CMP_SREG, unix.NFT_REG_1),
		netlink.Uint32(unix.NFTA_CMP_OP, how),
		value(unix.NFTA_CMP_DATA, with))
}

func value(kind uint16, data []byte) netlink.Attribute {
	return netlink.Nested(kind, netlink.Bytes(unix.NFTA_DATA_VALUE, data))
}
