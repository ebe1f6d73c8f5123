// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestBurst(t *testing.T) {
	wasPercent, wasLimit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	defer func() {
		debug.SetGCPercent(wasPercent)
		debug.SetMemoryLimit(wasLimit)
	}()
	settings := func() (int, int64) {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p, debug.SetMemoryLimit(-1)
	}
	t.Setenv("GOGC", "50")
	t.Setenv("GOMEMLIMIT", "1GiB")
	Burst(1 << 29)
	if p, l := settings(); p != 100 || l != math.MaxInt64 {
		t.Errorf("the user's settings: %d %d", p, l)
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	Burst(1 << 29)
	if p, l := settings(); p != percent || l != 1<<29 {
		t.Errorf("%d %d", p, l)
	}
}
