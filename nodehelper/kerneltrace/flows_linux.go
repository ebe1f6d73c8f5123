// SPDX-License-Identifier: Apache-2.0

package kerneltrace

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/netlink"
)

// End is an address and port, and the protocol.
type End struct {
	Protocol uint8 // unix.IPPROTO_…
	At       netip.AddrPort
}

// Flows are connections of which the client's port is not known before.
type Flows struct {
	Servers []End
	Clients []netip.Addr
	// Tunnels are ports of UDP at which the network namespace takes VXLAN packets: those that carry packets of the
	// connections are traced, too. A trace ends where a packet goes into a tunnel or comes out of one (skb_scrub_packet
	// in net/core/skbuff.c).
	Tunnels []uint16
}

// TraceFlows makes the kernel trace the packets of connections between servers and clients, in both directions, from
// the first hook on that they come to here: of TCP those that begin a connection (SYN), of other protocols all. It
// needs no connection tracking.
func (t *Table) TraceFlows(f Flows) error {
	var changes []netlink.Request
	for i, v := range versions {
		servers, clients := v.elements(&f)
		if len(servers) == 0 || len(clients) == 0 {
			continue
		}
		id := uint32(2*i + 1)
		changes = append(changes, t.set(v.name+"-servers", id, servers)...)
		changes = append(changes, t.set(v.name+"-clients", id+1, clients)...)
		for _, answer := range []bool{false, true} {
			for _, tcp := range []bool{false, true} {
				if !f.has(&v, tcp) {
					continue
				}
				changes = append(changes, t.rules(v.plain(tcp, answer))...)
				for _, port := range f.Tunnels {
					changes = append(changes, t.rules(v.inVXLAN(port, tcp, answer))...)
				}
			}
		}
	}
	return t.conn.Commit(changes...)
}

// has tells whether there are servers of a version that speak TCP, or another protocol.
func (f *Flows) has(v *version, tcp bool) bool {
	for _, s := range f.Servers {
		if v.is(s.At.Addr()) && (s.Protocol == unix.IPPROTO_TCP) == tcp {
			return true
		}
	}
	return false
}

// version is one of IP, with where its header has what (RFC 791, RFC 8200), in bytes.
type version struct {
	name                            string
	family                          byte
	etherType                       uint16
	first                           byte // of the header without options; 0 where the version needs none
	size, protocol, source, destine uint32
	bits                            int // of an address
}

var versions = []version{
	{"ip", unix.NFPROTO_IPV4, unix.ETH_P_IP, 0x45, 20, 9, 12, 16, 32},
	{"ip6", unix.NFPROTO_IPV6, unix.ETH_P_IPV6, 0, 40, 6, 8, 24, 128},
}

func (v *version) is(a netip.Addr) bool { return a.BitLen() == v.bits }

// elements are those of the sets of servers and clients.
func (v *version) elements(f *Flows) (servers, clients [][]byte) {
	for _, s := range f.Servers {
		if v.is(s.At.Addr()) {
			key := append([]byte{s.Protocol, 0, 0, 0}, s.At.Addr().AsSlice()...)
			servers = append(servers, append(binary.BigEndian.AppendUint16(key, s.At.Port()), 0, 0))
		}
	}
	for _, c := range f.Clients {
		if v.is(c) {
			clients = append(clients, c.AsSlice())
		}
	}
	return servers, clients
}

// anyKey is the type of a set's keys where nobody has to show them.
const anyKey = 0

// set makes a set of equally long keys. id names it within the transaction.
func (t *Table) set(name string, id uint32, keys [][]byte) []netlink.Request {
	elements := make([]netlink.Attribute, len(keys))
	for i, k := range keys {
		elements[i] = netlink.Nested(unix.NFTA_LIST_ELEM, value(unix.NFTA_SET_ELEM_KEY, k))
	}
	return []netlink.Request{
		change(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE,
			netlink.String(unix.NFTA_SET_TABLE, t.name), netlink.String(unix.NFTA_SET_NAME, name),
			netlink.Uint32(unix.NFTA_SET_ID, id), netlink.Uint32(unix.NFTA_SET_KEY_TYPE, anyKey),
			netlink.Uint32(unix.NFTA_SET_KEY_LEN, uint32(len(keys[0])))), //nolint:gosec // 24 bytes at most
		change(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE,
			netlink.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.name), netlink.String(unix.NFTA_SET_ELEM_LIST_SET, name),
			netlink.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, elements...)),
	}
}

