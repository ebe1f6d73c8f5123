// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/wire"
	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/bounds"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// MaxProbes is how many connections a helper makes of one frontend, at most; maxTargets is how many targets it takes in
// all.
const (
	MaxProbes  = bounds.ProbeConnections
	maxTargets = bounds.ProbeTargets
)

// observe makes the connections that a node's report is about, reads the node once more, and judges both. Rules may be
// rewritten and endpoints go between connections and reading, so what only the connections show is wrong once it has
// shown twice.
func (c *confirmer) observe(
	ctx context.Context, node string, request Request, got report.NodeReport,
) report.NodeReport {
	if c.probe == nil || got.Error != "" {
		return got
	}
	targets, left := probeTargets(&got, c.probes, maxTargets)
	if left > 0 {
		c.Progress.Note("%s: %d of %d targets are not probed, as %d is the most at once",
			node, left, left+len(targets), maxTargets)
	}
	if len(targets) == 0 {
		c.Progress.Note("%s: no path starts at the node or at a pod on it, so nothing is probed", node)
		return got
	}
	earlier := &got
	var done snapshot.Probing // what is known of every target
	for read := 1; ; read++ {
		if read > 1 {
			c.Progress.Node(node, fmt.Sprintf("connecting again (%d of %d)", read, c.reads))
		}
		now, err := c.observeOnce(ctx, node, request, targets, &done)
		switch {
		case err != nil:
			return notInspected(node, err)
		case now.Error != "" || confirmed(earlier, &now):
			return now
		case read == c.reads:
			withdraw(earlier, &now, fmt.Sprintf("it was different each of the %d times that connections were made", read))
			return now
		}
		earlier = &now
		if again := doubtfulTargets(&now, c.probes, maxTargets); len(again) > 0 {
			targets = again
		}
		if err := wait(ctx, c.pause/4); err != nil {
			return notInspected(node, err)
		}
	}
}

// observeOnce makes connections, and judges the node with what they showed, and with what earlier ones showed of
// targets that are not among these.
func (c *confirmer) observeOnce(
	ctx context.Context, node string, request Request, targets []snapshot.ProbeTarget, done *snapshot.Probing,
) (report.NodeReport, error) {
	now, err := c.connect(ctx, node, targets)
	if err != nil {
		return report.NodeReport{}, err
	}
	files, err := c.nodes.Read(ctx, node, snapshot.NodeFiles)
	if err != nil {
		return report.NodeReport{}, err
	}
	objects, err := c.lists.get(ctx, c.Session)
	if err != nil {
		return report.NodeReport{}, err
	}
	done.Update(now)
	data, err := json.Marshal(done)
	if err != nil {
		return report.NodeReport{}, err
	}
	return c.inMemory(ctx, files.With(snapshot.ProbesFile, data), objects, request)
}

// connect makes connections, which the kernels of other nodes follow meanwhile where that is asked for.
func (c *confirmer) connect(
	ctx context.Context, node string, targets []snapshot.ProbeTarget,
) (now *snapshot.Probing, err error) {
	if c.followings != nil {
		end := c.followings.begin(ctx, targets)
		defer func() { end(now) }()
	}
	from := func(p *corev1.Pod) bool {
		return slices.ContainsFunc(targets, func(t snapshot.ProbeTarget) bool {
			return t.From.IsValid() && slices.Contains(cluster.PodIPs(p), t.From)
		})
	}
	params := wire.ProbeParams{Targets: targets}
	for _, p := range podsOf(c.Objects, node, from) {
		params.Pods = append(params.Pods, p.params)
	}
	data, err := c.probe(ctx, node, params)
	if err != nil {
		return nil, err
	}
	return snapshot.NewNode(node, map[string][]byte{snapshot.ProbesFile: data}).Probed()
}
