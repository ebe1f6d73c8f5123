// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestOutputCallsASampleASample: below the table, and with the rules that its packet meets.
func TestOutputCallsASampleASample(t *testing.T) {
	r := reports()["good"]
	paths := r.Nodes[0].Paths
	for i := range paths {
		paths[i].Steps = []report.Step{{Hook: "PREROUTING", Text: "policy"}}
		paths[i].Origin.Sample = paths[i].Origin.Kind != "node"
		if paths[i].Origin.Kind == "pod" {
			paths[i].Origin.Address, paths[i].Origin.Pod = "10.244.1.200", "shop/client"
		}
	}
	got := render(t, "wide", r, view(0))
	for _, want := range []string{
		"Samples  pod 10.244.1.200 (shop/client) (choose another with --from)",
		"from pod 10.244.1.200 (shop/client, a sample), rule by rule",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	for i := range paths {
		paths[i].Origin.Sample = false
	}
	if got := render(t, "wide", r, view(0)); strings.Contains(strings.ToLower(got), "sample") {
		t.Errorf("a sample where there is none:\n%s", got)
	}
}
