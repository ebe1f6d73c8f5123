// SPDX-License-Identifier: Apache-2.0

package judge

import "sync"

// together runs functions at the same time. A panic of one becomes a panic of [together.wait], so that whoever has a
// node judged may recover from it, as from one of its own goroutine.
type together struct {
	sync.WaitGroup

	mu       sync.Mutex
	panicked any // the value of the first panic
}

// do begins to run a function.
func (t *together) do(f func()) {
	t.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				t.mu.Lock()
				defer t.mu.Unlock()
				if t.panicked == nil {
					t.panicked = v
				}
			}
		}()
		f()
	})
}

// wait waits until all have ended.
func (t *together) wait() {
	t.Wait()
	if t.panicked != nil {
		panic(t.panicked)
	}
}
