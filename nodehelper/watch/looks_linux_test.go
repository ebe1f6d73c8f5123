// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The lock of a file is found in what the kernel says of all, held and waited for.
func TestTheKernelTellsOfTheLock(t *testing.T) {
	root := t.TempDir()
	look := NodeLooker(root)
	if got := look().Lock; got != "" {
		t.Fatalf("without a lock's file: %q", got)
	}
	file := filepath.Join(root, lockFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	open := func() *os.File {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	if first := open(); look().Lock != LockFree {
		t.Fatalf("nobody holds it: %q", look().Lock)
	} else if err := unix.Flock(int(first.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	} else if got := look().Lock; got != LockHeld {
		t.Fatalf("one holds it: %q", got)
	} else {
		second, got := open(), make(chan error)
		go func() { got <- unix.Flock(int(second.Fd()), unix.LOCK_EX) }()
		for look().Lock != LockWaited {
			if t.Context().Err() != nil {
				t.Fatal("the one who waits was not seen")
			}
		}
		if err := unix.Flock(int(first.Fd()), unix.LOCK_UN); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	if got := look().Lock; got != LockHeld {
		t.Errorf("the other one holds it: %q", got)
	}
}
