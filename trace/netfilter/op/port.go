// SPDX-License-Identifier: Apache-2.0

package op

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// The lowest ports that the kernel chooses: for a socket that asks for none, by default (inet_sk_ports_range in
// net/ipv4/af_inet.c), and when it translates the source (nf_nat_l4proto_unique_tuple in net/netfilter/nf_nat_core.c).
const (
	ephemeralPort  = 32768
	translatedPort = 1024
)

// LowestPort returns the lowest number that the destination port of an answer may have where it is not known
// (Packet.DstPort 0): the client's socket got it, or, until that is undone, the translation of its source. Clients
// beyond the node are taken to choose theirs as the node does. That of other packets may be any.
func LowestPort(c *netfilter.Context) uint16 {
	if !c.Packet.Turn.Answers() {
		return 0
	}
	if p := c.Packet; p.Turn.Answers() && !p.Addressed() {
		return translatedPort
	}
	if first, _, known := c.Host.LocalPorts(); known || first != 0 {
		return min(first, ephemeralPort)
	}
	return ephemeralPort
}

// SourcePorts returns the ports of which the source port is one where it is not known (Packet.SrcPort 0).
func SourcePorts(c *netfilter.Context) (r netfilter.PortRange, known bool) {
	r, known = c.Packet.ClientPorts()
	return r, known && !c.Packet.Turn.Answers()
}

// DestinationPorts returns the ports of which the destination port is one where it is not known (Packet.DstPort 0).
func DestinationPorts(c *netfilter.Context) (r netfilter.PortRange, known bool) {
	r, known = c.Packet.ClientPorts()
	return r, known && c.Packet.Turn.Answers()
}
