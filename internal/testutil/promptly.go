// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"testing"
	"time"
)

// How long reading one input of a fuzz target may take: of the processor's time, and of anybody's, as what waits takes
// none of the former. The machine may be busy with other things for long.
const (
	processorLimit = time.Second
	wallLimit      = 30 * time.Second
)

// Promptly calls do with an input of a fuzz target, and fails if it takes more than a second of the processor's time,
// or half a minute of waiting. An input that does is tried once more.
func Promptly(t testing.TB, do func()) {
	t.Helper()
	var took, waited time.Duration
	for range 2 {
		start, before := time.Now(), ProcessorTime()
		do()
		took, waited = ProcessorTime()-before, time.Since(start)
		if took <= processorLimit && waited <= wallLimit {
			return
		}
	}
	t.Errorf("it took %v of the processor's time and %v in all, twice", took, waited)
}
