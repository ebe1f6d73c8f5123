// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// sighting is what a node looked like once.
type sighting struct {
	*report.NodeReport

	by    *snapshot.Cluster // the objects
	files *snapshot.Node    // nil where they were not read
}

// judge reads and judges a node until nothing is wrong, or the same in two readings. What its helper says is wrong,
// unless it is nil, takes the place of the first one.
func (c *confirmer) judge(ctx context.Context, node string, request Request, said *heard) report.NodeReport {
	before := c.Objects
	var earlier *report.NodeReport
	if said != nil {
		first, err := said.sighting(node)
		if err != nil {
			return notInspected(node, err)
		}
		if got := c.wrongAlone(ctx, node, request, first); got != nil {
			return *got
		}
		before, earlier = first.by, first.NodeReport
	}
	for read := 1; ; read++ {
		if read > 1 {
			c.Progress.Node(node, fmt.Sprintf("reading again (%d of %d)", read, c.reads))
		}
		l, err := c.look(ctx, node, earlier, request)
		if err != nil {
			return notInspected(node, err)
		}
		got := l.NodeReport
		if c.read != nil {
			c.read(l.files, l.by)
		}
		changed := changes(before, l.by, request.Services)
		before = l.by

		pause := c.pause
		switch right := nothingWrong(got); {
		case right && (len(changed) == 0 || request.Services == nil):
			// Of many Services some change all the time. A path that is right now needs no confirmation.
			return *got
		case right:
			pause /= 4
		case earlier != nil && len(changed) == 0 && confirmed(earlier, got):
			return *got
		}
		if read == c.reads {
			if earlier != nil && !nothingWrong(got) {
				withdraw(earlier, got, fmt.Sprintf("it was different at each of the %d readings", read))
			}
			return *got
		}
		earlier = got
		if err := wait(ctx, pause); err != nil {
			return notInspected(node, err)
		}
	}
}

// look reads a node, and the objects after that, and judges it. earlier is what was wrong before; nil: this is the
// first look.
func (c *confirmer) look(
	ctx context.Context, node string, earlier *report.NodeReport, request Request,
) (*sighting, error) {
	files, err := c.nodes.Read(ctx, node, snapshot.NodeFiles)
	if err != nil {
		return nil, err
	}
	list := c.lists.now
	if earlier != nil { // what is wrong is told by objects that are certainly no older than the node's rules
		list = c.lists.get
	}
	objects, err := list(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		objects = c.withPods(ctx, objects, append(judge.NodesOfMissingPods(earlier), node))
	}
	c.Progress.Node(node, "analysing")
	got, err := c.inMemory(ctx, files, objects, request)
	return &sighting{&got, objects, files}, err
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
