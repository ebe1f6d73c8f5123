// SPDX-License-Identifier: Apache-2.0

package op

import "github.com/svcproxy/kubectl-svcproxy/trace/netfilter"

// CameBack tells whether the packet has left the node by lo, and comes in again: it then has the connection that it got
// when it left.
func CameBack(c *netfilter.Context) bool {
	return c.Packet.Local && (c.Hook == netfilter.Prerouting || c.Hook == netfilter.Input)
}

// TranslatedTo tells whether the connection has the status bit DNAT: the kernel sets it only where the translation
// changed something (nf_nat_setup_info in net/netfilter/nf_nat_core.c).
func TranslatedTo(p *netfilter.Packet) Truth {
	return Is(p.DNAT && (p.Dst != p.OrigDst || p.DstPort != p.OrigDstPort))
}

// TranslatedFrom tells whether the connection has the status bit SNAT, likewise.
func TranslatedFrom(p *netfilter.Packet) Truth {
	switch {
	case !p.SNAT:
		return No
	case !p.Src.IsValid() || p.Src == p.OrigSrc: // the port may have changed
		return Maybe
	}
	return Yes
}

// Notrack takes the packet out of connection tracking. One that has a connection already, or a template of one, keeps
// it (notrack_tg in net/netfilter/xt_CT.c, nft_notrack_eval in net/netfilter/nft_ct.c).
func Notrack(c *netfilter.Context) {
	if !CameBack(c) && !c.Packet.Template {
		c.Packet.Untracked = true
	}
}

// GiveTemplate gives the packet a template of the connection that it will have, unless something was settled before
// (xt_ct_target in net/netfilter/xt_CT.c, nft_ct_set_zone_eval in net/netfilter/nft_ct.c).
func GiveTemplate(c *netfilter.Context) {
	if !CameBack(c) && !c.Packet.Untracked {
		c.Packet.Template = true
	}
}
