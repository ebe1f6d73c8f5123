// SPDX-License-Identifier: Apache-2.0

// Package gctune sets Go's garbage collector, and the pages of its heap, for programs that run for a few seconds, and
// for the agent that stays.
package gctune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much garbage may accumulate before a collection, in percent of the memory that is in use. Most of what a short
// run reads it needs until its end: with Go's default of 100 the collector took half of the run's time.
const (
	HelperPercent = 400
	PluginPercent = 200 // it may judge many nodes, one after the other, and a node of 5,000 Services leaves 60 MB behind
)

// HelperMemoryLimit is the limit of the node helper in bytes: half of the memory limit of its pod, as the programs
// that it starts need the other half.
const HelperMemoryLimit = 512 << 20

// HelperFirst is how much memory the node helper takes before its first collection, in bytes: reading the rules of a
// node of 5,000 Services in nftables mode ends before that.
const HelperFirst = 64 << 20

// PluginMemoryLimit is from how many bytes on the plugin collects more often: two nodes of 5,000 Services and the
// objects of the cluster need 250 MB, and the plugin stays below 600 MB with hostile input, too (trace/bounds).
const PluginMemoryLimit = 448 << 20

// WatchMemoryLimit is from how many bytes on the agent of a node collects more often: a pass over a node of 5,000
// Services stays below it, and the programs that a pass runs need memory of their own.
const WatchMemoryLimit = 160 << 20

// watchPercent is the percentage of garbage of an agent: it works for a moment and then sleeps, and what it has left of
// the last pass is in use all the while.
const watchPercent = 50

// watchHeap is how many bytes the heap of an agent may take in any case before it is collected: a small node needs five
// megabytes, and half of that is garbage six times in a pass.
const watchHeap = 32 << 20

// PluginFirst is how much memory the plugin takes before its first collection, in bytes: judging a node of 5,000
// Services ends before that, with all that it reads in use until then. What the collector does meanwhile costs a fifth
// of the run.
const PluginFirst = 272 << 20

// AfterFirst puts the first collection off until the process has taken first bytes, in a program that has called
// [ForShortRun], and has these bytes in huge pages where the system gives them to those that ask; percent and
// memoryLimit are in force from then on. With one of the environment variables GOGC and GOMEMLIMIT it does nothing.
func AfterFirst(first int64, percent int, memoryLimit int64) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(-1)
	inHugePages(first)
	// The first collection finds what nothing refers to.
	unused := new([64]byte)
	runtime.AddCleanup(unused, func(percent int) {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(memoryLimit)
	}, percent)
	debug.SetMemoryLimit(first)
}

// What packages make before main is in use until the end: with Go's default the first collection came before it. This
// package is initialized before most others, as their paths come after its own.
var _ = beforeMain()

func beforeMain() bool {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(HelperPercent)
	}
	return true
}

// ForLongRun makes the collector run often, for a process that stays. main calls it once, also after ForShortRun.
func ForLongRun(memoryLimit int64) {
	ForShortRun(watchPercent, memoryLimit)
	if os.Getenv("GOGC") == "" {
		afterEach(func() { debug.SetGCPercent(percentFor(live(), watchHeap)) })
	}
}

// percentFor is how much garbage may accumulate, in percent of the live bytes: up to a heap of so many bytes, and that
// of an agent at least.
func percentFor(live, heap uint64) int {
	if live == 0 || live >= heap {
		return watchPercent
	}
	return max(watchPercent, int((heap-live)*100/live)) //nolint:gosec // at most a hundred times the heap
}

// live is how many bytes of the heap the last collection has found in use.
func live() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// afterEach calls do after each collection.
func afterEach(do func()) {
	unused := new([64]byte) // a collection finds that nothing refers to it
	runtime.AddCleanup(unused, func(do func()) {
		do()
		afterEach(do)
	}, do)
}

// ForShortRun makes the collector run rarely, at percent of garbage, and often only when memory use approaches
// memoryLimit, in bytes. main calls it once. The environment variables GOGC and GOMEMLIMIT take precedence.
func ForShortRun(percent int, memoryLimit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
