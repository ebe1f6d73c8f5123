// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// kube-proxy may take a second (minSyncPeriod) and the time of a sync to follow the API. Therefore a difference is read
// again before it is reported as a mismatch.
const (
	confirmPause = 2 * time.Second
	confirmReads = 4
)

// confirmer judges nodes of a running cluster: the objects are read before and after a node, and if they or the node's
// rules have changed in between, or something is wrong that was not wrong before, everything is read again.
type confirmer struct {
	*Session
	probes Probing       // connections of each frontend and origin
	pause  time.Duration // between two readings of a node
	reads  int           // of a node, at most
	// read is told the files and the objects of each reading; nil: nobody needs them.
	read func(files *snapshot.Node, objects *snapshot.Cluster)

	// followings follow the connections on the nodes; nil: nobody does.
	followings *followings

	lists objectLists
}

// judge reads and judges a node until nothing is wrong, or the same in two readings.
func (c *confirmer) judge(ctx context.Context, node string, request Request) report.NodeReport {
	before := c.Objects
	var earlier *report.NodeReport
	for read := 1; ; read++ {
		if read > 1 {
			c.Progress.Node(node, fmt.Sprintf("reading again (%d of %d)", read, c.reads))
		}
		files, err := c.nodes.Read(ctx, node, snapshot.NodeFiles)
		if err != nil {
			return notInspected(node, err)
		}
		after, err := c.lists.get(ctx, c.Session)
		if err != nil {
			return notInspected(node, err)
		}
		if earlier != nil {
			if after, err = c.withPods(ctx, after, judge.NodesOfMissingPods(earlier)); err != nil {
				return notInspected(node, err)
			}
		}
		c.Progress.Node(node, "analysing")
		got, err := c.inMemory(ctx, files, after, request)
		if err != nil {
			return notInspected(node, err)
		}
		if c.read != nil {
			c.read(files, after)
		}
		changed := changes(before, after, request.Services)
		before = after

		pause := c.pause
		switch right := nothingWrong(&got); {
		case right && (len(changed) == 0 || request.Services == nil):
			// Of many Services some change all the time. A path that is right now needs no confirmation.
			return got
		case right:
			pause /= 4
		case earlier != nil && len(changed) == 0 && confirmed(earlier, &got):
			return got
		}
		if read == c.reads {
			if earlier != nil && !nothingWrong(&got) {
				withdraw(earlier, &got, fmt.Sprintf("it was different each of the %d times that it was read", read))
			}
			return got
		}
		earlier = &got
		if err := wait(ctx, pause); err != nil {
			return notInspected(node, err)
		}
	}
}

// withPods returns objects with the pods of nodes as they are now: pods are read once, and EndpointSlices again with
// each reading.
func (c *confirmer) withPods(
	ctx context.Context, objects *snapshot.Cluster, nodes []string,
) (*snapshot.Cluster, error) {
	if len(nodes) == 0 {
		return objects, nil
	}
	out := *objects
	out.Pods, out.Missing = slices.Clone(objects.Pods), slices.Clone(objects.Missing)
	err := c.ask(ctx, func(ctx context.Context) error { return c.source.Pods(ctx, &out, cluster.Pods{Nodes: nodes}) })
	return &out, err
}

// wait waits, unless the context ends before.
func wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
