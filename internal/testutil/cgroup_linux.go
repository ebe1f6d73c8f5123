// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ControlGroup makes a control group below one of the test's own, and returns the file that takes processes into it.
// Its first directory belongs to a user. It is removed with the test, after the processes that were started later.
func ControlGroup(t testing.TB, path string, owner int) (procs string) {
	t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root += "/systemd"
	}
	own, err := os.MkdirTemp(root, "svcproxy-test-")
	//nolint:gosec // as the kubelet makes them
	if err := errors.Join(err, os.MkdirAll(filepath.Join(own, path), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the process
		var all []string
		_ = filepath.WalkDir(own, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(all) {
			err := os.Remove(dir)
			for range 600 { // until the process is gone
				if err == nil || !errors.Is(err, unix.EBUSY) {
					break
				}
				time.Sleep(100 * time.Millisecond)
				err = os.Remove(dir)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	first, _, _ := strings.Cut(path, "/")
	if err := os.Chown(filepath.Join(own, first), owner, owner); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(own, path, "cgroup.procs")
}
