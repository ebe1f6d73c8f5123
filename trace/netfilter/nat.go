// SPDX-License-Identifier: Apache-2.0

package netfilter

// natSettled tells whether a nat chain of this hook is passed over: the connection is not tracked, or the translation
// that the hook makes is decided already (nf_nat_initialized). A packet that has got a template of a connection behind
// connection tracking passes for the first of one (nf_nat_inet_fn in net/netfilter/nf_nat_core.c).
func natSettled(p *Packet, h Hook) bool {
	if p.Untracked || p.Tracking == Found || p.Tracking == Invalid && !p.Template {
		return true
	}
	if h == Prerouting || h == Output {
		return p.DNAT
	}
	return p.SNAT
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
