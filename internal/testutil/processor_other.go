// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package testutil

import "time"

var started = time.Now()

// processorTime is the time of the day, where the system is not asked for the processor's.
func processorTime() time.Duration { return time.Since(started) }
