// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
)

// markSet returns the mark that a rule gives to a packet without one, whatever the conditions of the rule; false where
// it leaves the mark alone.
func markSet(r *netfilter.Rule) (uint32, bool) {
	for _, o := range r.Ops {
		p := netfilter.Packet{}
		o.Run(&netfilter.Context{Packet: &p, Host: nothing})
		if p.Mark != 0 {
			return p.Mark, true
		}
	}
	return 0, false
}

// masqueradeBit reads the bit of the mark that asks for masquerade: what the rules that ask for it set, where the rules
// that translate the source go by the same.
func (in *Input) masqueradeBit() Fact {
	out := Fact{Setting: kubeproxy.MasqueradeBit}
	t := counts[uint32]{}
	heeded := true
	note := func(c *netfilter.Chain, post *netfilter.Chain) {
		if c == nil {
			return
		}
		for _, r := range c.Rules {
			if mark, ok := markSet(r); ok {
				t[mark]++
				heeded = heeded && post != nil && translates(post, mark) && !translates(post, 0)
			}
		}
	}
	for _, f := range nodestate.Families {
		if in.Mode != kubeproxy.NFTables {
			for _, table := range in.natTables(f) {
				note(table.Chain(kubeproxy.ChainMarkMasq), table.Chain(kubeproxy.ChainPostrouting))
			}
			continue
		}
		if table := in.nftTable(f); table != nil {
			post := table.Chain(kubeproxy.NFTChainMasquerading)
			for _, c := range table.Chains {
				if c.Name == kubeproxy.NFTChainMarkMasq || c.Name == kubeproxy.NFTChainServices ||
					strings.HasPrefix(c.Name, kubeproxy.NFTPrefixExternal) {
					note(c, post)
				}
			}
		}
	}
	mark, votes, all := t.most(cmp.Compare[uint32])
	if out.Known = agree(votes, all) && heeded && bits.OnesCount32(mark) == 1; out.Known {
		out.Allowed = []kubeproxy.Config{{MasqueradeBit: bits.TrailingZeros32(mark)}}
		out.Detail = fmt.Sprintf("mark %#x", mark)
	}
	return out
}

// translates tells whether a chain translates the source of packets with a mark, as far as that is all it goes by.
func translates(c *netfilter.Chain, mark uint32) bool {
	p := netfilter.Packet{Family: c.Table.Family, Proto: netfilter.TCP, Mark: mark, Src: someone[0], Dst: someone[0]}
	if p.Family == netfilter.IPv6 {
		p.Src, p.Dst = someone[1], someone[1]
	}
	ctx := netfilter.Context{Packet: &p, Hook: netfilter.Postrouting, Host: nothing}
	for _, r := range c.Rules {
	ops:
		for _, o := range r.Ops {
			switch eff := o.Run(&ctx); eff.Kind {
			case netfilter.Next:
			case netfilter.Accept:
				return p.SNAT
			case netfilter.Return:
				return false
			default: // the rule is for other packets, or goes by what there is not
				break ops
			}
		}
	}
	return p.SNAT
}

// someone are addresses of nobody (RFC 5737, RFC 3849).
var someone = [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

func sortedKeys(t counts[string]) []string { return slices.Sorted(maps.Keys(t)) }

// nothing is a node of which nothing is known.
var nothing = &host.Network{}
