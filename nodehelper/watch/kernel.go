// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"
	"sync"
	"time"
)

// maxAnnounced is how many announcements are remembered; the older half of them is forgotten.
const maxAnnounced = 4096

// announcements are the times at which the kernel announced changes of its rules.
type announcements struct {
	mu    sync.Mutex
	times []time.Time
	works bool // the kernel announces changes, as far as is known
}

// add notes one.
func (a *announcements) add(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.times) >= maxAnnounced {
		a.times = slices.Clone(a.times[maxAnnounced/2:])
	}
	a.times = append(a.times, at)
}

// set notes whether the kernel announces changes.
func (a *announcements) set(works bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.works = works
}

// all returns the times in order, and whether the kernel announces changes.
func (a *announcements) all() (times []time.Time, works bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.times), a.works
}

// forget forgets those before a time.
func (a *announcements) forget(before time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = slices.DeleteFunc(a.times, func(t time.Time) bool { return t.Before(before) })
}
