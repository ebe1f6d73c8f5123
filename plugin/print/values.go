// SPDX-License-Identifier: Apache-2.0

package print

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// shownValues is how many sets of values are shown of many nodes; wide output shows all.
const shownValues = 3

// values writes kube-proxy's values with their sources, once for the nodes that have the same.
func (t *text) values() {
	var texts []string
	nodes := map[string][]string{}
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		if n.Mode == nil || len(n.Mode.Values) == 0 {
			continue
		}
		s := valuesText(n.Mode.Values)
		if nodes[s] == nil {
			texts = append(texts, s)
		}
		nodes[s] = append(nodes[s], n.Node)
	}
	for i, s := range texts {
		if i == shownValues && !t.wide {
			t.say(plain, "Values", "… of other nodes: -o wide", true)
			return
		}
		if len(t.report.Nodes) > 1 {
			s = t.list(nodes[s], 3, ", ") + apart + s //nolint:mnd // nodes that are named
		}
		t.say(plain, "Values", s, true)
	}
}

// valuesText lists values by their source, in the order of the report: "mode iptables (proxyMode), version v1.36.3
// (metrics), …".
func valuesText(list []report.Value) string {
	var sources []string
	by := map[string][]string{}
	for i := range list {
		v := &list[i]
		if v.Source == "unknown" && (v.Detail == "" || !strings.HasPrefix(v.Detail, mayBe)) {
			continue // nothing depends on it
		}
		text := v.Name + " " + v.Value
		if v.Value == "" {
			text = strings.TrimSpace(v.Name + " " + strings.TrimSuffix(v.Detail, "; "))
		}
		if !slices.Contains(sources, v.Source) {
			sources = append(sources, v.Source)
		}
		by[v.Source] = append(by[v.Source], text)
	}
	out := make([]string, len(sources))
	for i, s := range sources {
		out[i] = s + ": " + strings.Join(by[s], ", ")
	}
	return strings.Join(out, apart)
}

// mayBe begins report.Value.Detail of a value that is not known and that something depends on.
const mayBe = "may be "
