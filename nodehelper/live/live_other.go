// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package live

import (
	"context"
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func run(context.Context, []snapshot.ProbeTarget) ([]snapshot.Probes, error) {
	return nil, errors.New("nodes run Linux, and this system does not")
}

func tracked() *snapshot.Tracked { return nil }
