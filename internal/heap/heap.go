// SPDX-License-Identifier: Apache-2.0

// Package heap is how the project's programs collect garbage.
package heap

import (
	"os"
	"runtime/debug"
)

// percent is how much garbage there may be, of what is in use. A run is short, and most of what it reads it needs until its end: with the usual
// 100 half of its time goes to looking for garbage.
const percent = 400

// Helper is the limit of the node helper: half of what its pod may have, as the programs that it runs have the other half.
const Helper = 512 << 20

// Burst is called once, by main: garbage is collected seldom, and often only where limit, in bytes, is near. The settings of Go's runtime, GOGC and GOMEMLIMIT,
// go before.
func Burst(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
