// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

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

// withPrograms makes a segment of an endpoint's pod unknown whose control groups have programs that see its packets: as
// programsOfClient for the client. Those at connect see no connection that comes in.
func (t *tour) withPrograms(p *report.Path, conn *endtoend.Connection) {
	packet := &conn.Start.Packet
	for i := range p.Segments {
		s := &p.Segments[i]
		at := slices.IndexFunc(conn.Endpoints, func(e endtoend.Endpoint) bool { return e.At.String() == s.Endpoint })
		if s.Segment != report.SegmentEndpointPod || s.Verdict != report.SegmentRight || at < 0 {
			continue
		}
		e := &conn.Endpoints[at]
		if t.nodes[e.Node] == nil {
			continue
		}
		pod := t.cluster.podObject(e.Pod)
		programs := t.nodes[e.Node].GroupPrograms
		for k := range programs {
			g := &programs[k]
			if strings.HasPrefix(g.Hook, "connect") || !g.Sees(packet.Family, packet.Proto) || !groupOf(g, pod) {
				continue
			}
			s.Verdict, s.Node = report.SegmentUnknown, e.Node
			s.Message = "the pod is in a control group with a program of BPF that decides at " + g.Hook +
				" about its packets, and cannot be evaluated; " + s.Message
			s.Command = report.ShellLine("bpftool", "cgroup", "show", "/sys/fs/cgroup"+strings.TrimSuffix(g.Group, "/"))
			s.Evidence = append(say("cgroup "+g.Group+" "+g.Hook+": "+g.Text), s.Evidence...)
			break
		}
	}
}
