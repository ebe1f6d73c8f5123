// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Rules that change all the time are read when the longest time without a change begins.
func TestJustWritten(t *testing.T) {
	const ms = time.Millisecond
	for name, x := range map[string]struct {
		changes []time.Duration // in a period
		period  time.Duration
		// within is how long after a change at the first offset of a period it returns; left is how long nothing
		// changes then, at least.
		restless bool
		left     time.Duration
	}{
		"a sync of iptables: filter, then nat":     {[]time.Duration{0, 330 * ms}, 1450 * ms, true, 1100 * ms},
		"a sync of nftables every second":          {[]time.Duration{0}, 1000 * ms, true, 980 * ms},
		"a change every ten seconds":               {[]time.Duration{0}, 10 * time.Second, false, 0},
		"nothing changes":                          {nil, time.Second, false, 0},
		"somebody who writes a hundred per second": {[]time.Duration{0}, 10 * ms, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, start := range []time.Duration{3 * ms, 100 * ms, 200 * ms, 340 * ms, 700 * ms, 1300 * ms} {
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					at := func() time.Duration { return start + time.Since(begin) }
					generation := func() uint32 {
						var n uint32
						for i := time.Duration(0); i <= at()/x.period; i++ {
							for _, c := range x.changes {
								if i*x.period+c <= at() {
									n++
								}
							}
						}
						return n
					}
					if got := justWritten(t.Context(), generation); got != x.restless {
						t.Errorf("from %v on: restless is %t after %v", start, got, time.Since(begin))
					}
					if waited := time.Since(begin); waited > patience+looksApart {
						t.Errorf("from %v on: it waits for %v", start, waited)
					}
					if !x.restless {
						return
					}
					was, now := generation(), time.Now()
					for generation() == was {
						time.Sleep(ms)
					}
					if left := time.Since(now); left < x.left {
						t.Errorf("from %v on: %v are left at %v, want %v", start, left, at(), x.left)
					}
				})
			}
		})
	}
}

func TestWaitingForAMomentEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		begin := time.Now()
		justWritten(ctx, func() uint32 { return 1 })
		if waited := time.Since(begin); waited > 50*time.Millisecond {
			t.Errorf("it waits for %v", waited)
		}
	})
}
