// SPDX-License-Identifier: Apache-2.0

package watch

import "time"

// Times of the budget.
const (
	// budgetWindow is over which time the share of a processor is an average: what was not used of it may be used at
	// once.
	budgetWindow = time.Minute
	// budgetAdvance is of which time the share may be used before it has come, to see for the second time what is wrong,
	// or that it is gone: whoever is on call waits for that.
	budgetAdvance = time.Minute
)

// passesLeast is the part of the share that passes may always use: what the API and the kernel tell has to be received
// first, and an agent that has just told of several faults has used up its share in advance, but passes have to go on.
const passesLeast = 0.5

// What is for cheap passes, as those of a small node are.
const (
	// cheapWait is how long the next pass waits at most where the last one was cheap: a fault takes two to be told.
	cheapWait = 30 * time.Second
	// budgetDebt is of which time the share may be used for that before it has come: several faults in a row are one
	// thing, a node that never comes to rest is another.
	budgetDebt = 5 * time.Minute
)

// waitAfter is how long the next pass may have to wait after one that the passes' part of the share takes so long to
// pay for: until it is paid for where the pass was dear (a minute and a half, or more), and for cheapWait at most where
// it was cheap (a minute, or less). In between it is the longer, the dearer the pass was.
func waitAfter(paid time.Duration) time.Duration {
	return min(paid, max(cheapWait, 2*paid-3*cheapWait))
}

// budget bounds the processor time that the agent uses to a share of the time that passes: passes wait for it. All that
// the process does counts.
type budget struct {
	share float64       // of one processor
	left  time.Duration // below zero: more was used than there was
	at    time.Time     // when left was computed; zero: never
	used  time.Duration // the process's time that has been taken into account
	due   time.Time     // until when the next pass may have to wait
}

// begin begins to count, with a whole window's share: what the process has used until then is no part of an average.
func (b *budget) begin(now time.Time, used time.Duration) {
	b.at, b.used, b.left = now, used, b.of(budgetWindow)
}

// of is the share of a time.
func (b *budget) of(d time.Duration) time.Duration { return time.Duration(b.share * float64(d)) }

// besides takes what was used since the last call of any method besides passes. used is the process's time, times how
// many times the share it may use: see [dearTimes].
func (b *budget) besides(now time.Time, used time.Duration, times int) {
	if b.at.IsZero() {
		return
	}
	most := time.Duration((1 - passesLeast) * float64(b.of(now.Sub(b.at))))
	spent := min((used-b.used)/time.Duration(times), most)
	b.accrue(now)
	b.left, b.used = b.left-spent, used
}

// pass takes what a pass has used that has just ended.
func (b *budget) pass(now time.Time, used time.Duration, times int) {
	b.accrue(now)
	spent := (used - b.used) / time.Duration(times)
	b.left, b.used = b.left-spent, used
	paid := time.Duration(float64(spent) / (passesLeast * b.share))
	if b.left > -b.of(budgetDebt) {
		paid = waitAfter(paid)
	}
	b.due = now.Add(paid)
}

// accrue adds what has come up to now.
func (b *budget) accrue(now time.Time) {
	b.left = min(b.of(budgetWindow), b.left+b.of(now.Sub(b.at)))
	b.at = now
}

// wait returns how long the next pass has to wait, if nothing else is done meanwhile. found tells whether the last one
// has found something.
func (b *budget) wait(found bool) time.Duration {
	left := b.left
	if found {
		left += b.of(budgetAdvance)
	}
	if left >= 0 {
		return 0
	}
	return max(0, min(time.Duration(float64(-left)/b.share), b.due.Sub(b.at)))
}

// dearTimes is how many times the share the agent may take where reading the rules is dear: where they are polled, so
// that the next pass is due in ten seconds whether something has changed or not, and where they are those of iptables,
// which a program has to list as text.
const dearTimes = 3

// times is how many times the share the agent may use.
func (a *Agent) times() int {
	if a.polled || a.listed {
		return dearTimes
	}
	return 1
}
