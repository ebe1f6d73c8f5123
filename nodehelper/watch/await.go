// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"time"
)

// A change is seldom alone: a pass begins when nothing has changed for quietTime, or busyTime after the first change.
const (
	quietTime = 300 * time.Millisecond
	busyTime  = time.Second
)

// pause waits, unless the context ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await waits for the next pass, and returns what begins it.
func (a *Agent) await(ctx context.Context) (reason string, err error) {
	due, reason := a.next, reasonPeriodic
	if a.polled && !a.failed {
		due, reason = a.at.Add(a.Poll), reasonPoll
	}
	// A pass that has failed has shown nothing of what is waited for, and is tried again in its own time.
	if n, in := a.settler.waiting(time.Now(), a.grace); n > 0 && !a.failed {
		// Not at once: what waits longer than its time does so for a second sighting.
		if at := time.Now().Add(max(in, quietTime)); at.Before(due) {
			due, reason = at, reasonSettle
		}
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case reason = <-a.woken:
			waiting = false
			if err := a.quieten(ctx); err != nil {
				return "", err
			}
		case <-timer.C:
			waiting = false
		case <-time.After(stateTime):
			a.showState()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	for {
		a.budget.besides(time.Now(), processorTime(), a.times())
		wait := a.budget.wait(len(a.settler.seen) > 0)
		if wait == 0 {
			break
		}
		a.showState()
		if err := pause(ctx, min(wait, stateTime)); err != nil {
			return "", err
		}
	}
	select {
	case <-a.woken: // the pass that begins now sees that change, too
	default:
	}
	return reason, nil
}

// quieten waits until changes have ended for a moment.
func (a *Agent) quieten(ctx context.Context) error {
	for begin := time.Now(); time.Since(begin) < busyTime; {
		select {
		case <-a.woken:
			if err := pause(ctx, quietTime/10); err != nil { // of thousands of changes not each needs to be taken
				return err
			}
		case <-time.After(quietTime):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
