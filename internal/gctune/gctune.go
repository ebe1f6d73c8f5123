// SPDX-License-Identifier: Apache-2.0

// Package gctune sets Go's garbage collector for programs that run for a few seconds.
package gctune

import (
	"os"
	"runtime/debug"
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

// PluginMemoryLimit is from how many bytes on the plugin collects more often: two nodes of 5,000 Services and the
// objects of the cluster need 250 MB, and the plugin stays below 600 MB with hostile input, too (trace/bounds).
const PluginMemoryLimit = 448 << 20

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
