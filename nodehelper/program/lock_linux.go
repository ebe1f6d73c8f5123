// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/flock"
)

// lock locks the journal, or fails with EWOULDBLOCK, or with ErrNotExist where it was removed meanwhile: then it has to
// be tried again.
func (j journal) lock() (*os.File, error) {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := flock.Take(j.lockFile())
	if err != nil {
		return nil, err
	}
	// Programs that this process runs inherit it: where they outlive the process they still change the node, and nobody
	// else may meanwhile.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// unlock gives the lock back, also where a program that has inherited it still runs.
func (j journal) unlock(f *os.File) {
	j.sweep()
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}

func (j journal) lockFile() string { return filepath.Join(j.dir, "lock") }

// sweep removes the journal where it has no record, and what a helper left that was killed as it wrote one. The lock is
// held.
func (j journal) sweep() {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return
	}
	left := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newRecord) || os.Remove(filepath.Join(j.dir, e.Name())) != nil {
			left++
		}
	}
	if left != 1 {
		return
	}
	// Somebody else may make the directory anew meanwhile; then it stays.
	_ = os.Remove(j.lockFile())
	_ = os.Remove(j.dir)
	_ = os.Remove(filepath.Dir(j.dir))
}
