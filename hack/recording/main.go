// SPDX-License-Identifier: Apache-2.0

// Command recording runs the plugin and writes what a terminal would show, with the command typed by hand, as an
// asciicast (version 2, https://docs.asciinema.org/manual/asciicast/v2/). hack/recording.sh makes the picture of it
// that README.md begins with.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The terminal, and how fast its user is.
const (
	columns    = 100
	rows       = 37
	prompt     = "\x1b[1;32m$\x1b[0m "
	key        = 35 * time.Millisecond
	beforeKeys = 800 * time.Millisecond
	reading    = 6 * time.Second
)

// The command that is typed, and the exit code that it has to end with, which is asked for next.
const (
	command  = "trace web -n shop --snapshot examples/broken-node"
	exitCode = 1
)

func main() {
	bin := flag.String("bin", "bin/kubectl-svcproxy", "the plugin")
	flag.Parse()
	if err := record(context.Background(), *bin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, bin string, w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	header := map[string]any{"version": 2, "width": columns + 2, "height": rows}
	if err := out.Encode(header); err != nil {
		return err
	}
	var at time.Duration
	show := func(after time.Duration, text string) error {
		at += after
		return out.Encode([]any{at.Seconds(), "o", strings.ReplaceAll(text, "\n", "\r\n")})
	}
	printed, err := run(ctx, bin)
	if err != nil {
		return err
	}
	for _, step := range []struct{ typed, printed string }{
		{"kubectl svcproxy " + command, printed},
		{"echo $?", fmt.Sprintln(exitCode)},
	} {
		if err := show(0, prompt); err != nil {
			return err
		}
		after := beforeKeys
		for _, letter := range step.typed {
			if err := show(after, string(letter)); err != nil {
				return err
			}
			after = key
		}
		if err := show(beforeKeys, "\n"+step.printed); err != nil {
			return err
		}
		at += reading
	}
	return show(0, prompt)
}

// run runs the command, and returns what it prints on a terminal of our width.
func run(ctx context.Context, bin string) (string, error) {
	//nolint:gosec // the plugin that the caller names
	c := exec.CommandContext(ctx, bin, append(strings.Fields(command), "--color=always")...)
	c.Env = append(os.Environ(), fmt.Sprintf("COLUMNS=%d", columns))
	var messages strings.Builder
	c.Stderr = &messages
	text, err := c.Output()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		return "", err
	}
	if code := c.ProcessState.ExitCode(); code != exitCode {
		return "", fmt.Errorf("%s: exit code %d, and should have been %d: %s", command, code, exitCode, &messages)
	}
	if n := strings.Count(string(text), "\n"); n > rows-4 {
		return "", fmt.Errorf("%s: %d lines are too many for a terminal of %d", command, n, rows)
	}
	return string(text), nil
}
