// SPDX-License-Identifier: Apache-2.0

// Package diagnose holds what kube-proxy must have programmed against what the kernel's rules do, and names every
// difference with its cause, the evidence and the remedy.
package diagnose

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Request says what to look at on a node.
type Request struct {
	// Services are the Services to judge; nil means all of them.
	Services []types.NamespacedName
	// Select keeps the frontends that it returns true for; nil keeps all.
	Select func(expect.Frontend) bool
	// From overrides the default origins; nil keeps them (pod and node for ClusterIPs, external and node for the rest).
	From *From
	// Backwards also walks from the rules to the API: every chain and frontend in the rules must belong to a Service.
	Backwards bool
	// Steps records the rules that each packet meets.
	Steps bool
	// Matching keeps paths whose verdict is Match in the report (trace, verify --show-all).
	Matching bool
	// PerPathService writes the Service into each path (verify).
	PerPathService bool
}

// From is the origin asked for by --from.
type From struct {
	Kind    expect.OriginKind
	Address netip.Addr // zero: choose one
	Pod     string     // namespace/name of a pod, where one was named
}

// Node judges one node: it reads the node's files, computes what kube-proxy must have programmed, walks a packet for
// each frontend and origin, and reports. What cannot be read becomes NodeReport.Error or an Unknown path, never a match.
func Node(cluster *snapshot.Cluster, node *snapshot.Node, req Request) NodeReport {
	return NodeReport{}
}

// Combine makes the report of a command from its nodes' reports, with the verdict and the summary.
func Combine(kind string, service *ServiceInfo, nodes []NodeReport) *Report { return &Report{} }
