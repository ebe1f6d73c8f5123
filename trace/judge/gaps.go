// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// gaps adds to what the verdicts of the client's node leave open what they leave open of the pods and of the other
// nodes that a connection passes.
func (t *tour) gaps(c *report.Coverage, conn *endtoend.Connection) {
	f := conn.Start.Packet.Family
	add := func(place string, s *nodestate.State, isNode bool) {
		for _, g := range endtoend.Gaps(s, isNode, f) {
			i := slices.IndexFunc(c.NotJudged, func(x report.Gap) bool {
				return x.Part == g.Part && len(x.Places) > 0 && slices.Equal(x.Files, []string{g.File})
			})
			if i < 0 {
				i = len(c.NotJudged)
				c.NotJudged = append(c.NotJudged, report.Gap{Part: g.Part, Files: []string{g.File}})
			}
			if of := &c.NotJudged[i]; !slices.Contains(of.Places, place) {
				of.Places = append(of.Places, place)
			}
		}
	}
	pod := func(n *endtoend.Node, name string) {
		if p := n.Pods[name]; p != nil && p.State != nil {
			add("pod "+name, p.State, false)
		}
	}
	for _, g := range endtoend.Gaps(conn.Client.State, true, f) {
		if !slices.ContainsFunc(c.NotJudged, func(x report.Gap) bool {
			return len(x.Places) == 0 && slices.Contains(x.Files, g.File)
		}) {
			c.NotJudged = append(c.NotJudged, report.Gap{Part: g.Part, Files: []string{g.File}})
		}
	}
	pod(conn.Client, conn.Pod)
	for i := range conn.Endpoints {
		e := &conn.Endpoints[i]
		n := conn.Nodes[e.Node]
		if e.Node == t.Name {
			n = conn.Client
		}
		if n == nil {
			continue
		}
		if e.Node != t.Name {
			add("node "+n.Name, n.State, true)
		}
		if !e.HostNetwork {
			pod(n, e.Pod)
		}
	}
}
