// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// segmentsTo are those of a connection to an endpoint of which all is right.
func segmentsTo(e *report.Endpoint) []report.Segment {
	to := endpointText(e)
	return []report.Segment{
		{
			Segment: report.SegmentNetwork, Endpoint: to, Place: "node worker-1 to node " + e.Node,
			Verdict: report.SegmentRight, Message: "VXLAN 1 by flannel.1 to 10.77.0.12 (flannel.1 of " + e.Node + ")",
		},
		{
			Segment: report.SegmentEndpointNode, Endpoint: to, Place: "node " + e.Node, Verdict: report.SegmentRight,
			Message: "forwarded to the pod's interface veth0a1b2c3d",
		},
		{
			Segment: report.SegmentEndpointPod, Endpoint: to, Place: "pod " + e.Pod, Verdict: report.SegmentRight,
			Message: "process web (429) listens at " + to,
		},
		{
			Segment: report.SegmentAnswer, Endpoint: to, Place: "pod shop/client", Verdict: report.SegmentRight,
			Message: "back at the client, from 10.96.21.191",
		},
	}
}

// atClient are the segments that all endpoints have in common.
func atClient() []report.Segment {
	return []report.Segment{
		{
			Segment: report.SegmentClientPod, Place: "pod shop/client", Verdict: report.SegmentRight,
			Message: "from 10.244.2.77 by eth0 via 10.244.2.1",
		},
		{
			Segment: report.SegmentClientNode, Place: "node worker-1", Verdict: report.SegmentRight,
			Message: "rules and routes send connections to the endpoints that they should",
		},
	}
}

// lose makes the k-th segment of an endpoint one that loses the packet; the answer alone comes after it.
func lose(s []report.Segment, k int, text string) []report.Segment {
	s = s[:k+1]
	s[k].Verdict, s[k].Lost, s[k].Code, s[k].Message = report.SegmentWrong, true, "EndpointNodeDrops", text
	s[k].Evidence = []report.Evidence{{Where: rule("filter", "FORWARD", 1), Text: "-A FORWARD -d 10.244.2.4/32 -j DROP"}}
	return s
}

// followedReports are traces from end to end: with a packet lost on an endpoint's node, with one lost in the client's
// pod, with an answer that is lost and a segment that is not known, with many endpoints, and with hostile texts.
func followedReports() map[string]*report.Report {
	path := func(e []report.Endpoint, v report.Verdict, segments ...[]report.Segment) *report.Report {
		p := paths(clusterIP, v, dnat(e), report.Actual{Outcomes: sent(e)})[:1]
		p[0].Segments = slices.Concat(segments...)
		p[0].Steps = stepsTo(e[:min(len(e), 3)])
		if v == report.Mismatch {
			f := report.Finding{
				Code: "EndpointNodeDrops", Severity: report.Error, Subject: endpointText(&e[1]),
				Endpoints: []string{endpointText(&e[1])}, Message: "node worker-2: dropped by filter FORWARD rule 1",
				Remedy:   "find who owns the rule",
				Commands: []report.Command{{Line: "kubectl get networkpolicies -A", When: "to see the policies"}},
			}
			p[0].Findings = []report.Finding{f}
		}
		return trace(web, node("worker-1", v, p...))
	}
	three, crowd := pods(3), pods(250)
	out := map[string]*report.Report{
		"end-to-end": path(three, report.Mismatch, atClient(), segmentsTo(&three[0]),
			lose(segmentsTo(&three[1]), 1, "dropped by filter FORWARD rule 1"), segmentsTo(&three[2])),
		"end-to-end-client": path(three, report.Mismatch,
			lose(atClient(), 0, "no route to 10.96.21.191")[:1]),
	}
	open := segmentsTo(&three[2])
	open[2].Verdict, open[2].Message = report.SegmentUnknown, "the pod's network namespace was not read"
	open[2].Command, open[2].Node = "nsenter -t PID -n ss -ltn", "worker-3"
	out["end-to-end-answer"] = path(three, report.Mismatch, atClient(), segmentsTo(&three[0]),
		lose(segmentsTo(&three[1]), 3, "the answer: dropped by filter FORWARD rule 1"), open)
	all := [][]report.Segment{atClient()}
	for i := range crowd {
		s := segmentsTo(&crowd[i])
		if i == 200 {
			s = lose(s, 0, "VXLAN 1 by flannel.1: no forwarding entry for 10.77.0.12")
		}
		all = append(all, s)
	}
	out["end-to-end-250"] = path(crowd, report.Mismatch, all...)

	const bad = "<script>alert(5)</script>\"'`%%{init: {}}%% --> ]]> \\N &lt; #quot; \x1b[31m"
	hostile := slices.Concat(atClient(), lose(segmentsTo(&three[0]), 1, bad), segmentsTo(&three[1]))
	for i := range hostile {
		s := &hostile[i]
		s.Place, s.Message, s.Owner, s.Command, s.Node = bad, bad, bad, bad, bad
		s.Evidence = []report.Evidence{{Where: rule(bad, bad, 1), Text: bad}}
	}
	out["end-to-end-hostile"] = path(three, report.Mismatch, hostile)
	return out
}

