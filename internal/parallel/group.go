// SPDX-License-Identifier: Apache-2.0

// Package parallel does several things at the same time, and something with each member of a list on all processors.
package parallel

import "sync"

// Group runs functions at the same time. A panic of one becomes a panic of [Group.Wait], so that whoever waits may
// recover from it, as from one of its own goroutine. The zero Group is ready for use.
type Group struct {
	running sync.WaitGroup

	mu       sync.Mutex
	panicked any // the value of the first panic
}

// Go begins to run a function.
func (g *Group) Go(f func()) {
	g.running.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				g.mu.Lock()
				defer g.mu.Unlock()
				if g.panicked == nil {
					g.panicked = v
				}
			}
		}()
		f()
	})
}

// Wait waits until all have ended.
func (g *Group) Wait() {
	g.running.Wait()
	if g.panicked != nil {
		panic(g.panicked)
	}
}
