// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package gctune

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"testing"
)

// The kernel has noted what was asked for, where it is asked at all, and nothing of the memory is in use, also where
// the heap has free memory that was in use before.
func TestInHugePages(t *testing.T) {
	const size = 1 << 30 // more than any test has in use
	func() {
		used := make([]byte, 3<<20)
		for i := range used {
			used[i] = 1
		}
		runtime.KeepAlive(used)
	}()
	runtime.GC()
	resident := func() (pages int) {
		statm, err := os.ReadFile("/proc/self/statm")
		if err == nil {
			_, err = fmt.Sscanf(string(statm), "%d %d", new(int), &pages)
		}
		if err != nil {
			t.Fatal(err)
		}
		return pages
	}
	want := asksForHugePages() && !rationed() && !short(size)
	before := resident()
	inHugePages(size)
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	if got := regexp.MustCompile(`(?m)^VmFlags:.* hg\b`).Match(maps); got != want {
		t.Errorf("the kernel gives huge pages: %v, want %v", got, want)
	}
	if after, most := resident(), before+size/os.Getpagesize()/16; after > most {
		t.Errorf("%d pages are in use, %d before; want %d at most", after, before, most)
	}
}
