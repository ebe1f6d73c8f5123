// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"net/netip"
	"slices"
)

// sameShare is the rounding, as a part of it, that the same product of probabilities may come with when it was
// multiplied in another order.
const sameShare = 1e-12

// sameState tells whether two branches have the same future, or the same past where they ended.
func sameState(a, b *branch) bool {
	return a.pkt == b.pkt && a.verdict == b.verdict && a.end == b.end &&
		sameLast(a, b)
}

// join makes one branch of two in the same state, if that loses nothing: under the same conditions their probabilities
// add up; under opposite conditions, all else equal, the condition does not matter.
func join(a, b *branch) bool {
	if a.yes == b.yes && a.no == b.no {
		a.p += b.p
		return true
	}
	return joinOpposite(a, b)
}

// joinOpposite joins two branches that differ in one unknown, which one takes to be true and the other not.
func joinOpposite(a, b *branch) bool {
	bit := a.yes ^ b.yes
	if bit == 0 || bit&(bit-1) != 0 || bit == 1<<overflowBit || a.no^b.no != bit || math.Abs(a.p-b.p) > sameShare*a.p {
		return false
	}
	a.yes, a.no = a.yes&^bit, a.no&^bit
	return true
}

// mergeEnds joins ends that are the same for the client, though they were reached by different branches: an unknown
// that decides only which of two rules drops it, or whether its destination is inside the node or beyond, does not
// matter.
func (w *Walker) mergeEnds(bs []branch) []branch {
	arrived := func(e End) End {
		if e == Delivered {
			return Sent
		}
		return e
	}
	same := func(a, b *branch) bool {
		x, y := a.pkt, b.pkt
		x.DNATBy, x.SNATBy, x.In, x.Out = y.DNATBy, y.SNATBy, y.In, y.Out
		x.NextHop, x.route = y.NextHop, y.route
		return arrived(a.end) == arrived(b.end) && x == y
	}
	return w.mergeBy(bs, false, func(a, b *branch) bool {
		if !same(a, b) || !joinEnds(a, b) {
			return false
		}
		a.also(b)
		return true
	})
}

// also keeps the ways of a branch that is joined, where that was sent.
func (b *branch) also(gone *branch) {
	if b.end != Sent || gone.end != Sent {
		return
	}
	own, both := Hop{b.pkt.Out, b.pkt.NextHop}, b.lasting()
	for _, hop := range append([]Hop{{gone.pkt.Out, gone.pkt.NextHop}}, gone.lasting().hops...) {
		if hop != own && !slices.Contains(both.hops, hop) {
			both.hops = append(slices.Clip(both.hops), hop)
		}
	}
	b.last = &both
}

// joinEnds is joinOpposite of ends that are the same for the client. Of two at which the packet is lost, the one that
// stays is where it comes to if the unknown is not true: that rule is known to drop it, while of the other, which asks
// for what is not known, it is not known whether it would.
func joinEnds(a, b *branch) bool {
	assumed := a.yes &^ b.yes
	if !joinOpposite(a, b) {
		return false
	}
	if assumed != 0 && a.end != Sent && a.end != Delivered {
		a.pkt, a.verdict, a.end, a.last = b.pkt, b.verdict, b.end, b.last
	}
	return true
}

// merge joins branches in the same state until none can be joined any more. Where many are left, the uncertain ones
// among those in the same state become one.
func (w *Walker) merge(bs []branch) []branch {
	bs = w.mergeBy(bs, true, func(a, b *branch) bool { return sameState(a, b) && join(a, b) })
	if len(bs) <= manyBranches {
		return bs
	}
	return w.mergeBy(bs, true, func(a, b *branch) bool { return sameState(a, b) && blur(a, b) })
}

// manyBranches is how many branches are told apart by what they depend on. Beyond it, those that depend on unknowns and
// are in the same state become one that is uncertain for good: n unknowns could need 2^n branches.
const manyBranches = 32

// blur joins two uncertain branches, and forgets on what they depend.
func blur(a, b *branch) bool {
	if a.yes|a.no == 0 || b.yes|b.no == 0 {
		return false
	}
	a.yes, a.no, a.p = 1<<overflowBit, 0, max(a.p, b.p)
	return true
}

// costOfComparing is how many comparisons of branches cost as much as a rule.
const costOfComparing = 16

// mergeBy joins branches by a function that joins two whose packets have the same addresses, ports and marks, and no
// others; exact: and that were ended at the same place. The first of those that are joined stays, where it is.
func (w *Walker) mergeBy(bs []branch, exact bool, joined func(a, b *branch) bool) []branch {
	if len(bs) > manyBranches {
		return w.mergeGroups(bs, exact, joined)
	}
	for again := len(bs) > 1; again; {
		again = false
		w.ctx.Work += len(bs) * len(bs) / 2 / costOfComparing
		for i := 0; i < len(bs); i++ {
			for j := len(bs) - 1; j > i; j-- {
				// Most differ in where they go.
				if bs[i].pkt.Dst == bs[j].pkt.Dst && joined(&bs[i], &bs[j]) {
					bs = slices.Delete(bs, j, j+1)
					again = true
				}
			}
		}
	}
	return bs
}

// maxGroup is how many branches of one group one of them is compared with, so that the time which merging takes does
// not grow with the square of their number. Those that are not joined for that stay as they are, which is never wrong.
const maxGroup = 512

// mergeGroups is mergeBy for many branches: only those of one hash are compared with each other.
func (w *Walker) mergeGroups(bs []branch, exact bool, joined func(a, b *branch) bool) []branch {
	groups := make(map[uint64][]int32, len(bs))
	for i := range bs {
		h := bs[i].pkt.hash()
		if exact {
			h ^= maphash.Comparable(seed, bs[i].lasting().where)
		}
		groups[h] = append(groups[h], int32(i))
	}
	w.ctx.Work += len(bs) / 2
	gone := make([]bool, len(bs))
	for _, g := range groups {
		w.ctx.Work += mergeGroup(bs, g, gone, joined) / costOfComparing
	}
	kept := bs[:0]
	for i := range bs {
		if !gone[i] {
			kept = append(kept, bs[i])
		}
	}
	return kept
}

// mergeGroup joins the branches of a group, given by their places in ascending order, and marks those that are gone. It
// returns how many comparisons that took.
func mergeGroup(bs []branch, group []int32, gone []bool, joined func(a, b *branch) bool) (compared int) {
	for again := len(group) > 1; again; {
		again = false
		for i := 0; i < len(group); i++ {
			first := &bs[group[i]]
			left := group[:i+1]
			for k, n := range group[i+1:] {
				if k < maxGroup {
					compared++
					if joined(first, &bs[n]) {
						gone[n], again = true, true
						continue
					}
				}
				left = append(left, n)
			}
			group = left
		}
	}
	return compared
}

// seed is that of all hashes of this package; what is done with them does not depend on it.
var seed = maphash.MakeSeed()

// hash is the same for packets with the same addresses, ports and marks.
func (p *Packet) hash() uint64 {
	var key [48]byte
	put := func(at int, a netip.Addr, port uint16, mark uint32) {
		b := a.As16()
		copy(key[at:], b[:])
		binary.NativeEndian.PutUint16(key[at+16:], port)
		binary.NativeEndian.PutUint32(key[at+20:], mark)
	}
	put(0, p.Src, p.SrcPort, p.Mark)
	put(24, p.Dst, p.DstPort, p.CTMark)
	return maphash.Bytes(seed, key[:])
}
