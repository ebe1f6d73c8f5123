// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"math"
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	b := &budget{share: 0.1}
	b.besides(after(0), time.Hour, 1)
	if w := b.wait(false); w != 0 {
		t.Errorf("the first pass waits for %v", w)
	}
	b.begin(after(0), 5*time.Second)
	b.besides(after(0), 5*time.Second, 1)
	b.pass(after(0), 11*time.Second, 1) // a minute's share
	if w := b.wait(false); w != 0 {
		t.Errorf("of the first minute's share nothing is to be had at once: %v", w)
	}
	b.besides(after(60), 11*time.Second, 1)
	b.pass(after(60), 17*time.Second, 1)
	if w := b.wait(false); w != 0 {
		t.Errorf("what was saved up is not to be had: %v", w)
	}
	b.pass(after(60), 19*time.Second, 1)
	if w := b.wait(false); w != 20*time.Second {
		t.Errorf("the next pass waits for %v", w)
	}
	b.besides(after(70), 19*time.Second, 1)
	if w := b.wait(false); w != 10*time.Second {
		t.Errorf("10 s later it waits for %v", w)
	}
	b.besides(after(10_000), 19*time.Second, 1)
	if w := b.wait(false); w != 0 || b.left != 6*time.Second {
		t.Errorf("%v are saved up", b.left)
	}
	b.pass(after(10_000), 31*time.Second, dearTimes) // of whose 12 s a third counts
	if b.left != 2*time.Second {
		t.Errorf("where rules are polled, %v are left", b.left)
	}
}

// Where the rules have to be polled, or listed by a program, a pass may take more.
func TestTheShareOfEachMode(t *testing.T) {
	for name, want := range map[string]int{
		"nftables": 1, "iptables": dearTimes, "iptables-legacy": dearTimes, "ipvs": dearTimes,
	} {
		c := capture(t, name, "node1")
		a := c.agent(t)
		a.announces(true)
		look(t, a, 0)
		if got := a.times(); got != want {
			t.Errorf("%s: %d times the share, want %d", name, got, want)
		}
	}
}

// Where something was found the next pass is made though the share is used up, but not any number of them.
func TestBudgetInAdvance(t *testing.T) {
	b := &budget{share: 0.1}
	b.begin(after(0), 0)
	b.pass(after(0), 11*time.Second, 1)
	if w, found := b.wait(false), b.wait(true); w != 50*time.Second || found != 0 {
		t.Errorf("the next pass waits for %v, where something was found for %v", w, found)
	}
	b.pass(after(0), 15*time.Second, 1)
	if w := b.wait(true); w != 30*time.Second {
		t.Errorf("the share of more than a minute to come is used: the next pass waits for %v", w)
	}
}

// An agent that had told of several faults and repairs within two minutes saw no further change for two more.
func TestBudgetOfAPassAfterMany(t *testing.T) {
	b := &budget{share: 0.1}
	b.begin(after(0), 0)
	for used := 6 * time.Second; used <= 2*time.Minute; used += 6 * time.Second {
		b.pass(after(0), used, 1) // at the end nineteen minutes' share more than there was
	}
	const most = 2 * time.Minute // in which half of the share pays for another such pass
	for _, tt := range []struct{ since, want time.Duration }{
		{0, most}, {20 * time.Second, most - 20*time.Second}, {most, 0}, {time.Hour, 0},
	} {
		b.besides(after(tt.since.Seconds()), 2*time.Minute, 1)
		for _, found := range []bool{false, true} {
			if w := b.wait(found); w != tt.want {
				t.Errorf("%v after a pass the next one waits for %v more, want %v", tt.since, w, tt.want)
			}
		}
	}
}

// A fault on a small node takes two passes to be told, and it is not minutes; the passes of a large node are paid for.
func TestBudgetWaitsAfterCheapPasses(t *testing.T) {
	const b = DefaultShare * passesLeast
	for _, tt := range []struct {
		spent float64 // seconds of a processor
		want  float64 // seconds
	}{
		{0.1, 14.3}, {0.21, 30}, {0.3, 30}, {0.42, 30}, {0.5, 52.9}, {0.63, 90}, {0.9, 128.6}, {2, 285.7},
	} {
		paid := time.Duration(tt.spent / b * float64(time.Second))
		if got := waitAfter(paid).Seconds(); math.Abs(got-tt.want) > 0.1 {
			t.Errorf("after a pass of %v s the next one waits for %.1f s, want %v", tt.spent, got, tt.want)
		}
	}
}

// However many faults there are, the agent uses its share, and in advance that of a few minutes.
func TestBudgetOfCheapPassesWithoutEnd(t *testing.T) {
	const pass, hours = 420 * time.Millisecond, 10
	for _, besides := range []float64{0, 0.5, 1, 5} { // of the share
		b := &budget{share: DefaultShare}
		var used, forPasses time.Duration
		b.begin(after(0), used)
		for s := 1.0; s <= hours*3600; s++ {
			used += time.Duration(besides * float64(b.of(time.Second)))
			b.besides(after(s), used, 1)
			if b.wait(true) == 0 {
				used += pass
				forPasses += pass
				b.pass(after(s), used, 1)
			}
		}
		most := b.of(hours*time.Hour) - min(b.of(hours*time.Hour)/2, time.Duration(besides*float64(b.of(hours*time.Hour))))
		most += b.of(budgetDebt+budgetWindow+budgetAdvance) + 2*pass
		if least := b.of(hours*time.Hour) / 2; forPasses < least-pass || forPasses > most {
			t.Errorf("besides %v of the share, passes took %v, want %v to %v", besides, forPasses, least, most)
		}
	}
}

// What the process does besides passes counts, but passes go on whatever it is.
func TestBudgetBesidesPasses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		besides float64 // of a processor
		passes  int     // of 0.1 s each, in 1,000 s; 12 of them by what is there at the beginning
	}{
		{"nothing", 0, 212},
		{"half of the share", 0.01, 112},
		{"more than the share", 0.5, 112},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &budget{share: 0.02}
			used, passes := time.Duration(0), 0
			b.begin(after(0), used)
			for s := 1.0; s <= 1000; s++ {
				used += time.Duration(tt.besides * float64(time.Second))
				b.besides(after(s), used, 1)
				if b.wait(false) == 0 {
					used += 100 * time.Millisecond
					passes++
					b.pass(after(s), used, 1)
				}
			}
			if passes < tt.passes-tt.passes/20 || passes > tt.passes+tt.passes/20+1 {
				t.Errorf("%d passes, want %d", passes, tt.passes)
			}
		})
	}
}
