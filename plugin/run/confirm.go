// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

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

	// there has nodes judged by their own helpers; nil: they are read.
	there *there
	// reading bounds how many nodes are read at once.
	reading slots

	lists objectLists
}

// judge reads and judges a node until nothing is wrong, or the same in two readings.
func (c *confirmer) judge(ctx context.Context, node string, request Request) report.NodeReport {
	before := c.Objects
	var earlier *report.NodeReport
	if c.there != nil {
		got, by, final := c.there.judge(ctx, node)
		if final {
			return *got
		}
		if got != nil { // what the node says is wrong is read, and judged here, before anybody hears of it
			before, earlier = by, got
			if err := wait(ctx, c.pause); err != nil {
				return notInspected(node, err)
			}
		}
	}
	if err := c.reading.take(ctx); err != nil {
		return notInspected(node, err)
	}
	defer c.reading.release()
	part := c.partOf(&request)
	for read := 1; ; read++ {
		if read > 1 {
			c.Progress.Node(node, fmt.Sprintf("reading again (%d of %d)", read, c.reads))
		}
		files, err := c.readNode(ctx, node, part)
		if err != nil {
			return notInspected(node, err)
		}
		list := c.lists.now
		if earlier != nil { // what is wrong is told by objects that are certainly no older than the node's rules
			list = c.lists.get
		}
		after, err := list(ctx, c.Session)
		if err != nil {
			return notInspected(node, err)
		}
		if earlier != nil {
			after = c.withPods(ctx, after, append(judge.NodesOfMissingPods(earlier), node))
		}
		c.Progress.Node(node, "analysing")
		got, err := c.inMemory(ctx, files, after, request)
		if err != nil {
			return notInspected(node, err)
		}
		if part != nil && got.Whole != "" {
			klog.V(2).InfoS("The node is read whole", "node", node, "why", got.Whole)
			part, read = nil, 0
			continue
		}
		part = nil // what is wrong is confirmed by the whole
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
				withdraw(earlier, &got, fmt.Sprintf("it was different at each of the %d readings", read))
			}
			return got
		}
		earlier = &got
		if err := wait(ctx, pause); err != nil {
			return notInspected(node, err)
		}
	}
}

// fewServices is how many Services a part of a node is read for at most.
const fewServices = 16

// partOf returns the Services that a part of a node is read for at first; nil where the whole is read.
func (c *confirmer) partOf(r *Request) []types.NamespacedName {
	if c.part == nil || c.read != nil || r.Backwards || r.NodeAlone || len(r.Services) > fewServices {
		return nil
	}
	return r.Services
}

// readNode reads a node, or what a judgement of some Services needs of it.
func (c *confirmer) readNode(
	ctx context.Context, node string, part []types.NamespacedName,
) (*snapshot.Node, error) {
	if part != nil {
		return c.part(ctx, node, part)
	}
	return c.nodes.Read(ctx, node, snapshot.NodeFiles)
}

// withPods returns objects with the pods of nodes as they are now, for a further reading: EndpointSlices are listed
// with each one, and pods once. One that is younger would be missed behind an endpoint, and one that is gone stand for
// others. Where pods cannot be listed any more, those that are known remain.
func (c *confirmer) withPods(ctx context.Context, objects *snapshot.Cluster, nodes []string) *snapshot.Cluster {
	out := *objects
	out.Missing, out.Unread = slices.Clone(objects.Missing), maps.Clone(objects.Unread)
	out.ConfigMaps = slices.Clip(objects.ConfigMaps) // others read these at the same time
	out.Pods = slices.DeleteFunc(slices.Clone(objects.Pods), func(p *corev1.Pod) bool {
		return slices.Contains(nodes, p.Spec.NodeName)
	})
	err := c.ask(ctx, func(ctx context.Context) error { return c.source.Pods(ctx, &out, cluster.Pods{Nodes: nodes}) })
	if err != nil || len(out.Unread) > len(objects.Unread) || len(out.Pods) == 0 {
		return objects
	}
	return &out
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
