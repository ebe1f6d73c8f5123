// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"runtime/debug"
	"testing"
)

// The tests judge the same small nodes thousands of times, which leaves much garbage and little else: with Go's
// default, to collect it took a third of their time.
func TestMain(m *testing.M) {
	const garbage = 400 // percent of what is in use
	debug.SetGCPercent(garbage)
	m.Run() // the testing package ends the process with its result
}
