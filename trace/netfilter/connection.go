// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"
	"strings"
)

// Turn says which packet of its connection a Packet is.
type Turn uint8

// The turns.
const (
	First   Turn = iota // the connection's first packet: a SYN, an INIT, a datagram
	Reply               // the answer to it, in the other direction: a SYN,ACK, a datagram
	Later               // a packet behind that, in the direction of the first: an ACK, data, a datagram
	Further             // one behind that, in the direction of the answer
)

// Answers tells whether the packet comes from the endpoint.
func (t Turn) Answers() bool { return t == Reply || t == Further }

// direction is that of the packet in conntrack's terms: 0 for the original direction, 1 for replies.
func (t Turn) direction() uint8 {
	if t.Answers() {
		return 1
	}
	return 0
}

// Ending says of a packet of TCP behind the handshake whether it is the last one of its direction: it has the flag FIN.
type Ending uint8

// What may be known of that.
const (
	GoesOn Ending = iota
	MayEnd
	Ends
)

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

// Left is what the packets of a connection have left for those behind them.
type Left struct {
	Mark  uint32 // that of the connection
	Lists string // the lists and sets that rules have changed, as Packet.Recent has them: "set:NAME " of each, in order
	// Unanswered: answers have come, and connection tracking has found this connection for none of them.
	Unanswered bool
}

// Left returns what a packet has left, with those before it.
func (w *Walker) Left(o *Outcome) Left {
	return Left{Mark: o.Packet.CTMark, Lists: w.changed(o.Packet.Recent), Unanswered: o.Packet.unanswered()}
}

// unanswered is Left.Unanswered behind a packet. A connection of TCP whose SYN,ACK was not seen stays in SYN_SENT,
// whatever else comes (tcp_conntracks in net/netfilter/nf_conntrack_proto_tcp.c).
func (p *Packet) unanswered() bool {
	switch {
	case p.Turn == Reply:
		return p.Tracked() == nil
	case p.Turn == Further && p.Proto != TCP && p.Tracked() != nil:
		return false
	}
	return p.Conn != nil && p.Conn.Unanswered
}

