// SPDX-License-Identifier: Apache-2.0

//go:build unix

package testutil

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime is what this process has used of the processor so far.
func ProcessorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails on addresses that are not this process's
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
