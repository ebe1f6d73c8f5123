// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package collect

import (
	"context"
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
)

// WriterRoots is this process's own file system.
func WriterRoots(string) []string { return []string{"/"} }

func collect(context.Context, Options, func(File) error) error {
	return errors.New("nodes run Linux, and this system does not")
}

func collectPod(context.Context, Options, podns.Pod, func(File) error) error {
	return errors.New("nodes run Linux, and this system does not")
}
