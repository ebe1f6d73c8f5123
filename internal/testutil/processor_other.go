// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package testutil

import "time"

var started = time.Now()

// ProcessorTime is the time of the day, where the system is not asked for the processor's.
func ProcessorTime() time.Duration { return time.Since(started) }
