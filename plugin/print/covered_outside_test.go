// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What a Match of connections from outside of the cluster does not cover is said: what is before the node, and the
// answer of a health-check port that was not asked. The Service's name is not among that: nobody in a pod asks for it.
func TestMatchFromOutsideSaysWhatItCovers(t *testing.T) {
	endpoint := report.Endpoint{Address: "10.244.1.5", Port: 8080}
	p := report.Path{
		Origin: report.Origin{Kind: "external"}, Verdict: report.Match,
		Expected: report.Expected{Endpoints: []report.Endpoint{endpoint}},
		Segments: []report.Segment{
			{Segment: report.SegmentHealthCheck, Verdict: report.SegmentRight, Command: "curl http://10.77.0.11:31000/"},
			{Segment: report.SegmentEntryNode, Verdict: report.SegmentRight},
			{Segment: report.SegmentAnswer, Verdict: report.SegmentRight, Endpoint: "10.244.1.5:8080"},
		},
	}
	r := &report.Report{Nodes: []report.NodeReport{{
		Coverage: &report.Coverage{Judged: []string{"rules", "routes"}}, Paths: []report.Path{p},
	}}}
	const health = "what the node answers to health checks (--live asks), "
	want := "; not judged: " + health + "what is between the client and the node"
	if got := (&text{report: r}).covered(); !strings.HasSuffix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p.Segments[0].Command = ""
	if got := (&text{report: r}).covered(); !strings.HasSuffix(got, strings.Replace(want, health, "", 1)) {
		t.Error(got)
	}
}
