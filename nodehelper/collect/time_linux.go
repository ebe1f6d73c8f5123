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
	if _, _, errno := unix.Syscall(unix.SYS_GETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&zone)), 0); errno != 0 {
		return nil, errno
	}
	return host.FormatClock(host.Clock{Now: time.Now(), Zone: int(zone.minutesWest), ZoneKnown: true}), nil
}
