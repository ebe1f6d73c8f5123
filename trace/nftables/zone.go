// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// setZone gives a packet without a connection a template of one, even if it was not to be tracked: it is again
// (nft_ct_set_zone_eval in net/netfilter/nft_ct.c, which does not tell the two apart; iptables' CT does).
type setZone netfilter.Zone

// zoneOf reads the zone, and the direction in which it counts.
func zoneOf(m *syntax.Mangle) setZone {
	z := setZone{Dirs: netfilter.ZoneBoth}
	if ct, ok := m.Key.(*syntax.CT); ok && ct.Dir != "" {
		z.Dirs = zoneDirections[ct.Dir]
	}
	n, ok := m.Value.(syntax.Number)
	z.ID, z.Vague = uint16(n), !ok
	return z
}

var zoneDirections = map[string]uint8{"original": netfilter.ZoneOriginal, "reply": netfilter.ZoneReply}

// Run implements [netfilter.Op].
func (z setZone) Run(c *netfilter.Context) netfilter.Effect {
	p := c.Packet
	untracked := p.Untracked
	p.Untracked = false
	before := hasConnection(c)
	p.Untracked = untracked
	switch {
	case p.Template:
	case p.Resolves(): // connection tracking leaves it out, and takes away what it had before that
		p.Template = p.Family == netfilter.IPv6 && before == op.Yes
	case before == op.No:
		p.Untracked, p.Template, p.Zone = false, true, netfilter.Zone(z)
	case before == op.Maybe || untracked:
		return netfilter.Effect{
			Kind: netfilter.Opaque, Why: "it gives a zone to a packet that connection tracking may already have processed",
		}
	}
	return netfilter.Effect{}
}
