// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A node that no longer forwards packets is told so, for the packets that it should forward.
func TestForwardingOff(t *testing.T) {
	if os.Getenv("E2E_CLUSTER") == "" {
		t.Skip("E2E_CLUSTER is not set: only the settings of test/cluster's nodes are changed")
	}
	node := nodes[0]
	harness(t, "in", node, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	defer harness(t, "in", node, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	r := svcproxy(t, "trace", app, "--node", node, "-o", "json")
	if r.code != 1 || !slices.Equal(codes(&r.report), []string{judge.ForwardingOff}) {
		t.Fatalf("%v\n%s", codes(&r.report), r)
	}
	for i := range r.report.Nodes[0].Paths {
		p := &r.report.Nodes[0].Paths[i]
		if right := p.Verdict == report.Match; right != (p.Origin.Kind == "node") {
			t.Errorf("from %s: %s", p.Origin.Kind, p.Verdict)
		}
	}
}
