// SPDX-License-Identifier: Apache-2.0

package print

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// How many endpoints of a connection are drawn from end to end: those that are not right, and those that are.
const (
	notRightRoutes = 8
	rightRoutes    = 3
)

// segmentStates are how segments are drawn.
var segmentStates = map[report.SegmentVerdict]picture.State{
	report.SegmentRight: picture.OK, report.SegmentWrong: picture.Wrong, report.SegmentUnknown: picture.Unknown,
}

// behindNode are the segments of the request to an endpoint, in their order.
var behindNode = []string{report.SegmentNetwork, report.SegmentEndpointNode, report.SegmentEndpointPod}

// endToEndOf draws a path from one end to the other; nil where it was not followed beyond the node.
func endToEndOf(node string, p *report.Path) *picture.EndToEnd {
	// The name is asked before there is a connection, and health checks are others; the table of segments has them.
	segments := slices.DeleteFunc(slices.Clone(p.Segments), func(s report.Segment) bool {
		return s.Segment == report.SegmentName || s.Segment == report.SegmentHealthCheck
	})
	if len(segments) == 0 {
		return nil
	}
	e := &picture.EndToEnd{
		Node: node, Frontend: frontendText(&p.Frontend), From: originWithPod(&p.Origin), Verdict: verdictText(p.Verdict),
	}
	var endpoints []string
	lost := false
	for i := range segments {
		s := &segments[i]
		switch {
		case s.Endpoint == "":
			e.Common = append(e.Common, partOfSegment(s))
			lost = lost || s.Lost
		case !slices.Contains(endpoints, s.Endpoint):
			endpoints = append(endpoints, s.Endpoint)
		}
	}
	wrong, right, more := 0, 0, 0
	for _, to := range endpoints {
		r, ok := routeOf(p, to)
		count, limit := &right, rightRoutes
		if !ok {
			count, limit = &wrong, notRightRoutes
		}
		if *count == limit {
			more++
			continue
		}
		*count++
		e.Routes = append(e.Routes, r)
	}
	switch {
	case more > 0:
		e.More = "… and " + andMore(more, "more endpoint")
	case len(endpoints) == 0 && lost && len(p.Expected.Endpoints) > 0:
		e.More = plaintext.Plural(len(p.Expected.Endpoints), "endpoint") + ": not reached"
	}
	return e
}

// routeOf is what is particular to an endpoint, and whether all of it is right.
func routeOf(p *report.Path, to string) (r picture.Route, right bool) {
	r.Endpoint = to
	right = true
	node, pod := "", ""
	for i := range p.Expected.Endpoints {
		if x := &p.Expected.Endpoints[i]; report.JoinHostPort(x.Address, x.Port) == to {
			node, pod = placeText("node ", x.Node), placeText("pod ", x.Pod)
		}
	}
	places := map[string]string{report.SegmentEndpointNode: node, report.SegmentEndpointPod: pod}
	for _, name := range behindNode {
		k := slices.IndexFunc(p.Segments, func(s report.Segment) bool { return s.Endpoint == to && s.Segment == name })
		if k < 0 { // behind one that loses the packet
			r.Parts = append(r.Parts, picture.Part{Name: segmentNames[name], Place: places[name], Ghost: true})
			right = false
			continue
		}
		right = right && p.Segments[k].Verdict == report.SegmentRight
		r.Parts = append(r.Parts, partOfSegment(&p.Segments[k]))
	}
	for i := range p.Segments {
		if s := &p.Segments[i]; s.Endpoint == to && s.Segment == report.SegmentAnswer {
			a := partOfSegment(s)
			r.Answer, right = &a, right && s.Verdict == report.SegmentRight
		}
	}
	return r, right
}

func placeText(kind, name string) string {
	if name == "" {
		return ""
	}
	return kind + name
}

// partOfSegment draws a segment.
func partOfSegment(s *report.Segment) picture.Part {
	text := s.Message
	if s.Owner != "" {
		text += " (" + s.Owner + ")"
	}
	if s.Verdict == report.SegmentUnknown && s.Command != "" {
		text += "; " + strings.TrimSpace(s.Command+" "+placeText("on ", s.Node)) + " tells"
	}
	return picture.Part{
		Name: segmentNames[s.Segment], Place: s.Place, State: segmentStates[s.Verdict],
		Status: segmentStatus(s), Text: text,
	}
}
