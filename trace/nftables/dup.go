// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter/op"
	"github.com/svcproxy/kubectl-svcproxy/trace/nftables/syntax"
)

// duplicate is dup: in the family netdev it sends a copy of the frame out by an interface (nft_dup_netdev_eval in
// net/netfilter/nft_dup_netdev.c); in others a copy of the packet to another host (nf_dup_ipv4 in
// net/ipv4/netfilter/nf_dup_ipv4.c), whose answers get to the client.
func (b *builder) duplicate(d *syntax.Dup) bool {
	if b.table.Family != "netdev" {
		copies(b)
		return true
	}
	if d.Addr == nil {
		return false
	}
	to, ok := b.operand(d.Addr, typeIface)
	if !ok || to.typ != typeIface || to.get == nil {
		return false
	}
	b.acted = true
	b.add(&copied{to})
	return true
}

// copies is of a dup of which nothing is known.
func copies(b *builder) {
	b.add(op.OpaqueTarget("it sends a copy to another host, whose answers may break the connection (dup)"))
}

// copied sends a copy of the frame out by an interface.
type copied struct{ to *expr }

// silent are kinds of interfaces by which no host gets a frame (drivers/net/dummy.c, ifb.c, nlmon.c).
var silent = map[string]bool{"dummy": true, "ifb": true, "nlmon": true}

// Run implements [netfilter.Op]. A copy that gets to a link teaches its switches, and bridges, that the sender of the
// frame is where the copy came from (br_fdb_update in net/bridge/br_fdb.c): what is for the sender goes astray. By lo
// the frame comes in again, and is of a host that lo is not (eth_type_trans).
func (d *copied) Run(c *netfilter.Context) netfilter.Effect {
	vals, t := values(c, []*expr{d.to}, nil)
	if t == op.No {
		return breakOff
	}
	const why = "it sends a copy out by an interface, and who gets it may take the sender to be there (dup)"
	if !vals[0].exact() {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: why}
	}
	dev := typeIface.word(vals[0].word)
	if kind, known := kindOfLink(c, dev); dev != "lo" && (!known || !silent[kind]) {
		return netfilter.Effect{Kind: netfilter.Opaque, Why: why}
	}
	return answer(t, dependsOn([]*expr{d.to}))
}
