// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/internal/testutil"
	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// build builds the command.
func build(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "svcproxy-nodehelper")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return file
}

func TestCommand(t *testing.T) {
	testutil.Long(t)
	file := build(t)
	for name, c := range map[string]struct {
		args           []string
		in             string
		stdout, stderr string // how they begin
		code           int
	}{
		"version": {args: []string{"version"}, stdout: "svcproxy-nodehelper "},
		"help": {
			args: []string{"-h"}, stderr: "svcproxy-nodehelper is the part of kubectl svcproxy that runs on a node",
		},
		"no such command": {
			args: []string{"dance"}, stderr: `error: "dance" is not a command of svcproxy-nodehelper: use serve, wait, watch or version`,
			code: 2,
		},
		"a word too many": {
			args: []string{"version", "now"}, stderr: `error: "now" is one argument too many: see svcproxy-nodehelper -h`, code: 1,
		},
		"expire without a plan": {
			args: []string{"expire"}, stderr: "error: expire takes the name of one plan, and 0 arguments were given", code: 1,
		},
		"nobody at stdin": {stderr: "error: it ended without any output", code: 1},
		"nobody says hello": {
			args: []string{"serve", "--hello=1ms"}, stderr: "error: no hello arrived in time: 1ms", code: 1,
		},
		"another protocol": {
			in: "\x16svcproxy-wire {\"protocol\":99}\n", stdout: "\x16svcproxy-wire {",
			stderr: "error: the other side is newer: it speaks version 99 of the protocol", code: 1,
		},
		"a plugin that leaves": {in: "\x16svcproxy-wire {\"protocol\":2}\n", stdout: "\x16svcproxy-wire {"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), file, c.args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			cmd.Stdin = strings.NewReader(c.in)
			if name == "nobody says hello" {
				hold, release, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer release.Close()
				cmd.Stdin = hold
			}
			err := cmd.Run()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, s := range []struct{ name, got, want string }{
				{"stdout", stdout.String(), c.stdout}, {"stderr", stderr.String(), c.stderr},
			} {
				if !strings.HasPrefix(s.got, s.want) || s.want == "" && s.got != "" {
					t.Errorf("%s is %q, want %q …", s.name, s.got, s.want)
				}
			}
		})
	}
}

// A helper that is told to go goes in order, though its plugin is still there.
func TestSignal(t *testing.T) {
	testutil.Long(t)
	cmd := exec.CommandContext(t.Context(), build(t))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.NewClient(stdout, stdin, "v1", wire.DefaultLimits); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A helper whose plugin is killed ends, whether that has said hello or not: the system closes the pipe.
func TestTheHelperEndsWithAKilledPlugin(t *testing.T) {
	program := build(t)
	for name, hello := range map[string]bool{"before it said hello": false, "between two requests": true} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			plugin := exec.CommandContext(t.Context(), "sleep", "3600")
			plugin.Stdout = w
			if err := plugin.Start(); err != nil {
				t.Fatal(err)
			}
			helper := exec.CommandContext(t.Context(), program, "serve", "--hello=1h", "--deadline=1h")
			helper.Stdin = r
			stdout, err := helper.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := helper.Start(); err != nil {
				t.Fatal(err)
			}
			if hello {
				if _, err := wire.NewClient(stdout, w, "v1", wire.DefaultLimits); err != nil {
					t.Error(err)
				}
			}
			if err := errors.Join(r.Close(), w.Close()); err != nil { // only these two processes have them
				t.Error(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- helper.Wait() }()
			select {
			case err := <-ended:
				t.Fatalf("it ended before its plugin: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			if err := plugin.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = plugin.Wait() // killed: that is the point
			select {
			case err := <-ended:
				if (err == nil) != hello {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("it stays")
				_ = helper.Process.Kill()
			}
		})
	}
}

// wait reaps what it inherits, and leaves in order when it is told to.
func TestWait(t *testing.T) {
	child, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Skipf("there is no process to reap: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- commands["wait"](ctx, nil, nil) }()
	// A process that nobody has reaped can still be signalled.
	for syscall.Kill(child.Pid, 0) == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := commands["wait"](t.Context(), []string{"x"}, nil); err == nil {
		t.Error("wait takes an argument")
	}
}
