// SPDX-License-Identifier: Apache-2.0

package print

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// TestMatchSaysWhatItCovers: what was not judged on one of the nodes is not covered.
func TestMatchSaysWhatItCovers(t *testing.T) {
	full := &report.Coverage{Judged: []string{"rules", "routes", "settings"}}
	part := &report.Coverage{
		Judged:    []string{"rules", "routes"},
		NotJudged: []report.Gap{{Part: "settings", Files: []string{"sysctl.txt"}}},
	}
	const beyond = ", the endpoints' nodes and pods"
	for _, tt := range []struct {
		name  string
		nodes []*report.Coverage
		want  string
	}{
		{
			"one node",
			[]*report.Coverage{full},
			", by its rules, routes and settings; not judged: the network beyond it" + beyond,
		},
		{
			"a file is missing",
			[]*report.Coverage{part},
			", by its rules and routes; not judged: settings (sysctl.txt), the network beyond it" + beyond,
		},
		{
			"on one of two nodes",
			[]*report.Coverage{full, part},
			", by their rules and routes; not judged: settings (sysctl.txt), the network beyond them" + beyond,
		},
		{"no path", []*report.Coverage{nil}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &report.Report{}
			for _, c := range tt.nodes {
				r.Nodes = append(r.Nodes, report.NodeReport{Coverage: c})
			}
			if got := (&text{report: r}).covered(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
