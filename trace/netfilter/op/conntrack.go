// SPDX-License-Identifier: Apache-2.0

package op

import (
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// CameBack tells whether the packet has left the node by lo, and comes in again: it then has the connection that it got
// when it left.
func CameBack(c *netfilter.Context) bool {
	return c.Packet.Local && (c.Hook == netfilter.Prerouting || c.Hook == netfilter.Input)
}

// Untracked tells whether a packet has no connection, also behind connection tracking: a rule has taken it out, or it
// belongs to none and begins none.
func Untracked(p *netfilter.Packet) bool {
	return p.Untracked || p.Tracking == netfilter.Invalid
}

// Templated tells whether a packet that connection tracking has left out has a template of a connection since, which
// stands for a new one from there on (nf_ct_get in include/net/netfilter/nf_conntrack.h knows no difference).
func Templated(p *netfilter.Packet) bool {
	return p.Template && (p.Untracked && p.Resolves() || p.Tracking == netfilter.Invalid)
}

// Original returns the two ends of the packet's connection in the direction of its first packet.
func Original(p *netfilter.Packet) netfilter.Tuple {
	if x := p.Tracked(); x != nil {
		return x.Original
	}
	t := netfilter.Tuple{
		Src: netip.AddrPortFrom(p.OrigSrc, p.SrcPort), Dst: netip.AddrPortFrom(p.OrigDst, p.OrigDstPort),
	}
	if p.SNAT {
		t.Src = netip.AddrPortFrom(p.OrigSrc, 0)
	}
	return t
}

// Replies returns the two ends in the direction of answers. What answers is what the first packet goes to, as far as
// that is settled.
func Replies(p *netfilter.Packet) netfilter.Tuple {
	if x := p.Tracked(); x != nil {
		return x.Reply
	}
	return netfilter.Tuple{Src: netip.AddrPortFrom(p.Dst, p.DstPort), Dst: netip.AddrPortFrom(p.Src, p.SrcPort)}
}

// TranslatedTo tells whether the connection has the status bit DNAT: the kernel sets it only where the translation
// changed something (nf_nat_setup_info in net/netfilter/nf_nat_core.c).
func TranslatedTo(p *netfilter.Packet) Truth {
	if x := p.Tracked(); x != nil {
		return Is(x.DNAT)
	}
	return Is(p.DNAT && (p.Dst != p.OrigDst || p.DstPort != p.OrigDstPort))
}

// TranslatedFrom tells whether the connection has the status bit SNAT, likewise.
func TranslatedFrom(p *netfilter.Packet) Truth {
	settled, now, before := p.SNAT, p.Src, p.OrigSrc
	if x := p.Tracked(); x != nil {
		settled, now, before = x.SNAT, x.Reply.Dst.Addr(), x.Original.Src.Addr()
	}
	switch {
	case !settled:
		return No
	case !now.IsValid() || now == before: // the port may have changed
		return Maybe
	}
	return Yes
}

// The TCP flags that a packet may have (include/uapi/linux/tcp.h).
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Assured tells whether the connection has the status bit ASSURED: not before its third packet, and of TCP only once it
// is established, of others with time (nf_conntrack_tcp_packet in net/netfilter/nf_conntrack_proto_tcp.c,
// nf_conntrack_udp_packet in nf_conntrack_proto_udp.c).
func Assured(c *netfilter.Context) Truth {
	c.ByTurn = true
	p := c.Packet
	return Known(false, p.Turn == netfilter.First || p.Turn == netfilter.Reply || p.Tracked() != nil && !p.Replied())
}

// TCPFlags returns the flags of a packet of TCP, and those of which it is not known whether it has them. The first one
// is a SYN, its answer a SYN,ACK; what follows may carry data.
func TCPFlags(c *netfilter.Context) (set, unknown uint8) {
	c.ByTurn = true
	switch p := c.Packet; p.Turn {
	case netfilter.Reply:
		return SYN | ACK, 0
	case netfilter.Later, netfilter.Further:
		switch p.Ending {
		case netfilter.Ends:
			return ACK | FIN, PSH
		case netfilter.MayEnd:
			return ACK, PSH | FIN
		case netfilter.GoesOn:
		}
		return ACK, PSH
	case netfilter.First:
	}
	return SYN, 0
}

// Notrack takes the packet out of connection tracking. One that has a connection already, or a template of one, keeps
// it (notrack_tg in net/netfilter/xt_CT.c, nft_notrack_eval in net/netfilter/nft_ct.c).
func Notrack(c *netfilter.Context) {
	if !CameBack(c) && !c.Packet.Template && c.Packet.Tracked() == nil {
		c.Packet.Untracked = true
	}
}

// GiveTemplate gives the packet a template of the connection that it will have, unless something was settled before
// (xt_ct_target in net/netfilter/xt_CT.c, nft_ct_set_zone_eval in net/netfilter/nft_ct.c).
func GiveTemplate(c *netfilter.Context, zone netfilter.Zone) {
	if !CameBack(c) && !c.Packet.Untracked && !c.Packet.Template && c.Packet.Tracked() == nil {
		c.Packet.Template, c.Packet.Zone = true, zone
	}
}
