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
		name    string
		nodes   []*report.Coverage
		want    string
		fromPod bool
	}{
		{
			"from a pod",
			[]*report.Coverage{full},
			", by its rules, routes and settings; not judged: the network beyond it, the client's pod" + beyond,
			true,
		},
		{
			"one node",
			[]*report.Coverage{full},
			", by its rules, routes and settings; not judged: the network beyond it" + beyond,
			false,
		},
		{
			"a file is missing",
			[]*report.Coverage{part},
			", by its rules and routes; not judged: settings (sysctl.txt), the network beyond it" + beyond,
			false,
		},
		{
			"on one of two nodes",
			[]*report.Coverage{full, part},
			", by their rules and routes; not judged: settings (sysctl.txt), the network beyond them" + beyond,
			false,
		},
		{
			"of other places beside the node",
			[]*report.Coverage{{
				Judged: []string{"rules", "routes", "IPsec policies"}, NotJudged: []report.Gap{
					{Part: "settings", Files: []string{"sysctl.txt"}},
					{Part: "settings", Files: []string{"sysctl.txt"}, Places: []string{"node b", "pod x/y", "pod x/z", "pod x/w"}},
					{Part: "IPsec policies", Files: []string{"xfrm-policy.txt"}, Places: []string{"node b"}},
				},
			}},
			", by its rules, routes and IPsec policies; not judged: settings, also of node b, pod x/y and 2 more " +
				"(sysctl.txt), IPsec policies of node b (xfrm-policy.txt), the network beyond it" + beyond,
			false,
		},
		{"no path", []*report.Coverage{nil}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &report.Report{}
			for _, c := range tt.nodes {
				r.Nodes = append(r.Nodes, report.NodeReport{Coverage: c})
			}
			if tt.fromPod {
				r.Nodes[0].Paths = []report.Path{{Origin: report.Origin{Kind: "pod"}}}
			}
			if got := (&text{report: r}).covered(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestConclusionOfOnePathThatIsRight: where the node is wrong, and the one path is not, "none of 1 path" is not said.
func TestConclusionOfOnePathThatIsRight(t *testing.T) {
	for paths, want := range map[int]string{
		1: "1 path of shop/web on worker-1 is right, but something else there is wrong: see above",
		2: "none of 2 paths of shop/web is wrong, but something else on worker-1 is: see above",
	} {
		r := &report.Report{
			Kind: report.KindTrace, Verdict: report.Mismatch, Service: &report.ServiceInfo{Namespace: "shop", Name: "web"},
			Nodes: []report.NodeReport{{Node: "worker-1"}}, Summary: report.Summary{Paths: paths, Matched: paths},
		}
		if verdict, rest := (&text{report: r}).conclusion(); verdict != "MISMATCH" || rest != want {
			t.Errorf("%d: got %s: %s, want %s", paths, verdict, rest, want)
		}
	}
}
