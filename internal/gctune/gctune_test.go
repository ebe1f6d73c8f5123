// SPDX-License-Identifier: Apache-2.0

package gctune

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// The first collection is put off, and sets what is to hold behind it.
func TestAfterFirst(t *testing.T) {
	oldPercent, oldLimit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	defer func() {
		debug.SetGCPercent(oldPercent)
		debug.SetMemoryLimit(oldLimit)
	}()
	settings := func() (percent int, limit int64) {
		percent = debug.SetGCPercent(-1)
		debug.SetGCPercent(percent)
		return percent, debug.SetMemoryLimit(-1)
	}
	t.Setenv("GOGC", "50")
	t.Setenv("GOMEMLIMIT", "")
	AfterFirst(1<<28, PluginPercent, 1<<29)
	if percent, limit := settings(); percent != 100 || limit != math.MaxInt64 {
		t.Errorf("with GOGC set: %d %%, %d bytes; they must stay", percent, limit)
	}
	t.Setenv("GOGC", "")
	AfterFirst(1<<28, PluginPercent, 1<<29)
	if percent, limit := settings(); percent != -1 || limit != 1<<28 {
		t.Errorf("before the first collection: %d %%, %d bytes; want none, and %d bytes", percent, limit, 1<<28)
	}
	for range 100 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		if percent, limit := settings(); percent == PluginPercent && limit == 1<<29 {
			return
		}
	}
	percent, limit := settings()
	t.Errorf("behind it: %d %%, %d bytes; want %d %%, %d bytes", percent, limit, PluginPercent, 1<<29)
}

func TestForShortRun(t *testing.T) {
	oldPercent, oldLimit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	defer func() {
		debug.SetGCPercent(oldPercent)
		debug.SetMemoryLimit(oldLimit)
	}()
	settings := func() (percent int, limit int64) {
		percent = debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return percent, debug.SetMemoryLimit(-1)
	}
	t.Setenv("GOGC", "50")
	t.Setenv("GOMEMLIMIT", "1GiB")
	ForShortRun(PluginPercent, 1<<29)
	if percent, limit := settings(); percent != 100 || limit != math.MaxInt64 {
		t.Errorf("with GOGC and GOMEMLIMIT set: %d %%, %d bytes; they must stay", percent, limit)
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	ForShortRun(PluginPercent, 1<<29)
	if percent, limit := settings(); percent != PluginPercent || limit != 1<<29 {
		t.Errorf("%d %%, %d bytes; want %d %%, %d bytes", percent, limit, PluginPercent, 1<<29)
	}
}

// A small heap grows to its least size before it is collected, a large one by the percentage of an agent.
func TestPercentFor(t *testing.T) {
	for _, c := range []struct {
		live, heap uint64
		want       int
	}{
		{0, 32 << 20, watchPercent}, // nothing was collected yet
		{4 << 20, 32 << 20, 700},
		{16 << 20, 32 << 20, 100},
		{24 << 20, 32 << 20, watchPercent},
		{80 << 20, 32 << 20, watchPercent},
	} {
		if got := percentFor(c.live, c.heap); got != c.want {
			t.Errorf("%d bytes of %d: %d %%, want %d %%", c.live, c.heap, got, c.want)
		}
	}
}

// What is to be done after each collection is done after the second one, too.
func TestAfterEach(t *testing.T) {
	done := make(chan struct{}, 100)
	afterEach(func() {
		select {
		case done <- struct{}{}:
		default: // a collection after the test
		}
	})
	for i := range 3 {
		before := len(done)
		for range 100 {
			runtime.GC()
			if len(done) > before {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if len(done) <= before {
			t.Fatalf("nothing after collection %d", i+1)
		}
	}
}
