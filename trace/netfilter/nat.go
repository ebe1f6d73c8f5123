// SPDX-License-Identifier: Apache-2.0

package netfilter

import "slices"

// natSettled tells whether a nat chain of this hook is passed over: the connection is not tracked, or the translation
// that the hook makes is decided already (nf_nat_initialized).
func natSettled(p *Packet, h Hook) bool {
	if p.Untracked || p.Tracking == Found || p.Tracking == Invalid {
		return true
	}
	if h == Prerouting || h == Output {
		return p.DNAT
	}
	return p.SNAT
}

// translated ends branches that have no route any more: the NAT of OUTPUT looks up a new one at once, before the chains
// after it (nf_nat_ipv4_local_fn and nf_nat_ipv6_local_fn in net/netfilter/nf_nat_proto.c). The interface that those
// see stays the old one.
func (w *Walker) translated(bs []branch) []branch {
	return slices.DeleteFunc(bs, func(b branch) bool {
		if !b.pkt.DNAT || b.pkt.Dst == b.pkt.OrigDst {
			return false
		}
		r, known, _ := w.host.Route(b.pkt.Dst)
		if !known || !unusable(r.Type) {
			return false
		}
		w.noRoute(b)
		return true
	})
}

// sign notes which rule settled a translation.
func sign(p *Packet, by Ref) {
	if p.DNAT && p.DNATBy.Chain == nil {
		p.DNATBy = by
	}
	if p.SNAT && p.SNATBy.Chain == nil {
		p.SNATBy = by
	}
}
