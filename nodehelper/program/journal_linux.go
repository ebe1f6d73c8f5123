// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// newRecord begins the name of a record that is being written.
const newRecord = ".new-"

// recordSuffix ends the name of the file of a record, which begins with the plan's.
const recordSuffix = ".json"

// journal keeps the records of one network namespace.
type journal struct{ dir string }

// sinceStart is the time since the system's start. Unlike the time of day it does not jump, and it is the same to all
// processes; the journal lasts no longer than that (see [journalDir]).
func sinceStart() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // it fails for another clock only
	return time.Duration(t.Nano())
}

// expiry is when a record ends, by the time of day that is now. A time that no record may have is that of another start
// of the system, and over.
func expiry(ends time.Duration) time.Time {
	left := ends - sinceStart()
	if left > wire.MaxTTL {
		left = 0
	}
	return time.Now().Add(left)
}

// write keeps a record, and returns when it is on its medium.
func (j journal) write(r *Record) error {
	if r.Ends == 0 {
		r.Ends = sinceStart() + time.Until(r.Expires)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(data) > maxRecord {
		return fmt.Errorf("the plan is too large: its record has %d bytes, and may have %d", len(data), maxRecord)
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(j.dir, newRecord)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), j.path(r.Plan.Name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return j.sync()
}

func (j journal) path(name string) string { return filepath.Join(j.dir, name+recordSuffix) }

func (j journal) sync() error {
	d, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove removes a record.
func (j journal) remove(name string) error {
	err := os.Remove(j.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return j.sync()
}

// list returns all records that can be read, and those that cannot.
func (j journal) list() (records []*Record, unreadable []*UnreadableError, err error) {
	entries, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok {
			continue
		}
		r, err := j.read(j.path(name))
		if err != nil {
			unreadable = append(unreadable, &UnreadableError{Path: j.path(name), Plan: name, Err: err})
			continue
		}
		records = append(records, r)
	}
	return records, unreadable, nil
}

// others returns the records of other plans in the modes for which is true, and those that cannot be read.
func (j journal) others(r *Record, is func(*Record) bool) (others []*Record, unreadable []*UnreadableError, err error) {
	others, unreadable, err = j.list()
	others = slices.DeleteFunc(others, func(o *Record) bool { return o.Plan.Name == r.Plan.Name || !is(o) })
	unreadable = slices.DeleteFunc(unreadable, func(u *UnreadableError) bool { return u.Plan == r.Plan.Name })
	return others, unreadable, err
}

// maxRecord is the size of the largest record that is written and read, in bytes.
const maxRecord = 128 << 20

// read reads a record, which others may have put there: it is checked as a request of a plugin is.
func (j journal) read(path string) (*Record, error) {
	data, err := readRegular(path, maxRecord)
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("it is of version %d, and this program knows %d: undo it with the version that wrote it",
			r.Version, recordVersion)
	}
	r.Expires = expiry(r.Ends) // the time of day may have been set since
	if r.Plan.Name != strings.TrimSuffix(filepath.Base(path), recordSuffix) {
		return nil, fmt.Errorf("it is of the plan %.20q, which is not the name of the file", r.Plan.Name)
	}
	return &r, r.check()
}

// readRegular reads a regular file of a bounded size. It does not wait for the other end of a pipe, and does not follow
// a link.
func readRegular(path string, limit int64) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, errors.New("it is a symbolic link, not a file")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is not a file, but %v", info.Mode().Type())
	case info.Size() > limit:
		return nil, fmt.Errorf("it has %d bytes, and may have %d", info.Size(), limit)
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return data, err
}
