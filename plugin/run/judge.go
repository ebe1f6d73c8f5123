// SPDX-License-Identifier: Apache-2.0

package run

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// All that the plugin asks of the judgement is in this file.

// Request says what is to be judged on a node.
type Request = diagnose.Request

// RequestOrigin is where the packets of a request come from, as its node sees it.
type RequestOrigin = diagnose.From

// nodeState is a node that was read, or why it was not.
type nodeState struct {
	node    string
	reading *diagnose.Reading
	err     error
}

// loadNode parses the files of a node. err is why there are none.
func loadNode(node string, files *snapshot.Node, err error) nodeState {
	if err != nil {
		return nodeState{node: node, err: err}
	}
	return nodeState{node: node, reading: diagnose.Read(files)}
}

// judge judges the node. A node that was not read is Unknown, with the reason.
func (n *nodeState) judge(objects *snapshot.Cluster, request Request) report.NodeReport {
	if n.err != nil {
		return notInspected(n.node, n.err)
	}
	return n.reading.Judge(objects, request)
}

// notInspected is the report of a node that could not be read.
func notInspected(node string, err error) report.NodeReport {
	return report.NodeReport{Node: node, Verdict: report.Unknown, Error: err.Error()}
}

// nothingWrong tells whether a report holds nothing that needs to be confirmed.
func nothingWrong(r *report.NodeReport) bool { return diagnose.Right(r) }

// confirmed tells whether what is wrong in a report was wrong in the same respect in an earlier one.
func confirmed(earlier, later *report.NodeReport) bool { return diagnose.Confirmed(earlier, later) }

// withdraw makes Unknown what is wrong in a report and was not so in the earlier one. why says what keeps changing.
func withdraw(earlier, later *report.NodeReport, why string) { diagnose.Doubt(earlier, later, why) }

// probeTargets lists what to connect to for the paths of a report, at most limit targets; left counts the others.
func probeTargets(r *report.NodeReport, probes, limit int) (targets []snapshot.ProbeTarget, left int) {
	return diagnose.ProbeTargets(r, probes, limit)
}

// planPaths plans what kube-proxy should program on a node. left names what is left out, mode is the node's. The error
// is a plan.RefusalError where programming would not be right.
func planPaths(
	files *snapshot.Node, objects *snapshot.Cluster, request plan.Request,
) (p *plan.Plan, left []string, mode report.Mode, err error) {
	return diagnose.Read(files).Plan(objects, request)
}

// codeProgrammed is the code of the finding that a path is one that the plugin programmed.
const codeProgrammed = diagnose.Programmed
