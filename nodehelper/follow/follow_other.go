// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package follow

import (
	"context"
	"errors"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Following is under way: on Linux alone.
type Following struct{}

// Begin says that this system cannot follow connections.
func Begin(r Request) (*Following, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return nil, errors.New("nodes run Linux, and this system does not")
}

// End returns nothing.
func (*Following) End(context.Context, []snapshot.Flow) (*snapshot.Followed, error) {
	return &snapshot.Followed{}, nil
}

// Close does nothing.
func (*Following) Close() error { return nil }
