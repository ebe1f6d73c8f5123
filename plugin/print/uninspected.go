// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
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
	groups := report.UninspectedNodes(nodes)
	out := make([]string, 0, len(groups))
	for _, u := range groups {
		who := "node " + u.Nodes[0] + " was"
		if len(u.Nodes) > 1 {
			who = plaintext.Plural(len(u.Nodes), "node") + " (" + strings.Join(plaintext.Ranges(u.Nodes), ", ") + ") were"
		}
		out = append(out, who+" not inspected: "+u.Error)
	}
	return out
}

// lost writes the nodes that could not be inspected, those for the same reason in one line.
func (t *text) lost(nodes []*report.NodeReport) {
	left := len(nodes)
	for i, l := range report.UninspectedNodes(nodes) {
		if i >= wrongNodes && !t.wide {
			t.Linef("… and %s not inspected (-o wide shows them all)", plaintext.Plural(left, "more node"))
			break
		}
		left -= len(l.Nodes)
		label, of := "Node", ""
		if len(l.Nodes) > 1 {
			label, of = "Nodes", fmt.Sprintf(" (%d)", len(l.Nodes))
		}
		t.say(yellow, label, t.list(plaintext.Ranges(l.Nodes), nodeLimit, ", ")+of+"  NOT INSPECTED: "+l.Error, true)
	}
}
