// SPDX-License-Identifier: Apache-2.0

// Package live makes real connections to the frontends of a Service, and returns their results. It sends no payload but
// one that it is given, and closes what it opens.
package live

import (
	"context"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/podns"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Limits of a run, whatever is asked for.
const (
	MaxProbes  = 200  // of one target
	MaxTargets = 500  // of one run
	MaxOpen    = 1000 // connections that are waited for
	// MaxPayload is how many bytes to send over a connection: more than the largest packets of Ethernet, and less than
	// an endpoint's kernel keeps of what no process reads, which it would no longer acknowledge.
	MaxPayload = 16 << 10
	atOnce     = 8 // probes in flight that are not slow
	// Patience is how long an answer is waited for: the kernel repeats a SYN once in this time, after one second.
	Patience = 1300 * time.Millisecond
	// slow is after which time a probe no longer counts as in flight: most likely nobody will answer it.
	slow = 100 * time.Millisecond
	// answering is how long an answer to a payload is waited for.
	answering = time.Second
	// tracedPatience is how long a traced connection is waited for: the probes tell what becomes of slower ones.
	tracedPatience = 400 * time.Millisecond
)

// tracingTime is after how long no target's tracing begins any more. Tests have a longer one.
var tracingTime = 1500 * time.Millisecond

// Run probes targets, a few at a time, and returns the results in their order. A target that cannot be probed has an
// Error. root is the path of the node's file system, which contains the journal of tracing. pods are what is known of
// the pods that targets are from. The error is that of the context.
func Run(
	ctx context.Context, root string, targets []snapshot.ProbeTarget, pods ...podns.Pod,
) (snapshot.Probing, error) {
	before, begun := Tracked(), time.Now()
	list, err := run(ctx, root, targets, pods)
	p := snapshot.Probing{Targets: list}
	if after := Tracked(); before != nil && after != nil {
		p.Tracked = &snapshot.Tracked{
			Seconds: time.Since(begun).Seconds(), Invalid: after.Invalid - before.Invalid,
			InsertFailed: after.InsertFailed - before.InsertFailed, Drop: after.Drop - before.Drop,
		}
	}
	return p, err
}

// Restore restores the settings of the node that a helper changed for tracing if it was killed. root is as for Run.
func Restore(root string) error { return restore(root) }
