// SPDX-License-Identifier: Apache-2.0

package op

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// Offload hands an established connection to a flowtable: its further packets, in both directions, are sent from the
// ingress hook of the interfaces of the flowtable, translated as before, and meet no rule of PREROUTING, FORWARD and
// POSTROUTING (nf_flow_offload_ip_hook in net/netfilter/nf_flow_table_ip.c). The packet itself goes on.
type Offload struct {
	// Flowtable is its name, for people.
	Flowtable string
	// Devices are its interfaces; nil where they are not known.
	Devices []string
	// Breaks: the rule breaks off where the connection is not handed over, be it that it was before
	// (nft_flow_offload_eval in net/netfilter/nft_flow_offload.c).
	Breaks bool
}

// Run implements [netfilter.Op]. The first packet of a connection is not confirmed yet, and is never handed over.
func (o *Offload) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	no := netfilter.Effect{}
	if o.Breaks {
		no.Kind = netfilter.Break
	}
	if p.Tracked() == nil || p.Proto != netfilter.TCP && p.Proto != netfilter.UDP || !o.has(c) {
		return no
	}
	if !o.Breaks {
		return netfilter.Effect{Offloads: true}
	}
	return netfilter.Effect{
		Kind: netfilter.Unknown, Offloads: true,
		Why: "whether the connection is handed to the flowtable " + o.Flowtable + " with this packet is not known",
	}
}

// has tells whether the packet may have come in by an interface of the flowtable, or by one below that.
func (o *Offload) has(c *netfilter.Context) bool {
	if o.Devices == nil {
		return true
	}
	layers, known := c.Host.Below(c.Packet.In)
	if slices.Contains(o.Devices, c.Packet.In) || !known || c.OneOf[c.Packet.In] != nil ||
		c.Packet.In == netfilter.UnknownIface {
		return true
	}
	for _, l := range layers {
		for _, dev := range l.Devs {
			if slices.Contains(o.Devices, dev) {
				return true
			}
		}
	}
	return false
}
