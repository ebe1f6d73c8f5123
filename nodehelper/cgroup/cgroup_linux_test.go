// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestFrozen freezes one of two processes, in each tree of control groups that can.
func TestFrozen(t *testing.T) {
	own, err := Of("self")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, h := range own {
		files, ok := map[string]struct{ file, freeze, thaw string }{
			"": {"cgroup.freeze", "1", "0"}, "freezer": {"freezer.state", "FROZEN", "THAWED"},
		}[h.Name]
		if !ok {
			continue
		}
		f, err := h.Open("/", "cgroup.procs", os.O_WRONLY)
		if err != nil {
			t.Logf("%q: %v", h.Name, err)
			continue
		}
		place := filepath.Dir(f.Name())
		f.Close()
		t.Run(files.file, func(t *testing.T) {
			var pids []string
			for range 2 {
				c := exec.CommandContext(t.Context(), "sleep", "60")
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = c.Process.Kill()
					_ = c.Wait()
				})
				pids = append(pids, strconv.Itoa(c.Process.Pid))
			}
			dir := filepath.Join(place, "svcproxy-test-"+strconv.Itoa(os.Getpid()))
			write := func(file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Log(err)
				return
			}
			t.Cleanup(func() {
				_ = write(files.file, files.thaw)
				err := os.WriteFile(filepath.Join(place, "cgroup.procs"), []byte(pids[0]), 0)
				for range 100 {
					if err = errors.Join(err, os.Remove(dir)); err == nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
					err = nil
				}
				t.Error(err)
			})
			if err := errors.Join(write("cgroup.procs", pids[0]), write(files.file, files.freeze)); err != nil {
				t.Log(err)
				return
			}
			tried++
			var got []string
			for range 100 { // it takes a moment
				if got, err = Frozen("/", pids); err != nil || len(got) > 0 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil || !slices.Equal(got, pids[:1]) {
				t.Fatalf("%v %v, want %v", got, err, pids[:1])
			}
			if err := write(files.file, files.thaw); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				if got, err = Frozen("/", pids); err != nil || len(got) == 0 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil || len(got) > 0 {
				t.Errorf("behind it %v %v", got, err)
			}
			// Where the tree cannot be read, nothing is said of it.
			if _, err := Frozen(t.TempDir(), pids); err == nil {
				t.Error("without /sys/fs/cgroup there is no error")
			}
			if got, err := Frozen("/", []string{"0", "4194305"}); err != nil || got != nil {
				t.Errorf("of no process: %v %v", got, err)
			}
		})
	}
	if tried == 0 {
		t.Skip("no control group can be made and frozen here")
	}
}
