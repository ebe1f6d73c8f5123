// SPDX-License-Identifier: Apache-2.0

package op

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// Bounds are the least and the greatest value that a number of the packet may have.
type Bounds struct{ Low, High uint64 }

// Within tells whether the number is one of low to high.
func (b Bounds) Within(low, high uint64) Truth {
	switch {
	case b.High < low || high < b.Low:
		return No
	case low <= b.Low && b.High <= high:
		return Yes
	}
	return Maybe
}

// The lengths of headers, in bytes: without options, and the longest one of TCP.
const (
	header4, header6     = 20, 40
	headerTCP, mostTCP   = 20, 60
	headerUDP            = 8
	mostLength           = 1 << 18 // of segments that the kernel carries as one packet (BIG TCP)
	lowMSS4, lowMSS6     = 536, 1220
	mostMSS, mostHops    = 65535, 255
	leastWords, allWords = 5, 15
)

// Length is that of the packet with its IP header. What opens a TCP connection carries no data (but for TCP Fast Open,
// which goes on without it); what follows may, and is as long as the sender, or the kernel that joins segments, makes
// it.
func Length(c *netfilter.Context) Bounds {
	p := c.Packet
	c.ByTurn = true
	head := uint64(header4)
	if p.Family == netfilter.IPv6 {
		head = header6
	}
	switch {
	case p.Family == netfilter.ARP || p.Resolves() || p.TooBig():
		return Bounds{head, mostLength}
	case p.Proto == netfilter.TCP && opens(p):
		return Bounds{head + headerTCP, head + mostTCP}
	case p.Proto == netfilter.TCP:
		return Bounds{head + headerTCP, mostLength}
	}
	return Bounds{head + headerUDP, mostLength}
}

// Hops is the packet's TTL, or hop limit. What finds link-layer addresses has 255 (RFC 4861, section 7.1). What a
// client gives its packets is not known: it is taken to be enough for any endpoint, as one with less is not sure to get
// there, be there rules or not; what traces routes sends such packets, and no client.
func Hops(c *netfilter.Context) Bounds {
	if c.Packet.Resolves() {
		return Bounds{mostHops, mostHops}
	}
	return Bounds{EnoughHops, mostHops}
}

// Transformed tells whether IPsec transforms the packet, or has transformed it.
func Transformed(c *netfilter.Context) Truth { return Known(false, c.Untransformed) }

// HasMSS tells whether a packet of TCP has the option that names the largest segment: what opens a connection has it,
// what follows has not.
func HasMSS(c *netfilter.Context) Truth {
	c.ByTurn = true
	return Is(c.Packet.Proto == netfilter.TCP && opens(c.Packet))
}

// opens tells whether a packet of TCP is one of the two that open the connection.
func opens(p *netfilter.Packet) bool { return p.Turn == netfilter.First || p.Turn == netfilter.Reply }

// MSS is the value of that option: what the smallest link of IPv4's hosts (RFC 791) and of IPv6 leaves, or more, unless
// a rule has made it smaller.
func MSS(c *netfilter.Context) Bounds {
	switch {
	case c.Packet.Clamped:
		return Bounds{0, mostMSS}
	case c.Packet.Family == netfilter.IPv6:
		return Bounds{lowMSS6, mostMSS}
	}
	return Bounds{lowMSS4, mostMSS}
}

// DataOffset is the length of TCP's header, in words of 4 bytes.
func DataOffset(*netfilter.Context) Bounds { return Bounds{leastWords, allWords} }

// TOS is the TOS byte, or the traffic class, without the bits of ECN, which hosts set by their own settings: it is 0
// until a rule or a tunnel sets another one, as for the lookup of routes.
func TOS(c *netfilter.Context) (value, unknown uint8) {
	const ecn = 3
	if c.Packet.AnyTOS {
		return 0, 0xff
	}
	return c.Packet.TOS, ecn
}
