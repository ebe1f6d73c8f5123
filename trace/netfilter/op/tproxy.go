// SPDX-License-Identifier: Apache-2.0

package op

import (
	"strconv"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// TProxy gives the packet to a transparent socket that listens on a port of the node.
type TProxy struct {
	Port uint16         // 0: that of the packet
	Else netfilter.Kind // what becomes of a packet for which there is no such socket
}

// Run implements [netfilter.Op]. Where a socket listens, a process decides over the packet, if the socket is
// transparent.
func (t *TProxy) Run(c *netfilter.Context) netfilter.Effect {
	port := t.Port
	if port == 0 {
		port = c.Packet.DstPort
	}
	on := "port " + strconv.Itoa(int(port))
	if c.Listens != nil {
		if listens, known := c.Listens(c.Packet.Proto, port); known && !listens {
			return netfilter.Effect{Kind: t.Else, Why: "no process listens on " + on + " (TPROXY)"}
		}
	}
	return netfilter.Effect{
		Kind: netfilter.Opaque,
		Why:  "a process decides whose transparent socket takes the packet (TPROXY), if one listens on " + on,
	}
}
