// SPDX-License-Identifier: Apache-2.0

package netfilter

import "net/netip"

// The messages by which a host learns that a packet of it is too large for the next link: the type and the code of ICMP
// (RFC 792, RFC 1191), and the type of ICMPv6 (RFC 4443, section 3.2), whose code is 0.
const (
	Unreachable             uint8 = 3
	FragmentationNeededCode uint8 = 4
	PacketTooBig            uint8 = 2
)

// TooBig tells whether the packet is such a message.
func (p *Packet) TooBig() bool {
	return p.Proto == ICMP && p.Type == Unreachable || p.Proto == ICMPv6 && p.Type == PacketTooBig
}

// TooBigName names such a message.
func TooBigName(f Family) string {
	if f == IPv4 {
		return `the ICMP message "fragmentation needed"`
	}
	return `the ICMPv6 message "packet too big"`
}

// TooBig follows the message from the node's address src by which a host learns that a packet of it is too large for
// the link by which it leaves the node (ip_forward in net/ipv4/ip_forward.c, ip6_forward in net/ipv6/ip6_output.c): the
// packet is one of the connection that began at s and has come to the outcome o, Sent; about is Later where the client
// has sent it, Reply where the endpoint has. The message has the connection from its beginning, so that no rule takes
// it out of connection tracking (icmp_glue_bits in net/ipv4/icmp.c, icmpv6_getfrag in net/ipv6/icmp.c), and what it
// quotes is translated back.
func (w *Walker) TooBig(s Start, o *Outcome, about Turn, src netip.Addr) Result {
	c := connection(&s, &o.Packet, Left{Mark: o.Packet.CTMark})
	p := Packet{
		Family: o.Packet.Family, Proto: ICMP, Type: Unreachable, Turn: Reply, Conn: c, CTMark: c.Mark,
		Src: src, SrcPort: o.Packet.DstPort, Dst: s.Packet.Src, DstPort: s.Packet.SrcPort,
	}
	if about == Reply {
		p.Turn, p.Dst, p.DstPort, p.SrcPort = Later, o.Packet.Dst, o.Packet.DstPort, s.Packet.DstPort
	}
	if p.Family == IPv6 {
		p.Proto, p.Type = ICMPv6, PacketTooBig
	}
	if !c.Untracked {
		p.Tracking = Found
	}
	settings := map[Family]string{IPv4: "net/ipv4/fwmark_reflect", IPv6: "net/ipv6/fwmark_reflect"}
	// IP4_REPLY_MARK, IP6_REPLY_MARK; what mark the answer has is not known.
	if on, ok := w.host.Sysctl(settings[p.Family]); ok && on != "0" && about != Reply {
		p.Mark = o.Packet.RoutedMark()
	}
	return w.onward(Start{Hook: Output, Packet: p}, &s, Options{})
}

// TooBigFrom follows such a message of another host, which comes in by the interface in, through a node that the
// connection has passed, or to the socket that has sent the packet. It belongs to the connection if connection tracking
// finds the packet that it quotes (nf_conntrack_inet_error in net/netfilter/nf_conntrack_proto_icmp.c).
func (w *Walker) TooBigFrom(s Start, o *Outcome, about Turn, in string) Result {
	p := Packet{
		Family: o.Packet.Family, Proto: ICMP, Type: Unreachable, In: in,
		Turn: Reply, Dst: o.Packet.Src, DstPort: o.Packet.SrcPort, SrcPort: o.Packet.DstPort,
	}
	if about == Reply {
		p.Turn, p.Dst, p.DstPort, p.SrcPort = Later, s.Packet.Dst, s.Packet.DstPort, s.Packet.SrcPort
	}
	if p.Family == IPv6 {
		p.Proto, p.Type = ICMPv6, PacketTooBig
	}
	p.Conn = connection(&s, &o.Packet, Left{Mark: o.Packet.CTMark})
	return w.onward(Start{Hook: Prerouting, Packet: p}, &s, Options{})
}
