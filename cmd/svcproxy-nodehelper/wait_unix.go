// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// wait sleeps until the context ends. As the first process of a container it inherits what the commands run beside it
// leave behind, and has to take note of their end, or they would stay in the process table.
func wait(ctx context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	for {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
				break
			}
		}
		select {
		case <-children:
		case <-ctx.Done():
			return nil
		}
	}
}
