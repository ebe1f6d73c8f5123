// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"time"
)

const (
	// settledReads is how often rules are read that change meanwhile.
	settledReads = 3
	// longRead is from when on waiting for a moment to read costs less than reading again.
	longRead = 500 * time.Millisecond
)

// settled reads the rules, and again if the kernel's nftables have changed meanwhile, so that all rules are of the same
// moment. The legacy tables have no generation number; the plugin reads them again if something is wrong with them.
//
// iptables-save begins again by itself, too, as often as it takes (nft_cache_build in iptables/nft-cache.c). Rules that
// change every second are therefore read when they have just been written: at any other moment it lists thousands of
// chains several times.
func (r *reader) settled(ctx context.Context) (files []File, err error) {
	restless := r.Memory != nil && r.Memory.restless
	for i := range settledReads {
		if restless {
			restless = justWritten(ctx, generationOf)
		}
		begin, before := time.Now(), r.generation()
		if files, err = r.readRules(ctx); err != nil {
			return nil, err
		}
		if r.generation() == before {
			break
		}
		restless = i > 0 || time.Since(begin) >= longRead
	}
	if r.Memory != nil {
		r.Memory.restless = restless
	}
	return files, nil
}

// generationOf is [nftGeneration] of a kernel that has told one before; 0 where it does not now.
func generationOf() uint32 {
	n, err := nftGeneration()
	if err != nil {
		return 0
	}
	return n
}

// Times of waiting for a moment to read.
const (
	looksApart = 5 * time.Millisecond
	quietAfter = 1500 * time.Millisecond // kube-proxy waits a second from one sync to the next: minSyncPeriod
	patience   = 5 * time.Second
)

// justWritten waits until rules that change all the time have just been written, which leaves most time for reading
// them. It returns false where they have not changed for some time.
func justWritten(ctx context.Context, generation func() uint32) bool {
	begin := time.Now()
	last, at := generation(), begin
	var r rhythm
	ticker := time.NewTicker(looksApart)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return true // who reads now gets its error
		case <-ticker.C:
		}
		now := time.Now()
		if is := generation(); is != last {
			last, at = is, now
			if r.best(now) {
				return true
			}
		}
		switch {
		case now.Sub(at) >= quietAfter:
			return false
		case now.Sub(begin) >= patience:
			return true
		}
	}
}

// rhythm is how long it takes from one change of rules to the next.
type rhythm struct {
	last              time.Time
	gaps              int
	shortest, longest time.Duration
}

// best takes a change, and tells whether the time up to the next one is likely to be a long one: a sync of iptables
// writes its tables one after the other, and the pause is after the last.
func (r *rhythm) best(at time.Time) bool {
	gap, first := at.Sub(r.last), r.last.IsZero()
	r.last = at
	if first {
		return false
	}
	r.gaps++
	if r.gaps == 1 {
		r.shortest, r.longest = gap, gap
		return false
	}
	r.shortest, r.longest = min(r.shortest, gap), max(r.longest, gap)
	return r.longest < 2*r.shortest || gap < r.longest/2
}
