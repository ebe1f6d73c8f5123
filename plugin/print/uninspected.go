// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Uninspected says which nodes of a report could not be inspected, and why: a text for each reason.
func Uninspected(r *report.Report) []string {
	nodes := make([]*report.NodeReport, len(r.Nodes))
	for i := range r.Nodes {
		nodes[i] = &r.Nodes[i]
	}
	return uninspected(nodes, "was", "were", "not inspected")
}

// UninspectedIn says which nodes of a Diff could not be inspected, on which side, and why.
func UninspectedIn(d *report.Diff) []string {
	before, after := failedOn(d, beforeOf), failedOn(d, afterOf)
	if d.Compares == report.ComparesNodes {
		return uninspected(slices.Concat(before, after), "was", "were", "not inspected")
	}
	return slices.Concat(
		uninspected(before, "was", "were", "not inspected in the snapshot before"),
		uninspected(after, "was", "were", "not inspected in the snapshot after"),
	)
}

func beforeOf(n *report.NodeDiff) *report.ComparedNode { return &n.Before }

func afterOf(n *report.NodeDiff) *report.ComparedNode { return &n.After }

// failedOn are the nodes that could not be inspected on one side of a Diff.
func failedOn(d *report.Diff, side func(*report.NodeDiff) *report.ComparedNode) (out []*report.NodeReport) {
	for i := range d.Nodes {
		if n := side(&d.Nodes[i]); n.Error != "" {
			out = append(out, &report.NodeReport{Node: n.Node, Error: n.Error})
		}
	}
	return out
}

// uninspected is Uninspected in the words of a command.
func uninspected(nodes []*report.NodeReport, one, several, words string) []string {
	groups := report.UninspectedNodes(nodes)
	out := make([]string, 0, len(groups))
	for _, u := range groups {
		who := "node " + u.Nodes[0] + " " + one
		if len(u.Nodes) > 1 {
			who = plaintext.Plural(len(u.Nodes), "node") + " (" + strings.Join(plaintext.Ranges(u.Nodes), ", ") + ") " + several
		}
		out = append(out, who+" "+words+": "+u.Error)
	}
	return out
}

// lost writes the nodes that could not be inspected, those for the same reason in one line.
func (t *text) lost(nodes []*report.NodeReport) { t.lostFor(nodes, "NOT INSPECTED") }

// lostFor is lost in the words of a command.
func (t *text) lostFor(nodes []*report.NodeReport, words string) {
	left := len(nodes)
	for i, l := range report.UninspectedNodes(nodes) {
		if i >= wrongNodes && !t.wide {
			t.Linef("… and %s %s %s", plaintext.Plural(left, "more node"), strings.ToLower(words), wideShows(left))
			break
		}
		left -= len(l.Nodes)
		label, of := "Node", ""
		if len(l.Nodes) > 1 {
			label, of = "Nodes", fmt.Sprintf(" (%d)", len(l.Nodes))
		}
		t.say(yellow, label, t.list(plaintext.Ranges(l.Nodes), nodeLimit, ", ")+of+"  "+words+": "+l.Error, true)
	}
}
