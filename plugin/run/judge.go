// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// This file contains all calls of trace/judge.

// Request is what is judged on a node.
type Request = judge.Request

// RequestOrigin is where the packets of a request come from, as its node sees it.
type RequestOrigin = judge.From

// loadedNode is a node whose files were loaded, or why they were not.
type loadedNode struct {
	node  string
	state *nodestate.State
	err   error
}

// loadNode loads the files of a node.
func loadNode(node string, files *snapshot.Node) (n loadedNode) {
	defer recovered(func(defect error) { n = loadedNode{node: node, err: defect} })
	state, err := nodestate.Load(files)
	return loadedNode{node, state, err}
}

// objectIndex has the index of the objects that nodes are judged by: one for all nodes.
type objectIndex struct {
	sync.Mutex

	of    *snapshot.Cluster
	index *judge.Cluster
}

func (x *objectIndex) get(objects *snapshot.Cluster) *judge.Cluster {
	x.Lock()
	defer x.Unlock()
	if x.of != objects {
		x.of, x.index = objects, judge.NewCluster(objects)
	}
	return x.index
}

// recovered, which has to be deferred, makes an error of a panic. Of a node whose files this program cannot cope with
// nothing is claimed, and the others are judged; and the Go runtime would print the panic's value as it is, which may
// be text of the node.
func recovered(take func(defect error)) {
	if bug := recover(); bug != nil {
		klog.ErrorS(nil, "Recovered from a panic", "panic", fmt.Sprint(bug), "stack", string(debug.Stack()))
		take(fmt.Errorf("its files trigger a defect of this program, please report it: %v", bug))
	}
}

// judgeNode judges a node. One that was not loaded is Unknown, with the reason.
func (s *Session) judgeNode(n *loadedNode, objects *snapshot.Cluster, request Request) (out report.NodeReport) {
	if n.err != nil {
		return notInspected(n.node, n.err)
	}
	defer recovered(func(defect error) { out = notInspected(n.node, defect) })
	request.Others = func(of judge.Owner) (*snapshot.Node, error) { return s.told(context.Background(), of) }
	return judge.Node(s.index.get(objects), n.state, request)
}

// notInspected is the report of a node that could not be read.
func notInspected(node string, err error) report.NodeReport {
	return judge.Unread(node, err)
}

// nothingWrong tells whether a report contains nothing that needs to be confirmed.
func nothingWrong(r *report.NodeReport) bool { return judge.Right(r) }

// confirmed tells whether what is wrong in a report was wrong in the same respect in an earlier one.
func confirmed(earlier, later *report.NodeReport) bool { return judge.Confirmed(earlier, later) }

// withdraw sets to Unknown what is wrong in a report and was not wrong in the earlier one. why is what keeps changing.
func withdraw(earlier, later *report.NodeReport, why string) { judge.Doubt(earlier, later, why) }

// Probing says what connections to make.
type Probing = judge.Probing

// ProbingOf is what connections to make: how many of each frontend and origin, and what to send over each.
func ProbingOf(probes int, payload string) Probing {
	return Probing{Probes: probes, Payload: payload, TCP: strings.HasPrefix(payload, "GET /")}
}

// probeTargets lists what to connect to for the paths of a report, at most limit targets; left counts the others.
func probeTargets(r *report.NodeReport, of Probing, limit int) (targets []snapshot.ProbeTarget, left int) {
	return judge.ProbeTargets(r, of, limit)
}

// doubtfulTargets are those of the paths with which something is wrong; none where that is true of none.
func doubtfulTargets(r *report.NodeReport, of Probing, limit int) []snapshot.ProbeTarget {
	targets, _ := judge.ProbeTargets(judge.Wrong(r), of, limit)
	return targets
}

// planPaths plans what kube-proxy should program on a node. left names what is left out, mode is the node's. The error
// is a plan.RefusalError where programming would not be right.
func planPaths(
	files *snapshot.Node, objects *snapshot.Cluster, request plan.Request,
) (p *plan.Plan, left []string, mode report.Mode, err error) {
	return judge.PlanFiles(objects, files, request)
}

// codeProgrammed is the code of the finding that a path is one that the plugin programmed.
const codeProgrammed = judge.Programmed
