// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package gctune

import (
	"bytes"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inHugePages has the kernel back the first size bytes of the heap by pages of 2 MiB in place of 4 KiB. To get memory
// from the kernel in small pages took a third of a run's processor time, in a virtual machine more than half. Debian
// and Ubuntu give huge pages to those that ask (transparent_hugepage/enabled is "madvise"). Where everybody has them,
// or nobody, nothing is done, nor where memory counts that nothing has touched, nor where little is free: the kernel
// would move the memory of others to make room.
//
// Go's heap is contiguous and grows from its beginning: the memory of a large allocation is the heap's again after a
// collection, and the kernel remembers what it was told of it. Nothing touches it, so that it takes none; but an
// allocation that begins in memory that was in use before is cleared, all of it. In parts it is the first that is.
func inHugePages(size int64) {
	if !asksForHugePages() || rationed() || short(size) {
		return
	}
	const part = 4 << 20
	parts := make([][]byte, 0, (size+part-1)/part)
	for rest := size; rest > 0; rest -= part {
		memory := make([]byte, min(rest, part))
		parts = append(parts, memory)
		// An error changes nothing: pages stay small.
		_ = unix.Madvise(memory, unix.MADV_HUGEPAGE)
	}
	runtime.KeepAlive(parts)
	runtime.GC()
}

// asksForHugePages tells whether programs have to ask for huge pages, and get them.
func asksForHugePages() bool {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && bytes.Contains(enabled, []byte("[madvise]"))
}

// short tells whether less than twice as many bytes are free.
func short(size int64) bool {
	var s unix.Sysinfo_t
	return unix.Sysinfo(&s) != nil || s.Freeram*uint64(s.Unit) < 2*uint64(size) //nolint:gosec // not negative
}

// rationed tells whether memory counts that nothing has touched: by a limit of the address space, or because the kernel
// promises no more than it has.
func rationed() bool {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) != nil || limit.Cur != unix.RLIM_INFINITY {
		return true
	}
	overcommit, err := os.ReadFile("/proc/sys/vm/overcommit_memory")
	return err != nil || bytes.HasPrefix(overcommit, []byte("2"))
}
