// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// A setting of a node's kernel by which packets are lost is what the remedy sets, on that node; in a pod, and of a
// setting that does not decide, it is that of the finding.
func TestSettingsAreTheRemedy(t *testing.T) {
	tour := tourOf(t)
	for _, c := range []struct{ place, evidence, want string }{
		{"node node2", "net/ipv4/ip_forward=0", "sysctl -w net/ipv4/ip_forward=1"},
		{"node node2", "net/ipv4/conf/eth0.100/forwarding=0", "sysctl -w net/ipv4/conf/eth0.100/forwarding=1"},
		{"node node2", "net/ipv6/conf/all/forwarding=0", "sysctl -w net/ipv6/conf/all/forwarding=1"},
		{"node node2", "net/ipv6/neigh/cni0/mcast_solicit=0", "sysctl -w net/ipv6/neigh/cni0/mcast_solicit=3"},
		{
			"node node2", "net/ipv4/conf/all/rp_filter=0, net/ipv4/conf/eth1/rp_filter=1",
			"sysctl -w net/ipv4/conf/eth1/rp_filter=2",
		},
		{"node node2", "net/ipv4/conf/all/rp_filter=2, net/ipv4/conf/eth1/rp_filter=1", ""},
		{"node node2", "net/ipv4/conf/eth1/rp_filter=10", ""},
		{"node node2", "net/ipv4/ip_forward=1", ""},
		{"pod shop/web-1", "net/ipv4/ip_forward=0", ""},
		{"node node1 to node node2", "net/ipv4/ip_forward=0", ""},
	} {
		p := report.Path{Verdict: report.Match, Segments: []report.Segment{{
			Segment: report.SegmentAnswer, Endpoint: "10.244.2.9:8080", Place: c.place, Message: "it is so",
			Verdict: report.SegmentWrong, Code: endtoend.EndToEndAnswerLost, Lost: true,
			Evidence: []report.Evidence{{Text: c.evidence}},
		}}}
		tour.conclude(&p, 0)
		got := ""
		for _, line := range p.Findings[0].Commands {
			if got = line.Line; c.want != "" && line.Node != "node2" {
				t.Errorf("%s: on %s", c.evidence, line.Node)
			}
			break
		}
		if c.want != "" && got != c.want || c.want == "" && len(got) > 6 && got[:6] == "sysctl" {
			t.Errorf("%s in %s: %q, want %q", c.evidence, c.place, got, c.want)
		}
	}
}
