// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// collecting tells this program that it is to be one whose garbage is collected.
const collecting = "SVCPROXY_TEST_COLLECTING"

func TestMain(m *testing.M) {
	if os.Getenv(collecting) == "" {
		m.Run()
		return
	}
	commands["collect"] = func(context.Context, []string, io.Writer) error {
		for range 5 {
			runtime.GC()
			time.Sleep(10 * time.Millisecond) // what is collected is closed by another goroutine
		}
		if _, err := unix.FcntlInt(1, unix.F_GETFD, 0); err != nil {
			return errors.Join(errors.New("file descriptor 1 is closed"), err)
		}
		return nil
	}
	os.Args = []string{os.Args[0], "collect"}
	if code := run(); code != 0 {
		panic(code)
	}
}

// An agent that never writes to stdout lost the file: the socket on which it listens got the number, and in the program
// that was executed in its place the number was closed twice, by then that of the socket with the kernel's
// notifications, or of a file that was being read.
func TestStdoutStaysOpenWhileNobodyUsesIt(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), collecting+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
