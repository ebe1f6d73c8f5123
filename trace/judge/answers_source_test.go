// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A source that a rule has put in the place of the client's was a Match wherever answers to it go. In network
// namespaces connections to an endpoint of another node failed with one to which there was no route back, and those to
// a pod of the node with one of its bridge's subnet; both worked with the others.
func TestSourcesThatAreNotTheNodesOwn(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		verdict    report.Verdict
	}{
		{"as captured", "", report.Match},
		{"no route back is known", "-d 10.244.2.0/24 -j SNAT --to-source 10.99.9.9", report.Unknown},
		{"a network for another", "-d 10.244.2.0/24 -j NETMAP --to 10.99.9.0/24", report.Unknown},
		{"a neighbour's address", "-d 10.244.2.0/24 -j SNAT --to-source 10.77.0.77", report.Unknown},
		{"the node's own", "-d 10.244.2.0/24 -j SNAT --to-source 10.77.0.11", report.Match},
		{"of the node's pods", "-d 10.244.2.0/24 -j SNAT --to-source 10.244.1.250", report.Match},
		{"to a pod of the node, which answers by the node", "-d 10.244.1.3/32 -j SNAT --to-source 10.99.9.9", report.Match},
		{"to a pod of the node, as its neighbour", "-d 10.244.1.3/32 -j SNAT --to-source 10.244.1.250", report.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openCaptured(t, "real-2node-iptables")
			w.files["ip-link.json"], w.files["ip-addr.json"] = []byte(bridgedPods), []byte(bridgedAddresses)
			if c.rule != "" {
				w.first(v4, "nat", "POSTROUTING", "-p tcp "+c.rule)
			}
			r := Files(w.cluster, snapshot.NewNode("node1", w.files), Request{
				Matching: true, PerPathService: true,
				From: &From{Kind: expect.FromPod, Address: netip.MustParseAddr("10.244.1.2")},
			})
			judged := 0
			for i := range r.Paths {
				p := &r.Paths[i]
				if p.Service.Name != "echo" || p.Frontend.Kind != "ClusterIP" {
					continue
				}
				judged++
				codes := p.Codes()
				if p.Verdict != c.verdict || slices.Contains(codes, AnswerNotEvaluated) != (c.verdict == report.Unknown) {
					t.Errorf("%s %v, want %s: %+v", p.Verdict, codes, c.verdict, p.Findings)
				}
			}
			if judged == 0 {
				t.Error("no path is judged: " + r.Error)
			}
		})
	}
}
