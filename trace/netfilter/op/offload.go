// SPDX-License-Identifier: Apache-2.0

package op

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
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
	if p.Tracked() == nil || p.Proto != netfilter.TCP && p.Proto != netfilter.UDP {
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

// Takes tells whether packets that come in by an interface may be among those that the flowtable sends on: where the
// interface, or one below it, is not one of the flowtable's, they meet all rules.
func (o *Offload) Takes(h *host.Network, in string) bool {
	if o.Devices == nil || in == netfilter.UnknownIface || slices.Contains(o.Devices, in) {
		return true
	}
	layers, known := h.Below(in)
	return !known || slices.ContainsFunc(layers, func(l host.Layer) bool {
		return slices.ContainsFunc(l.Devs, func(dev string) bool { return slices.Contains(o.Devices, dev) })
	})
}
