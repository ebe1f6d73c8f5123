// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package live

import (
	"context"
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func run(context.Context, string, []snapshot.ProbeTarget, []podns.Pod) ([]snapshot.Probes, error) {
	return nil, errors.New("nodes run Linux, and this system does not")
}

func restore(string) error { return nil }

// Tracked returns nil: this system is not a node.
func Tracked() *snapshot.Tracked { return nil }
