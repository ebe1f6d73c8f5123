// SPDX-License-Identifier: Apache-2.0

package watch

import "time"

// budgetWindow is over which time the share of a processor is an average: what was not used of it may be used at once.
const budgetWindow = time.Minute

// budget bounds the processor time of passes to a share of the time that passes.
type budget struct {
	share float64       // of one processor
	left  time.Duration // below zero: more was used than there was
	at    time.Time     // when left was computed; zero: never
}

// accrue adds what has come up to now.
func (b *budget) accrue(now time.Time) {
	most := time.Duration(b.share * float64(budgetWindow))
	if b.at.IsZero() {
		b.left = most
	} else {
		b.left = min(most, b.left+time.Duration(b.share*float64(now.Sub(b.at))))
	}
	b.at = now
}

// wait returns how long the next pass has to wait.
func (b *budget) wait(now time.Time) time.Duration {
	b.accrue(now)
	if b.left >= 0 {
		return 0
	}
	return time.Duration(float64(-b.left) / b.share)
}

// spend takes what a pass has used.
func (b *budget) spend(now time.Time, used time.Duration) {
	b.accrue(now)
	b.left -= used
}

// polledTimes is how many times the share passes may take where rules are polled: the next one is due in ten seconds,
// whether something has changed or not.
const polledTimes = 3

// charged is what of a pass's processor time counts.
func (a *Agent) charged(spent time.Duration) time.Duration {
	if a.polled {
		return spent / polledTimes
	}
	return spent
}
