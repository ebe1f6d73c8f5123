// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"net/netip"
	"slices"
)

// linearUpTo is the chain length below which looking at every rule is cheaper than asking the index.
const linearUpTo = 12

// index sorts the rules of a long chain by the one condition that tells most of them apart, so that a packet meets only
// the rules that may match it: KUBE-SERVICES by destination, KUBE-NODEPORTS by port, per-pod chains by source.
type index struct {
	rest  []int32 // rules without a usable key
	byDst map[netip.Addr][]int32
	bySrc map[netip.Addr][]int32
	byPrt map[uint32][]int32 // protocol<<16 | destination port
}

func newIndex(rules []*Rule) *index {
	if len(rules) <= linearUpTo {
		return nil
	}
	x := &index{byDst: map[netip.Addr][]int32{}, bySrc: map[netip.Addr][]int32{}, byPrt: map[uint32][]int32{}}
	for i, r := range rules {
		n := int32(i)
		switch {
		case r.Key.Dst.IsValid():
			x.byDst[r.Key.Dst] = append(x.byDst[r.Key.Dst], n)
		case r.Key.Src.IsValid():
			x.bySrc[r.Key.Src] = append(x.bySrc[r.Key.Src], n)
		case r.Key.DstPort != 0:
			k := portKey(r.Key.Proto, r.Key.DstPort)
			x.byPrt[k] = append(x.byPrt[k], n)
		default:
			x.rest = append(x.rest, n)
		}
	}
	return x
}

func portKey(proto uint8, port uint16) uint32 { return uint32(proto)<<16 | uint32(port) }

// candidates are the rules of one chain that may match one packet: up to four ascending lists, or every rule.
type candidates struct {
	n     int // rules in the chain
	lists [4][]int32
	used  int
	all   bool
}

func (c *Chain) candidates(p *Packet) candidates {
	cand := candidates{n: len(c.Rules)}
	x := c.index
	// An address that is not known may be any, and so may a port.
	if x == nil || !p.Src.IsValid() || !p.Dst.IsValid() || p.DstPort == 0 && len(x.byPrt) > 0 {
		cand.all = true
		return cand
	}
	for _, l := range [...][]int32{x.rest, x.byDst[p.Dst], x.bySrc[p.Src], x.byPrt[portKey(p.Proto, p.DstPort)]} {
		if len(l) > 0 {
			cand.lists[cand.used] = l
			cand.used++
		}
	}
	return cand
}

// next returns the first candidate at or after i, or n.
func (c *candidates) next(i int) int {
	if c.all || i >= c.n {
		return min(i, c.n)
	}
	best := c.n
	for _, l := range c.lists[:c.used] {
		at, _ := slices.BinarySearch(l, int32(i)) //nolint:gosec // i < n, which indexes a slice of int32
		if at < len(l) {
			best = min(best, int(l[at]))
		}
	}
	return best
}
