// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package watch

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

var errSystem = errors.New("nodes run Linux, and this system does not")

func listen(_ context.Context, _ func(bool), _ func(bool), failed func(error)) { failed(errSystem) }

func processorTime() time.Duration { return 0 }

// NodeReader returns what fails: this system is not a node.
func NodeReader(string, string) func(context.Context) (*snapshot.Node, error) {
	return func(context.Context) (*snapshot.Node, error) { return nil, errSystem }
}

// NodeLooker returns what shows nothing: this system is not a node.
func NodeLooker(string) func() Moment { return func() Moment { return Moment{} } }

// Enter fails: this system is not a node.
func Enter(string, string, []string) (net.Listener, error) { return nil, errSystem }
