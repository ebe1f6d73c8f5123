// SPDX-License-Identifier: Apache-2.0

// Package flock locks files that others may remove meanwhile: that of a journal which goes with its last record.
package flock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Take opens a file, made where it is not there, and locks it until it is closed or the process ends (flock(2)). It
// does not wait: the error is [unix.EWOULDBLOCK] where somebody else has it, and [os.ErrNotExist] where it was removed
// meanwhile; then it has to be tried again.
func Take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = there(f, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// there tells whether a file still is the one of its name: whoever had the lock before may have removed it.
func there(f *os.File, path string) error {
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	mine, err := f.Stat()
	if err == nil && !os.SameFile(now, mine) {
		err = os.ErrNotExist
	}
	return err
}