// changed returns the names in Packet.Recent as another packet knows them: that a list was changed, and no longer for
// which address. The lists of [WithClientLists] are left out: no rule asks for them but those for first packets, and
// whether the client is listed there Options.Listed tells.
func (w *Walker) changed(recent string) string {
	var names []string
	for word := range strings.FieldsSeq(recent) {
		name := strings.TrimPrefix(strings.TrimPrefix(word, "!"), "set:")
		if !slices.ContainsFunc(w.lists, func(known string) bool { return strings.HasPrefix(name, known) }) {
			names = append(names, "set:"+name+" ")
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "")
}

// With adds lists and sets that other packets have changed.
func (l Left) With(lists string) Left {
	if lists == l.Lists || lists == "" {
		return l
	}
	words := strings.Fields(l.Lists + lists)
	slices.Sort(words)
	l.Lists = strings.Join(slices.Compact(words), " ") + " "
	return l
}

// Connection is what connection tracking knows of a connection that its first packet has made.
type Connection struct {
	Original, Reply Tuple
	Mark            uint32
	Zone            Zone
	Untracked       bool // there is none: the first packet was not tracked
	Unanswered      bool // as Left has it
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

// Replied tells whether connection tracking has seen an answer of the packet's connection, the packet itself included
// (the status bit SEEN_REPLY).
func (p *Packet) Replied() bool {
	x := p.Tracked()
	return x != nil && (p.Turn.Answers() || !x.Unanswered)
}

// readdressed tells whether conntrack translates the destination of the first packet's connection.
func (p *Packet) readdressed() bool {
	return p.DNAT && !p.Virtual.IsValid() && (p.Dst != p.OrigDst || p.DstPort != p.OrigDstPort)
}

// connection is what the outcome of a first packet has made, with what packets behind it have left.
func connection(s *Start, p *Packet, left Left) *Connection {
	at := netip.AddrPortFrom
	return &Connection{
		Original: Tuple{at(s.Packet.Src, s.Packet.SrcPort), at(s.Packet.Dst, s.Packet.DstPort)},
		Reply:    Tuple{at(p.Dst, p.DstPort), at(p.Src, p.SrcPort)},
		Mark:     left.Mark, Unanswered: left.Unanswered, Zone: p.Zone, Untracked: p.Untracked,
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
// and by the number of its zone in its direction (resolve_normal_ct, nf_ct_key_equal). It returns why that is not
// known.
func (p *Packet) track() (unknown string) {
	if p.Zone.ByMark {
		p.Zone.ID, p.Zone.ByMark = uint16(p.Mark), false //nolint:gosec // nf_ct_zone_init takes the lower half
	}
	if p.Turn == First || p.Tracking != Unseen || p.Untracked {
		return ""
	}
	dir := p.Turn.direction()
	switch {
	case p.Conn.Untracked:
	case p.Zone.Vague || p.Conn.Zone.Vague:
		return "its zone is not known"
	case p.Zone.in(dir) == p.Conn.Zone.in(dir):
		if p.Tracking = Found; p.Conn.Unanswered && p.Turn == Later && p.Proto == TCP {
			p.Tracking, p.Template = Invalid, false // an ACK, of a connection in SYN_SENT
			return ""
		}
		p.CTMark = p.Conn.Mark
		return ""
	}
	p.Tracking, p.Template = Invalid, false // what rules have given it so far is gone (nf_conntrack_in)
	if p.Turn.Answers() && p.Conn.SNAT && p.Conn.Reply.Dst.Addr() == p.Conn.Original.Src.Addr() {
		return "whether its port is the client's own is not known, as a rule translates the source to the same address"
	}
	if p.beginsAnother() && !p.TooBig() { // a message about an unknown connection is invalid
		p.Tracking = NotOurs
		if p.clashes() {
			return "it is taken for the first packet of a connection whose other direction may be that of the first one"
		}
		p.OrigSrc, p.OrigDst, p.OrigDstPort = p.Src, p.Dst, p.DstPort
	}
	return ""
}

// clashes tells whether the connection that a packet begins would have the addresses of its own one in the other
// direction, in the same zone, or may have, once it is translated likewise: it is dropped, or gets another port
// (__nf_conntrack_confirm in net/netfilter/nf_conntrack_core.c, get_unique_tuple in nf_nat_core.c).
func (p *Packet) clashes() bool {
	c := p.Conn
	switch {
	case c.Untracked:
		return false
	case !p.Turn.Answers():
		return p.Zone.in(1) == c.Zone.in(1)
	}
	return c.Original == Tuple{c.Reply.Dst, c.Reply.Src} && p.Zone.in(0) == c.Zone.in(0)
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
	if p.Turn.Answers() {
		to = c.Original.Src
	}
	if p.Turn.Answers() && c.SNAT || p.Turn == Later && c.DNAT {
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
	if p.Turn.Answers() {
		from = c.Original.Dst
	}
	if p.Turn.Answers() && c.DNAT || p.Turn == Later && c.SNAT {
		p.Src, p.SrcPort = from.Addr(), from.Port()
	}
}

// fromVirtual gives an answer of a real server of IPVS the address of the virtual server (handle_response in
// net/netfilter/ipvs/ip_vs_core.c), whether or not connection tracking knows the connection.
func (p *Packet) fromVirtual() {
	if !p.Turn.Answers() || !p.Conn.Scheduled || p.Back&hadIPVS != 0 {
		return
	}
	p.Back |= hadIPVS
	p.Virtual = p.Conn.Virtual // the skb's ipvs_property
	p.Src, p.SrcPort = p.Virtual.Addr(), p.Virtual.Port()
}
