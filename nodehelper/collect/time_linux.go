// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/trace/host"
)

// readTime reads the clock, which rules with a time depend on, and the kernel's own time zone.
func readTime(context.Context, *reader) ([]byte, error) {
	// unix.Gettimeofday does not ask for the time zone (struct timezone of uapi/linux/time.h).
	var zone struct{ minutesWest, dstTime int32 }
	_, _, errno := unix.Syscall(
		unix.SYS_GETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&zone)), 0, //nolint:gosec // for the kernel to write to
	)
	if errno != 0 {
		return nil, errno
	}
	return host.FormatClock(host.Clock{Now: time.Now(), Zone: int(zone.minutesWest), ZoneKnown: true}), nil
}
