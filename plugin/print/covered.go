// SPDX-License-Identifier: Apache-2.0

package print

import (
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// covered says what a Match rests on, and what was not judged: on any of the nodes, since files are missing, or beyond
// them.
func (t *text) covered() string {
	var judged []string
	open := make([]string, 0, 2)
	files, places := map[string][]string{}, map[string][]string{}
	own := map[string]bool{} // what is open on the nodes themselves
	add := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	var of []*report.Coverage
	for i := range t.report.Nodes {
		c := t.report.Nodes[i].Coverage
		if c == nil {
			continue
		}
		of = append(of, c)
		for _, g := range c.NotJudged {
			add(&open, g.Part)
			own[g.Part] = own[g.Part] || len(g.Places) == 0
			for _, p := range g.Places {
				list := places[g.Part]
				add(&list, p)
				places[g.Part] = list
			}
			for _, f := range g.Files {
				list := files[g.Part]
				add(&list, f)
				files[g.Part] = list
			}
		}
	}
	for _, c := range of {
		for _, part := range c.Judged {
			if !own[part] {
				add(&judged, part)
			}
		}
	}
	if len(judged) == 0 {
		return ""
	}
	for i, part := range open {
		open[i] = part + where(own[part], places[part]) + " (" + strings.Join(files[part], ", ") + ")"
	}
	its, beyond := "its ", "it"
	if len(t.report.Nodes) > 1 {
		its, beyond = "their ", "them"
	}
	if all, some := t.followed(); all {
		// What a segment of MATCH rests on was read, at both ends.
		judged = append(judged, "those of the endpoints' nodes and pods, and both ends of the network between them")
		open = append(open, some...)
	} else {
		open = append(open, "the network beyond "+beyond)
		if t.fromPods() {
			open = append(open, "the client's pod")
		}
		open = append(open, "the endpoints' nodes and pods")
	}
	if len(open) == 0 {
		return ", by " + its + report.And(judged)
	}
	return ", by " + its + report.And(judged) + "; not judged: " + strings.Join(open, ", ")
}

// where says which places beside the nodes of the report, or in place of them, a part is not judged of.
func where(own bool, places []string) string {
	if len(places) == 0 {
		return ""
	}
	const most = 2
	if more := len(places) - most; more > 1 {
		places = append(slices.Clone(places[:most]), strconv.Itoa(more)+" more")
	}
	if own {
		return ", also of " + report.And(places)
	}
	return " of " + report.And(places)
}

// fromPods tells whether connections of pods are among the paths: what is in a pod, as its routes, is not read.
func (t *text) fromPods() bool {
	for i := range t.report.Nodes {
		for k := range t.report.Nodes[i].Paths {
			if t.report.Nodes[i].Paths[k].Origin.Kind == "pod" {
				return true
			}
		}
	}
	return false
}

// followed tells whether all paths that lead to endpoints were followed from end to end, and names what of that was
// not.
func (t *text) followed() (all bool, open []string) {
	asked, pods, outside, healthOpen := false, false, false, false
	for i := range t.report.Nodes {
		for k := range t.report.Nodes[i].Paths {
			p := &t.report.Nodes[i].Paths[k]
			if len(p.Expected.Endpoints) == 0 {
				continue
			}
			if len(p.Segments) == 0 {
				return false, nil
			}
			all = true
			if p.Origin.Kind == "external" {
				outside = true
			} else {
				pods = true
			}
			ends := map[string]bool{}
			for at := range p.Segments {
				s := &p.Segments[at]
				ends[s.Endpoint] = true
				healthOpen = healthOpen || s.Segment == report.SegmentHealthCheck && s.Command != ""
				asked = asked || s.Segment == report.SegmentName && s.Verdict == report.SegmentRight && s.Command == ""
			}
			delete(ends, "")
			if left := len(p.Expected.Endpoints) - len(ends); left > 0 && open == nil {
				open = []string{"other endpoints (--all-endpoints)"}
			}
		}
	}
	if healthOpen {
		open = append(open, "what the node answers to health checks (--live asks)")
	}
	if outside {
		open = append(open, "what is between the client and the node")
	}
	if pods && !asked {
		open = append(open, "what DNS answers for the Service's name (--live asks)")
	}
	return all, open
}