// rules adds a rule to the chains of the hooks that packets enter by.
func (t *Table) rules(expressions []netlink.Attribute) (out []netlink.Request) {
	for _, h := range hooks {
		out = append(out, change(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND,
			netlink.String(unix.NFTA_RULE_TABLE, t.name), netlink.String(unix.NFTA_RULE_CHAIN, h),
			netlink.Nested(unix.NFTA_RULE_EXPRESSIONS, expressions...)))
	}
	return out
}

// plain are the expressions of a rule "meta l4proto . ip daddr . th dport @ip-servers ip saddr @ip-clients meta nftrace
// set 1", and of answers with source and destination exchanged.
func (v *version) plain(tcp, answer bool) []netlink.Attribute {
	at := header{unix.NFT_PAYLOAD_NETWORK_HEADER, 0, 0}
	return append([]netlink.Attribute{loadMeta(unix.NFT_META_NFPROTO), equal([]byte{v.family})},
		v.flow(at, tcp, answer, loadMeta(unix.NFT_META_L4PROTO), protocolKey())...)
}

// Of a VXLAN packet, behind the header of IP (RFC 7348), in bytes.
const (
	vxlanPort      = 2  // the destination of UDP
	vxlanEtherType = 28 // of the frame inside
	vxlanInner     = 30 // the header of IP inside
)

// inVXLAN are the same for packets in those of VXLAN, whose own addresses may be any.
func (v *version) inVXLAN(port uint16, tcp, answer bool) []netlink.Attribute {
	at := header{unix.NFT_PAYLOAD_TRANSPORT_HEADER, vxlanInner, vxlanInner + v.size}
	number := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	protocol := func(to uint32) netlink.Attribute { return load(at.base, at.network+v.protocol, 8, to) } // one byte
	out := []netlink.Attribute{
		loadMeta(unix.NFT_META_L4PROTO), equal([]byte{unix.IPPROTO_UDP}),
		loadPayload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, vxlanPort, 16), equal(number(port)),
		loadPayload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, vxlanEtherType, 16), equal(number(v.etherType)),
	}
	if v.first != 0 {
		out = append(out, loadPayload(at.base, at.network, 8), equal([]byte{v.first}))
	}
	return append(out, v.flow(at, tcp, answer, protocol(unix.NFT_REG_1), protocol(unix.NFT_REG32_00))...)
}

// header is where a packet has its headers: of IP, and of the protocol in it where the base is not enough.
type header struct{ base, network, transport uint32 }

// flow are expressions that match packets between servers and clients, and turn tracing on. protocol loads the number
// of the protocol into the first register, and key to where the key of a server begins.
func (v *version) flow(at header, tcp, answer bool, protocol, key netlink.Attribute) []netlink.Attribute {
	server, serverPort, client := v.destine, uint32(2), v.source // a port has two bytes; its source comes first
	if answer {
		server, serverPort, client = v.source, 0, v.destine
	}
	const flags, syn = 13, 0x02 // RFC 9293
	cmp := different
	if tcp {
		cmp = equal
	}
	out := []netlink.Attribute{protocol, cmp([]byte{unix.IPPROTO_TCP})}
	if tcp {
		out = append(out, loadPayload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, at.transport+flags, 8), masked(syn),
			different([]byte{0}))
	}
	port := uint32(unix.NFT_REG32_01 + v.bits/32) //nolint:gosec // behind an address of words with 32 bits
	return append(out, key,
		load(at.base, at.network+server, v.bits, unix.NFT_REG32_01),
		load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, at.transport+serverPort, 16, port),
		lookup(v.name+"-servers", unix.NFT_REG32_00),
		loadPayload(at.base, at.network+client, v.bits), lookup(v.name+"-clients", unix.NFT_REG_1),
		one(), setTrace(),
	)
}

// protocolKey loads the number of the packet's protocol to where the key of a server begins.
func protocolKey() netlink.Attribute {
	return expression("meta",
		netlink.Uint32(unix.NFTA_META_DREG, unix.NFT_REG32_00), netlink.Uint32(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO))
}

// lookup matches if a set has what begins in a register.
func lookup(set string, register uint32) netlink.Attribute {
	return expression("lookup",
		netlink.String(unix.NFTA_LOOKUP_SET, set), netlink.Uint32(unix.NFTA_LOOKUP_SREG, register))
}

// masked leaves these bits of the byte in the first register.
func masked(bits byte) netlink.Attribute {
	return expression("bitwise",
		netlink.Uint32(unix.NFTA_BITWISE_SREG, unix.NFT_REG_1), netlink.Uint32(unix.NFTA_BITWISE_DREG, unix.NFT_REG_1),
		netlink.Uint32(unix.NFTA_BITWISE_LEN, 1),
		value(unix.NFTA_BITWISE_MASK, []byte{bits}), value(unix.NFTA_BITWISE_XOR, []byte{0}))
}
