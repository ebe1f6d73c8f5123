// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
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
						for from := time.Duration(0); from <= at(); from += x.period {
							for _, c := range x.changes {
								if from+c <= at() {
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

// Rules that change while they are read are read again; the next reading knows of it, and that it is over.
func TestRulesThatChangeAreReadAgain(t *testing.T) {
	if !testutil.Isolate(t, unix.CLONE_NEWNET, "nft") {
		return
	}
	nft := func(text string) { testutil.Run(t, text, "nft", "-f", "-") }
	nft("table ip k {\nchain c {\n}\n}\n")
	memory := &Memory{}
	reads := 0
	var during func()
	read := func() {
		t.Helper()
		reads = 0
		r := &reader{
			Options: Options{Files: []string{snapshot.NFTFile, snapshot.TimeFile}, Memory: memory}, kernel: newKernel(""),
		}
		counts := func(_ context.Context, _ *reader) ([]byte, error) {
			reads++
			during()
			return []byte("x"), nil
		}
		was := rules
		rules = []source{{snapshot.TimeFile, counts}}
		defer func() { rules = was }()
		if _, err := r.settled(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name     string
		during   func()
		reads    int
		restless bool
	}{
		{"nothing changes", func() {}, 1, false},
		{"one change", func() {
			if reads == 1 {
				nft("add rule ip k c accept\n")
			}
		}, 2, false},
		{"one change, and it takes long", func() {
			if reads == 1 {
				nft("add rule ip k c accept\n")
				time.Sleep(longRead)
			}
		}, 2, false},
		{"always another one", func() { nft("add rule ip k c accept\n") }, settledReads, true},
		{"they are known to change, and do not any more", func() {}, 1, false},
	} {
		during = x.during
		read()
		if reads != x.reads || memory.restless != x.restless {
			t.Errorf("%s: %d readings, restless %t; want %d, %t", x.name, reads, memory.restless, x.reads, x.restless)
		}
	}
}
