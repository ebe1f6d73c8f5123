// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"testing"
	"time"
)

// second is how long reading one input of a fuzz target may take.
const second = time.Second

// Promptly calls do with an input of a fuzz target, and fails if it takes more than a second: an input that does is
// tried once more, as the machine may be busy.
func Promptly(t testing.TB, do func()) {
	t.Helper()
	var took time.Duration
	for range 2 {
		start := time.Now()
		do()
		if took = time.Since(start); took <= second {
			return
		}
	}
	t.Errorf("it took %v, twice", took)
}
