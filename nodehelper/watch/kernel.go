// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"
	"sync"
	"time"
)

// maxAnnounced is how many announcements are remembered; the older half of them is forgotten.
const maxAnnounced = 4096

// announced are the times at which the kernel announced changes of its rules, in order. It does not say of which
// Service.
type announced struct {
	times []time.Time
	// gap is the last time at which announcements were lost, or up to which they are forgotten; zero: never.
	gap time.Time
}

// between returns the first and the last time, after one time and until another, at which rules changed, as far as is
// known; ok is false where none did. Where announcements are missing, the first may have been at any time.
func (a *announced) between(after, until time.Time) (first, last time.Time, ok bool) {
	for _, t := range a.times {
		if !t.After(after) || t.After(until) {
			continue
		}
		if last = t; !ok {
			first, ok = t, true
		}
	}
	if ok && a.gap.After(after) {
		first = after
	}
	return first, last, ok
}

// announcements collects them.
type announcements struct {
	mu    sync.Mutex
	heard announced
	works bool // the kernel announces changes, as far as is known
}

// add notes one. lost is set where it says that others were lost before.
func (a *announcements) add(at time.Time, lost bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := &a.heard
	if len(h.times) >= maxAnnounced {
		h.gap = h.times[maxAnnounced/2-1]
		h.times = slices.Clone(h.times[maxAnnounced/2:])
	}
	h.times = append(h.times, at)
	if lost {
		h.gap = at
	}
}

// set notes whether the kernel announces changes.
func (a *announcements) set(works bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.works = works
}

// all returns them, and whether the kernel announces changes.
func (a *announcements) all() (heard announced, works bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	heard = a.heard
	heard.times = slices.Clone(heard.times)
	return heard, a.works
}

// forget forgets those before a time.
func (a *announcements) forget(before time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard.times = slices.DeleteFunc(a.heard.times, func(t time.Time) bool { return t.Before(before) })
}
