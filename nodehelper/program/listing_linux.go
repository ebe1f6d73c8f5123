// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Limits of a listing of the journal.
const (
	listedRecords   = 500
	listedFrontends = 50
	listedSize      = 64 << 20 // of a record that is read
)

// Listing lists the journal of this process's network namespace, below the node's file system. It takes no lock: a
// record is replaced in one step.
func Listing(root string) (*snapshot.Journal, error) {
	dir, err := journalDirOf(root)
	if err != nil {
		return nil, err
	}
	return listing(dir)
}

// journalDirOf returns the directory of the journal of this thread's network namespace.
func journalDirOf(root string) (string, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return "", fmt.Errorf("cannot determine the network namespace: %w", err)
	}
	return filepath.Join(root, journalDir, strconv.FormatUint(s.Ino, 10)), nil
}

func listing(dir string) (*snapshot.Journal, error) {
	out := &snapshot.Journal{Records: []snapshot.JournalRecord{}}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok {
			continue
		}
		if len(out.Records) == listedRecords {
			out.More++
			continue
		}
		r, err := listed(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // its path has ended meanwhile; it was there
			r = snapshot.JournalRecord{Unread: "it is gone"}
		case err != nil:
			r = snapshot.JournalRecord{Unread: err.Error()}
		}
		r.Plan = name
		out.Records = append(out.Records, r)
	}
	return out, nil
}

// listed reads what a listing says of a record, of whatever version that is.
func listed(path string) (r snapshot.JournalRecord, err error) {
	data, err := readRegular(path, listedSize)
	if err != nil {
		return r, err
	}
	var record struct {
		Mode string
		Ends time.Duration
		Plan struct {
			Frontends []struct{ Address, Protocol string }
		}
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return r, err
	}
	r.Mode, r.Expires = record.Mode, expiry(record.Ends)
	all := record.Plan.Frontends
	for _, f := range all[:min(len(all), listedFrontends)] {
		r.Frontends = append(r.Frontends, f.Address+"/"+f.Protocol)
	}
	r.MoreFrontends = len(all) - len(r.Frontends)
	return r, nil
}
