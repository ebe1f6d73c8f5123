// SPDX-License-Identifier: Apache-2.0

package netfilter

// ClientPorts returns the ports that the source port of a client's packet is one of, or the destination port of an
// answer; known is false where a translation of the source may have given it another one.
func (p *Packet) ClientPorts() (r PortRange, known bool) {
	switch {
	case p.Ports.Last == 0:
	case p.Turn == First:
		known = !p.SNAT
	case p.Turn.Answers():
		known = p.Addressed()
	default:
		known = !p.Conn.SNAT || p.Back&hadSource == 0
	}
	return p.Ports, known
}
