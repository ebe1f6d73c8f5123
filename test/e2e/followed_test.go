// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The kernels of the endpoints' nodes say what they saw of real connections from a pod: all of them pass where nothing
// is wrong; and where a node drops them, they are lost there, by its kernel's own word. Its trace says which rules they
// come to, there and in the pod.
func TestKernelsOfEndpointsNodes(t *testing.T) {
	traced := func() result { return endToEnd(t, app, "client", "--live", "--probes", "12") }
	behind := func(r *report.Report) (out []*report.Segment) {
		for i := range r.Nodes {
			for k := range r.Nodes[i].Paths {
				for n := range r.Nodes[i].Paths[k].Segments {
					if s := &r.Nodes[i].Paths[k].Segments[n]; s.Endpoint != "" {
						out = append(out, s)
					}
				}
			}
		}
		return out
	}
	healthy := func() {
		t.Helper()
		r := traced()
		all := behind(&r.report)
		for _, s := range all {
			if s.Verdict != report.SegmentRight || s.Seen == nil || s.Seen.Connections == 0 ||
				s.Seen.Passed != s.Seen.Connections {
				t.Errorf("%+v %+v", s, s.Seen)
				continue
			}
			through(t, s)
		}
		if len(all) == 0 {
			t.Errorf("%s", r)
		}
	}
	healthy()
	rule := []string{"FORWARD", "-p", "tcp", "--dport", "8080", "-j", "DROP"}
	onAll := func(do string) {
		for _, node := range nodes[1:] {
			s := siteOf(t, node)
			s.run(append([]string{s.program, "-t", "filter", do}, rule...)...)
		}
	}
	onAll("-I")
	r := traced()
	onAll("-D")
	found := map[string]bool{}
	for _, s := range behind(&r.report) {
		if s.Place == "node "+nodes[0] || s.Segment != report.SegmentEndpointNode {
			continue
		}
		found[s.Place] = true
		said := slices.ContainsFunc(s.Evidence, func(e report.Evidence) bool {
			return strings.Contains(e.Text, "the kernel, of") && strings.Contains(e.Text, "filter FORWARD rule 1")
		})
		cited := slices.ContainsFunc(s.Evidence, func(e report.Evidence) bool {
			return e.Where.Chain == "FORWARD" && e.Where.Rule == 1 && strings.Contains(e.Text, "--dport 8080 -j DROP")
		})
		if s.Code != endtoend.EndpointNodeDrops || !s.Lost || s.Seen == nil || s.Seen.Passed != 0 || !said || !cited {
			t.Errorf("%+v %+v", s, s.Seen)
		}
	}
	for _, node := range nodes[1:] {
		if !found["node "+node] {
			t.Errorf("nothing is said of %s: %s", node, r)
		}
	}
	healthy()
	noHelperPods(t)
}

// through checks that the kernel's trace has requests pass the rules of an endpoint's node, and of its pod.
func through(t *testing.T, s *report.Segment) {
	t.Helper()
	hook := map[string]string{report.SegmentEndpointNode: "postrouting", report.SegmentEndpointPod: "input"}[s.Segment]
	if hook == "" || s.Segment == report.SegmentEndpointNode && s.Place == "node "+nodes[0] {
		return // the rules of the client's node are traced with its connections
	}
	if len(s.Seen.Rules) != 1 || len(s.Seen.Untraced) > 0 || s.Seen.Rules[0].Hook != hook || !s.Seen.Rules[0].Passed ||
		s.Seen.Rules[0].Packet != "request" || s.Seen.Rules[0].Packets < s.Seen.Connections {
		t.Errorf("%s: %+v", s.Place, s.Seen)
	}
}
