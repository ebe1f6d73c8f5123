// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Files that the shell left open for the plugin end with the plugin, and not with its watchdog.
func TestWatchdogInheritsNoFiles(t *testing.T) {
	t.Setenv(watchdogVariable, "yes")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, w.Fd(), syscall.F_SETFD, 0); errno != 0 {
		t.Fatal(errno)
	}
	var g watchdog
	o := Options{
		Config: &rest.Config{Host: "http://192.0.2.1"}, Namespace: "tools", Run: "run1",
		Watchdog: []string{program},
	}
	if err := g.start(&o); err != nil {
		t.Fatal(err)
	}
	defer g.stop()
	w.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(r)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the watchdog holds a file that this process has closed")
	}
}
