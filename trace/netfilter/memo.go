// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"hash/maphash"
	"slices"
)

// memo remembers, for one walk, what a chain does with a packet. Without it, a few dozen chains that jump to the next
// one twice each would be walked 2^n times.
//
// It costs more than a walk through most chains, and equal packets come to a chain seldom: it is used once a walk has
// become long, and for what comes to a chain a second time.
type memo struct {
	// seen has the hashes of what came to a chain once, each at a place of its own that others may take.
	seen []uint64
	// by has what chains do.
	by map[visit]*effectOf
	// size counts what by holds, in branches.
	size int
}

const (
	// memoAfter is how long a walk has to be for its memo to pay, in rules run.
	memoAfter = 1 << 12
	// memoPlaces is how many visits are known by their hash; a power of 2.
	memoPlaces = 1 << 12
	// maxMemo bounds what is remembered, in branches; what does not fit is walked again.
	maxMemo = 1 << 15
	// sharesPerBranch is how many shares of steps take as much memory as a branch.
	sharesPerBranch = 32
)

// visit is everything that decides what a chain does: the packet, what its branch takes for true of the unknowns, where
// it is hooked in, and how deep the call is, for calls that are too deep end. What a walk assumes is the same for all
// its visits.
type visit struct {
	chain   *Chain
	base    *Base
	hook    Hook
	depth   int
	yes, no uint64
	pkt     Packet
}

// effectOf is what a chain does with a visit of share 1, recorded by the calls of Walker.calls.
type effectOf struct {
	calls uint64
	out   []branch
	steps []stepShare
}

// stepShare is the share of the packets that a step happened to.
type stepShare struct {
	at int // in Walker.steps
	p  float64
}

// recording has the shares of the steps in a visit that is being recorded.
type recording map[int]float64

func (r recording) shares() []stepShare {
	out := make([]stepShare, 0, len(r))
	for at, p := range r {
		out = append(out, stepShare{at, p})
	}
	return out
}

// visit runs a chain that a rule jumps to, or uses the stored result. It returns what [Walker.chain] returns.
func (w *Walker) visit(h Hook, c *Chain, in *branch, depth int) []branch {
	if w.ctx.Work < w.memoAfter || !w.again(h, c, in, depth) {
		return w.chain(h, c, in, depth)
	}
	key := visit{chain: c, base: w.ctx.Base, hook: h, depth: depth, yes: in.yes, no: in.no, pkt: in.pkt}
	known := w.memo.by[key]
	if known == nil {
		return w.record(h, c, in, depth, &key)
	}
	f := &w.frames[depth]
	f.out = append(f.out[:0], known.out...)
	for i := range f.out {
		f.out[i].p *= in.p
	}
	w.held += len(f.out)
	w.ctx.Work += 1 + len(known.out) + len(known.steps)/costOfComparing
	w.share(known.steps, in.p)
	if known.calls != w.calls {
		for _, s := range known.steps {
			w.steps[s.at].AtMost = true
		}
	}
	return f.out
}

// again tells whether something like it has come to the chain before. The answer may be wrong, to either side.
func (w *Walker) again(h Hook, c *Chain, in *branch, depth int) bool {
	if w.memo.seen == nil {
		w.memo.seen, w.memo.by = make([]uint64, memoPlaces), map[visit]*effectOf{}
	}
	hash := in.pkt.hash() ^ maphash.Comparable(seed, visit{chain: c, hook: h, depth: depth, yes: in.yes, no: in.no})
	place := &w.memo.seen[hash%memoPlaces]
	if *place == hash {
		return true
	}
	*place = hash
	return false
}

// record runs a chain, and remembers what it does.
func (w *Walker) record(h Hook, c *Chain, in *branch, depth int, key *visit) []branch {
	outer, one := w.recording, *in
	one.p = 1
	if w.opt.Steps {
		w.recording = recording{}
	}
	out := w.chain(h, c, &one, depth)
	shares := w.recording.shares()
	w.recording = outer
	w.share(shares, in.p)
	w.ctx.Work += len(shares) / costOfComparing
	if size := 1 + len(out) + len(shares)/sharesPerBranch; w.budget == "" && w.memo.size+size <= maxMemo {
		w.memo.size += size
		w.memo.by[*key] = &effectOf{w.calls, slices.Clone(out), shares}
	}
	for i := range out {
		out[i].p *= in.p
	}
	return out
}

// share adds shares, of a visit that had the share p itself, to those of the steps.
func (w *Walker) share(shares []stepShare, p float64) {
	for _, s := range shares {
		w.count(s.at, s.p*p)
	}
}

// count adds to the share of a step, or, while a visit is recorded, to its share in that.
func (w *Walker) count(step int, p float64) {
	if w.recording != nil {
		w.recording[step] += p
		return
	}
	w.steps[step].P += p
}
