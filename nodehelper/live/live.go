// SPDX-License-Identifier: Apache-2.0

// Package live asks the kernel: it makes real connections to the frontends of a Service and tells what became of them.
// It sends no payload, and what it opens it closes.
package live

import (
	"context"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Limits of a run, whatever is asked for.
const (
	MaxProbes  = 200             // of one target
	MaxTargets = 500             // of one run
	Patience   = 2 * time.Second // for an answer; the kernel repeats a SYN once in this time
	atOnce     = 8               // probes in flight
)

// Run probes targets, a few at a time, and returns what became of each, in their order. A target that cannot be probed
// has an Error of its own. root is the node's file system, where tracing keeps its journal. The error is that of the
// context.
func Run(ctx context.Context, root string, targets []snapshot.ProbeTarget) (snapshot.Probing, error) {
	before, begun := tracked(), time.Now()
	list, err := run(ctx, root, targets)
	p := snapshot.Probing{Targets: list}
	if after := tracked(); before != nil && after != nil {
		p.Tracked = &snapshot.Tracked{
			Seconds: time.Since(begun).Seconds(), Invalid: after.Invalid - before.Invalid,
			InsertFailed: after.InsertFailed - before.InsertFailed, Drop: after.Drop - before.Drop,
		}
	}
	return p, err
}

// Restore puts back what probing changed on a node, and a helper that was killed left. root is as for Run.
func Restore(root string) error { return restore(root) }