// drawingOf is the picture of a report's only path.
func drawingOf(t *testing.T, name string) *picture.EndToEnd {
	t.Helper()
	tx := &text{view: view(0), report: followedReports()[name]}
	pics, _ := tx.pictures()
	if len(pics) != 1 {
		t.Fatalf("%s: there are %d pictures", name, len(pics))
	}
	e, ok := pics[0].(*picture.EndToEnd)
	if !ok {
		t.Fatalf("%s is drawn as %T", name, pics[0])
	}
	return e
}

// Only the segment that loses the packet is red, in every format, and what is behind it is not reached.
func TestOnlyTheLostSegmentIsRed(t *testing.T) {
	for name, want := range map[string]string{
		"end-to-end": "endpoint's node", "end-to-end-client": "client's pod", "end-to-end-answer": "answer",
		"end-to-end-250": "network",
	} {
		e := drawingOf(t, name)
		for _, s := range []*picture.SVG{e.Wide("a"), e.Tall("b")} {
			var red []string
			for _, b := range s.Boxes {
				if b.Class == "broken" {
					red = append(red, b.Full)
				}
			}
			if len(red) != 1 || !strings.HasPrefix(red[0], want) || !strings.Contains(red[0], "LOST HERE") {
				t.Errorf("%s, %s: red are %q", name, s.Class, red)
			}
			for _, l := range s.Lines {
				if strings.Contains(l.Class, "broken") {
					t.Errorf("%s, %s: an arrow is red", name, s.Class)
				}
			}
		}
		r := followedReports()[name]
		mermaid := render(t, "mermaid", r, view(80))
		if n := strings.Count(mermaid, ":::broken"); n != 1 {
			t.Errorf("%s: in mermaid %d boxes are red", name, n)
		}
	}
	// In the picture of the client's node nothing is: what is wrong is not there.
	out := render(t, "html", followedReports()["end-to-end"], view(80))
	for _, pic := range regexp.MustCompile(`(?s)<svg class="(?:wide|tall)[^>]*aria-labelledby="path-1-1-(?:wide|tall)-.*?</svg>`).
		FindAllString(out, -1) {
		if strings.Contains(pic, "broken") {
			t.Error("in the picture of the client's node something is red")
		}
	}
}

// The request is above, from the client to the endpoint's pod, and the answer below, back to the client.
func TestRequestAboveAnswerBelow(t *testing.T) {
	s := drawingOf(t, "end-to-end").Wide("a")
	find := func(part string) *picture.Box {
		for i := range s.Boxes {
			if strings.Contains(s.Boxes[i].Full, part) {
				return &s.Boxes[i]
			}
		}
		t.Fatalf("no box has %q", part)
		return nil
	}
	request, answer := find("process web (429)"), find("back at the client")
	if answer.Y < request.Y+request.H {
		t.Errorf("the answer is at %d, the request ends at %d", answer.Y, request.Y+request.H)
	}
	x := 0
	for _, part := range []string{"client's pod", "client's node", "network", "endpoint's node", "endpoint's pod"} {
		b := find(part)
		if b.X <= x {
			t.Errorf("%s is at %d, what is before it at %d", part, b.X, x)
		}
		x = b.X
	}
	if find("not reached").Class != "ghost" {
		t.Error("what is not reached is not drawn as such")
	}
	if s.W > picture.WideRoom {
		t.Errorf("the picture is %d px wide", s.W)
	}
}

