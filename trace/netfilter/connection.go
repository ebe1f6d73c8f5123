// SPDX-License-Identifier: Apache-2.0

package netfilter

import "net/netip"

// Turn says which packet of its connection a Packet is.
type Turn uint8

// The turns.
const (
	First Turn = iota // the connection's first packet: a SYN, an INIT, a datagram
	Reply             // the answer to it, in the other direction: a SYN,ACK, a datagram
	Later             // a packet behind that, in the direction of the first: an ACK, a datagram
)

// direction is that of the packet in conntrack's terms: 0 for the original direction, 1 for replies.
func (t Turn) direction() uint8 {
	if t == Reply {
		return 1
	}
	return 0
}

// Tracking says what connection tracking has made of a packet that is not the first.
type Tracking uint8

// What connection tracking makes of a packet.
const (
	Unseen  Tracking = iota // it has not seen the packet yet
	Found                   // the packet belongs to Packet.Conn
	NotOurs                 // it does not find the connection, and takes the packet for the first of another one
	Invalid                 // likewise, and such a packet begins no connection
)

// Zone is what a template says of conntrack's zone (struct nf_conntrack_zone). The zero Zone is the default zone.
type Zone struct {
	ID     uint16
	Dirs   uint8 // bit 0: it counts in the original direction, bit 1: for replies
	ByMark bool  // ID is the packet's mark when it comes to connection tracking
	Vague  bool  // ID is not known
}

// The directions of a Zone.
const (
	ZoneOriginal uint8 = 1 << iota
	ZoneReply
	ZoneBoth = ZoneOriginal | ZoneReply
)

// in returns the number of the zone in a direction (nf_ct_zone_id in include/net/netfilter/nf_conntrack_zones.h).
func (z *Zone) in(direction uint8) uint16 {
	if z.Dirs&(1<<direction) == 0 {
		return 0
	}
	return z.ID
}

// Tuple is the two ends of a connection in one direction. An address that is not known is the zero Addr, a port 0.
type Tuple struct{ Src, Dst netip.AddrPort }

// Connection is what connection tracking knows of a connection that its first packet has made.
type Connection struct {
	Original, Reply Tuple
	Mark            uint32
	Zone            Zone
	Untracked       bool // there is none: the first packet was not tracked
	DNAT            bool // the destination is translated by conntrack (the status bit)
	SNAT            bool // a rule has settled the translation of the source
	// Scheduled: IPVS has translated the destination, and translates answers itself; Virtual is its virtual server.
	Scheduled bool
	Virtual   netip.AddrPort
}

// Tracked returns the connection that a packet behind the first belongs to, nil for any other packet.
func (p *Packet) Tracked() *Connection {
	if p.Tracking == Found {
		return p.Conn
	}
	return nil
}

// readdressed tells whether conntrack translates the destination of the first packet's connection.
func (p *Packet) readdressed() bool {
	return p.DNAT && !p.Virtual.IsValid() && (p.Dst != p.OrigDst || p.DstPort != p.OrigDstPort)
}

// connection is what the outcome of a first packet has made.
func connection(s *Start, p *Packet) *Connection {
	at := netip.AddrPortFrom
	return &Connection{
		Original: Tuple{at(s.Packet.Src, s.Packet.SrcPort), at(s.Packet.Dst, s.Packet.DstPort)},
		Reply:    Tuple{at(p.Dst, p.DstPort), at(p.Src, p.SrcPort)},
		Mark:     p.CTMark, Zone: p.Zone, Untracked: p.Untracked,
		DNAT: p.readdressed(), SNAT: p.SNAT,
		Scheduled: p.Virtual.IsValid(), Virtual: p.Virtual,
	}
}

// The translations that a packet behind the first has had.
const (
	hadDestination uint8 = 1 << iota
	hadSource
	hadIPVS
)

// beginsAnother tells whether connection tracking takes a packet that belongs to no connection for the first of a new
// one: a SYN,ACK begins none (tcp_conntracks in net/netfilter/nf_conntrack_proto_tcp.c, the row synack), nor does an
// INIT ACK (nf_conntrack_proto_sctp.c) or a RESPONSE (nf_conntrack_proto_dccp.c).
func (p *Packet) beginsAnother() bool {
	return p.Turn != Reply || p.Proto != TCP && p.Proto != SCTP && p.Proto != DCCP
}

// track is nf_conntrack_in (net/netfilter/nf_conntrack_core.c): it finds the connection of a packet by its addresses,
// and by the number of its zone in its direction (resolve_normal_ct, nf_ct_key_equal). It returns false where the zones
// are not known.
func (p *Packet) track() bool {
	if p.Zone.ByMark {
		p.Zone.ID, p.Zone.ByMark = uint16(p.Mark), false //nolint:gosec // nf_ct_zone_init takes the lower half
	}
	if p.Turn == First || p.Tracking != Unseen || p.Untracked {
		return true
	}
	dir := p.Turn.direction()
	switch {
	case p.Conn.Untracked:
	case p.Zone.Vague || p.Conn.Zone.Vague:
		return false
	case p.Zone.in(dir) == p.Conn.Zone.in(dir):
		p.Tracking, p.CTMark = Found, p.Conn.Mark
		return true
	}
	p.Tracking = Invalid
	if p.beginsAnother() {
		p.Tracking = NotOurs
		p.OrigSrc, p.OrigDst, p.OrigDstPort = p.Src, p.Dst, p.DstPort
	}
	return true
}

// Addressed tells whether the destination of an answer is the client itself: nothing translates it, or it is done.
func (p *Packet) Addressed() bool { return !p.Conn.SNAT || p.Back&hadDestination != 0 }

// toDestination translates the destination of a packet whose connection is translated (nf_nat_packet and
// nf_nat_manip_pkt in net/netfilter/nf_nat_core.c): an answer goes to the client again, a later packet to the endpoint.
func (p *Packet) toDestination() {
	c := p.Tracked()
	if c == nil || p.Back&hadDestination != 0 {
		return
	}
	p.Back |= hadDestination
	to := c.Reply.Src
	if p.Turn == Reply {
		to = c.Original.Src
	}
	if p.Turn == Reply && c.SNAT || p.Turn == Later && c.DNAT {
		p.Dst, p.DstPort = to.Addr(), to.Port()
	}
}

// toSource translates the source, likewise: an answer comes from the frontend, a later packet from where the first came
// from.
func (p *Packet) toSource() {
	c := p.Tracked()
	if c == nil || p.Back&hadSource != 0 {
		return
	}
	p.Back |= hadSource
	from := c.Reply.Dst
	if p.Turn == Reply {
		from = c.Original.Dst
	}
	if p.Turn == Reply && c.DNAT || p.Turn == Later && c.SNAT {
		p.Src, p.SrcPort = from.Addr(), from.Port()
	}
}

// fromVirtual gives an answer of a real server of IPVS the address of the virtual server (handle_response in
// net/netfilter/ipvs/ip_vs_core.c), whether or not connection tracking knows the connection.
func (p *Packet) fromVirtual() {
	if p.Turn != Reply || !p.Conn.Scheduled || p.Back&hadIPVS != 0 {
		return
	}
	p.Back |= hadIPVS
	p.Virtual = p.Conn.Virtual // the skb's ipvs_property
	p.Src, p.SrcPort = p.Virtual.Addr(), p.Virtual.Port()
}
