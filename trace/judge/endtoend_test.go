// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// tourOf is a tour of a captured node.
func tourOf(t *testing.T) *tour {
	t.Helper()
	w := openCaptured(t, "iptables")
	v := &Visited{Files: snapshot.NewNode("node1", w.files)}
	v.State = loadCaptured(t, v.Files)
	n, err := newNode(NewCluster(w.cluster), v.State, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &tour{node: n, ends: &Ends{Client: "node1", Visited: map[string]*Visited{"node1": v}}}
}

func loadCaptured(t *testing.T, files *snapshot.Node) *nodestate.State {
	t.Helper()
	s, err := nodestate.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each kind of finding about segments is that of a segment with its code, with its severity, the endpoint for a
// subject,
// and a remedy without a placeholder; and it decides the path's verdict.
func TestSegmentsBecomeFindings(t *testing.T) {
	tour := tourOf(t)
	for code, k := range kinds {
		if k.by != segments || code == SegmentUnknown || code == EndpointsNotFollowed {
			continue
		}
		s := report.Segment{
			Segment: report.SegmentEndpointPod, Endpoint: "10.244.2.9:8080", Place: "pod shop/web-1", Message: "it is so",
			Verdict: report.SegmentWrong, Code: code, Owner: "the workload", Lost: true,
			Evidence: []report.Evidence{{Where: report.RuleRef{Table: "filter", Chain: "INPUT", Rule: 1}, Text: "-j DROP"}},
		}
		other := s
		other.Endpoint, other.Lost = "10.244.2.10:8080", false
		p := report.Path{Verdict: report.Match, Segments: []report.Segment{s, other}}
		tour.conclude(&p, 0)
		want := map[report.Severity]report.Verdict{
			report.Error: report.Mismatch, report.Warn: report.Warning, report.Info: report.Match,
		}[k.severity]
		if len(p.Findings) != 1 || p.Verdict != want {
			t.Fatalf("%s: %s %+v", code, p.Verdict, p.Findings)
		}
		f := p.Findings[0]
		if f.Code != code || f.Severity != k.severity || f.Subject != "10.244.2.9:8080, 10.244.2.10:8080" ||
			f.Message != "pod shop/web-1: it is so; responsible: the workload" || f.Remedy == "" ||
			strings.Contains(f.Remedy, "{") || len(f.Evidence) != 1 {
			t.Errorf("%s: %+v", code, f)
		}
		for _, c := range f.Commands {
			if strings.Contains(c.Line, "{") {
				t.Errorf("%s has a command that cannot be pasted: %s", code, c.Line)
			}
		}
	}
}

// What is unknown in a segment makes a Match Unknown, and takes nothing back of a Mismatch; what was not followed is
// said. Nothing of it is said where all is right.
func TestUnknownSegments(t *testing.T) {
	tour := tourOf(t)
	unknown := report.Segment{
		Segment: report.SegmentNetwork, Place: "node a to node b", Verdict: report.SegmentUnknown, Message: "a router " +
			"is between",
		Command: "traceroute -n 192.0.2.1", Node: "a",
	}
	good := report.Segment{Segment: report.SegmentAnswer, Verdict: report.SegmentRight}
	for _, c := range []struct {
		before, after report.Verdict
		segments      []report.Segment
		left          int
		codes         string
	}{
		{report.Match, report.Match, []report.Segment{good}, 0, ""},
		{report.Match, report.Match, []report.Segment{good}, 2, EndpointsNotFollowed},
		{report.Match, report.Unknown, []report.Segment{good, unknown}, 0, SegmentUnknown},
		{report.Warning, report.Unknown, []report.Segment{unknown}, 0, SegmentUnknown},
		{report.ByDesign, report.ByDesign, []report.Segment{unknown}, 0, SegmentUnknown},
		{report.Mismatch, report.Mismatch, []report.Segment{unknown}, 0, ""},
	} {
		p := report.Path{Verdict: c.before, Segments: c.segments}
		tour.conclude(&p, c.left)
		var codes []string
		for _, f := range p.Findings {
			codes = append(codes, f.Code)
			if f.Code == SegmentUnknown && f.Evidence[0].Text !=
				"node a to node b: a router is between; traceroute -n 192.0.2.1 on a tells" {
				t.Errorf("%+v", f.Evidence)
			}
		}
		if p.Verdict != c.after || strings.Join(codes, " ") != c.codes {
			t.Errorf("%s became %s with %v, not %s with %s", c.before, p.Verdict, codes, c.after, c.codes)
		}
	}
}

// A node or a pod that was not read leaves a connection unknown there, never right: a snapshot of one node alone.
func TestWhatWasNotReadOfOneNodeIsNotRight(t *testing.T) {
	w := openCaptured(t, "iptables")
	r := w.run()
	files := snapshot.NewNode("node1", w.files)
	EndToEnd(NewCluster(w.cluster), &Ends{
		Client: "node1", Pod: "shop/client",
		Visited: map[string]*Visited{"node1": {State: loadCaptured(t, files), Files: files}},
	}, &r)
	followed := 0
	for i := range r.Paths {
		p := &r.Paths[i]
		if len(p.Segments) == 0 || p.Expected.Action != "DNAT" {
			continue
		}
		followed++
		outside := p.Origin.Kind == string(expect.FromExternal)
		if p.Verdict == report.Match || !outside && p.Segments[0].Verdict != report.SegmentUnknown {
			t.Errorf("%+v: %s", p.Frontend, p.Verdict)
		}
		for _, s := range p.Segments[1:] {
			if s.Verdict == report.SegmentRight && s.Place != "node node1" {
				t.Errorf("%+v", s)
			}
		}
	}
	if followed == 0 {
		t.Error("no path was followed")
	}
}

// What connections to an endpoint have shown is evidence of the segment that loses them, and no finding beside it. That
// of another endpoint, and what is no consequence, stay.
func TestSegmentsExplainConnections(t *testing.T) {
	tour := tourOf(t)
	const here, other = "10.244.2.9:8080", "10.244.2.10:8080"
	finding := func(code, endpoint string) report.Finding {
		return report.Finding{
			Code: code, Severity: report.Error, Endpoints: []string{endpoint},
			Evidence: []report.Evidence{{Text: code + " " + endpoint}},
		}
	}
	p := report.Path{
		Verdict: report.Mismatch,
		Findings: []report.Finding{
			finding(EndpointRefused, here), finding(EndpointRefused, other), finding(EndpointReachableDirectly, here),
		},
		Segments: []report.Segment{{
			Segment: report.SegmentEndpointPod, Endpoint: here, Place: "pod shop/web-1", Message: "nobody listens",
			Verdict: report.SegmentWrong, Code: endtoend.EndpointNotListening, Lost: true,
		}},
	}
	tour.conclude(&p, 0)
	var got []string
	for i := range p.Findings {
		f := &p.Findings[i]
		got = append(got, f.Code+" "+strings.Join(f.Endpoints, ","))
		if f.Code == endtoend.EndpointNotListening &&
			(len(f.Evidence) != 1 || f.Evidence[0].Text != EndpointRefused+" "+here) {
			t.Errorf("%+v", f.Evidence)
		}
	}
	want := strings.Join([]string{
		EndpointRefused + " " + other, EndpointReachableDirectly + " " + here, endtoend.EndpointNotListening + " " + here,
	}, "; ")
	if is := strings.Join(got, "; "); is != want || p.Verdict != report.Mismatch {
		t.Errorf("%s %s, want %s", p.Verdict, is, want)
	}
}