// Of many endpoints those are drawn that are not right, and few of the others; all are counted, and the page has all in
// words.
func TestManyEndpointsFromEndToEnd(t *testing.T) {
	e := drawingOf(t, "end-to-end-250")
	if len(e.Routes) != rightRoutes+1 || !strings.Contains(e.More, "246 more endpoints") {
		t.Errorf("%d routes are drawn, and %q", len(e.Routes), e.More)
	}
	out := render(t, "html", followedReports()["end-to-end-250"], view(80))
	words := textOf(t, out)
	for _, want := range []string{"All 300 segments", fmt.Sprintf("and %d more (-o json", 2+249*4+1-300), "LOST HERE"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

// Without segments, and where the client's node is not right, its rules are drawn, too.
func TestNodeIsDrawnWhereItIsNotRight(t *testing.T) {
	r := followedReports()["end-to-end"]
	p := &r.Nodes[0].Paths[0]
	p.Segments[1].Verdict = report.SegmentUnknown
	tx := &text{view: view(0), report: r}
	if pics, _ := tx.pictures(); len(pics) != 2 {
		t.Errorf("%d pictures, want that from end to end and that of the node", len(pics))
	}
	p.Segments = nil
	if pics, _ := tx.pictures(); len(pics) != 1 {
		t.Errorf("without segments %d pictures, want that of the node", len(pics))
	}
}

// TestTheNameIsNoPartOfTheConnection: its segment stood in the picture as the first part, and answers went back to it.
func TestTheNameIsNoPartOfTheConnection(t *testing.T) {
	p := &followedReports()["end-to-end"].Nodes[0].Paths[0]
	without := endToEndOf("worker-1", p)
	p.Segments = append([]report.Segment{
		{Segment: report.SegmentName, Place: "pod shop/client", Verdict: report.SegmentUnknown, Message: "not asked"},
	}, p.Segments...)
	if with := endToEndOf("worker-1", p); !reflect.DeepEqual(with, without) {
		t.Errorf("%+v, without the name %+v", with, without)
	}
}

// How far packets came through the rules of a segment is told where all is asked for, and nowhere else.
func TestRulesThatTheKernelTraced(t *testing.T) {
	r := followedReports()["end-to-end"]
	list := r.Nodes[0].Paths[0].Segments
	k := slices.IndexFunc(list, func(s report.Segment) bool { return s.Segment == report.SegmentEndpointNode })
	list[k].Seen = &report.SegmentSeen{
		Connections: 2, Passed: 2,
		Rules: []report.SegmentRules{{
			Place: "node b", Packet: "request", Hook: "postrouting", Passed: true, Packets: 2,
			Last: report.Evidence{Where: rule("filter", "FORWARD", 3)},
		}},
		Untraced: []string{"pod shop/web: no nf_tables"},
	}
	const want = "; by the kernel's trace node b: 2 × request, passed the hook postrouting, last met filter FORWARD " +
		"rule 3; rules are not all traced: pod shop/web: no nf_tables"
	if wide := render(t, "wide", r, view(0)); strings.Count(wide, want) != 1 {
		t.Error(wide)
	}
	if table := render(t, "table", r, view(0)); strings.Contains(table, "by the kernel's trace") {
		t.Error(table)
	}
	page := textOf(t, render(t, "html", r, view(0)))
	for _, want := range append([]string{"2 of 2 pass"}, strings.Split(want, "; ")[1:]...) {
		if strings.Count(page, want) != 1 {
			t.Errorf("%q stands %d times in the page, want once", want, strings.Count(page, want))
		}
	}
}
