// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// segmentNames are what people read.
var segmentNames = map[string]string{
	report.SegmentClientPod: "client's pod", report.SegmentClientNode: "client's node", report.SegmentNetwork: "network",
	report.SegmentEndpointNode: "endpoint's node", report.SegmentEndpointPod: "endpoint's pod",
	report.SegmentAnswer: "answer", report.SegmentName: "name", report.SegmentEntryNode: "entry node",
	report.SegmentHealthCheck: "health check",
}

// segmentStatus is what stands beside a segment.
func segmentStatus(s *report.Segment) string {
	switch {
	case s.Lost:
		return "LOST HERE"
	case s.Verdict == report.SegmentWrong:
		return "WRONG"
	}
	return string(s.Verdict)
}

// segments shows the parts of connections from one end to the other. Of those that are right, and follow one another,
// one line is shown, unless all is to be shown.
func (t *text) segments(paths []report.Path) {
	for i := range paths {
		p := &paths[i]
		if len(p.Segments) == 0 {
			continue
		}
		t.Blank()
		t.title(frontendText(&p.Frontend) + " from " + originWithPod(&p.Origin) + ", end to end")
		tab := &table{columns: []column{
			{"ENDPOINT", false},
			{"SEGMENT", false},
			{"PLACE", false},
			{"STATUS", false},
			{"SEEN", false},
			{"WHAT", false},
		}}
		var colors []terminal.Color
		endpoint := ""
		for at := 0; at < len(p.Segments); {
			s := &p.Segments[at]
			n := 1
			// A health check is no part of the connection: what it was answered stands for itself.
			fold := !t.wide && s.Segment != report.SegmentHealthCheck
			for fold && s.Verdict == report.SegmentRight && at+n < len(p.Segments) &&
				p.Segments[at+n].Verdict == report.SegmentRight && p.Segments[at+n].Endpoint == s.Endpoint {
				n++
			}
			shown := s.Endpoint
			if shown == endpoint {
				shown = ""
			}
			endpoint = s.Endpoint
			tab.add(shown, namesOf(p.Segments[at:at+n]), placesOf(p.Segments[at:at+n]), segmentStatus(s),
				seenText(p.Segments[at:at+n]), t.whatText(&p.Segments[at+n-1]))
			colors = append(colors, segmentColor(s))
			at += n
		}
		t.segmentTable(tab.dropEmpty("ENDPOINT", "SEEN"), func(row int) terminal.Color { return colors[row] })
	}
}

// seenText says how many connections the kernels saw pass segments: of the first that does not have all.
func seenText(list []report.Segment) string {
	var seen *report.SegmentSeen
	for i := range list {
		if s := list[i].Seen; s != nil && (seen == nil || s.Passed < seen.Passed) {
			seen = s
		}
	}
	if seen == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d pass", seen.Passed, seen.Connections)
}

// whatText is what is said of a segment, and with all that was asked for how far packets came through its rules.
func (t *text) whatText(s *report.Segment) string {
	if !t.wide {
		return s.Message
	}
	return strings.Join(append([]string{s.Message}, tracedTexts(s)...), "; ")
}

// tracedTexts say how far connections came through the rules of a segment, and where that is not known.
func tracedTexts(s *report.Segment) (out []string) {
	if s.Seen == nil {
		return nil
	}
	for i := range s.Seen.Rules {
		out = append(out, "by the kernel's trace "+s.Seen.Rules[i].String())
	}
	for _, why := range s.Seen.Untraced {
		out = append(out, "rules are not all traced: "+why)
	}
	return out
}

// segmentTable writes segments as a table. In a terminal that is too narrow for it what is said of each stands below,
// and where it is.
func (t *text) segmentTable(tab *table, color func(row int) terminal.Color) {
	t.table(tab.fit(t.columns, []string{"PLACE", "WHAT"}, "WHAT", "PLACE", "SEEN"), color)
}

// namesOf names segments in one cell.
func namesOf(list []report.Segment) string {
	name := func(s *report.Segment) string { return segmentNames[s.Segment] }
	switch len(list) {
	case 1:
		return name(&list[0])
	case 2:
		return name(&list[0]) + ", " + name(&list[1])
	}
	return name(&list[0]) + " … " + name(&list[len(list)-1])
}

// placesOf names the places of segments in one cell, each once.
func placesOf(list []report.Segment) string {
	var out []string
	for i := range list {
		if place := list[i].Place; place != "" && !slices.Contains(out, place) {
			out = append(out, place)
		}
	}
	const several = 2
	if len(out) > several {
		out = []string{out[0], "…", out[len(out)-1]}
		return strings.Join(out, " ")
	}
	return strings.Join(out, ", ")
}

func segmentColor(s *report.Segment) terminal.Color {
	switch s.Verdict {
	case report.SegmentWrong:
		return red
	case report.SegmentUnknown:
		return yellow
	case report.SegmentRight:
	}
	return plain
}
