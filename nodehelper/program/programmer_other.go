// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package program

import (
	"context"
	"errors"
	"io"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
)

// Programmer programs nothing on this system.
type Programmer struct{}

var errNotHere = errors.New("paths can be programmed on Linux only")

// New makes a Programmer.
func New(Options) (*Programmer, error) { return &Programmer{}, nil }

// Apply fails.
func (*Programmer) Apply(context.Context, *Request) (*wire.ProgramResult, error) {
	return nil, errNotHere
}

// Undo fails.
func (*Programmer) Undo(context.Context, string) ([]*Record, error) { return nil, errNotHere }

// Orphans fails.
func (*Programmer) Orphans(context.Context, []string, bool) (*wire.Orphans, error) {
	return nil, errNotHere
}

// Adopt finds nothing.
func (*Programmer) Adopt(context.Context, string) error { return nil }

// Held returns nothing.
func (*Programmer) Held() []*Record { return nil }

// Hold returns at once.
func (*Programmer) Hold(context.Context) error { return nil }

// Expire fails.
func (*Programmer) Expire(context.Context, string, io.WriteCloser) error { return errNotHere }
