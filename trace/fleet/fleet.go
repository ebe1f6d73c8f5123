// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/maruel/natural"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// service is the name of a Service; the zero value is the node as a whole.
type service struct{ namespace, name string }

// key is what is grouped: a code, and the Service that it is about.
type key struct {
	service

	code string
}

// Patterns groups what is wrong by finding and Service, and says of each group what its nodes share. nodes are the
// Node objects; those of other nodes are passed over. It returns nil for fewer than two nodes that were judged. What is
// on most nodes comes first.
func Patterns(reports []report.NodeReport, nodes []*corev1.Node) []report.Pattern {
	objects := make(map[string]*corev1.Node, len(nodes))
	for _, n := range nodes {
		objects[n.Name] = n
	}
	var judged []*report.NodeReport
	for i := range reports {
		if reports[i].Error == "" {
			judged = append(judged, &reports[i])
		}
	}
	if len(judged) < 2 {
		return nil
	}
	of := make(map[string]properties, len(judged))
	for _, r := range judged {
		of[r.Node] = propertiesOf(objects[r.Node], r.Mode)
	}
	g := grouped(judged)
	compared := map[string][]report.Shared{} // by which nodes are which: most findings are of the same nodes
	out := make([]report.Pattern, 0, len(g.findings))
	for k, found := range g.findings {
		p := report.Pattern{Code: k.code, Severity: found.severity}
		if k.name != "" {
			p.Service = &report.ObjectRef{Namespace: k.namespace, Name: k.name}
		}
		var bad, good []properties
		kinds := make([]byte, len(judged))
		for i, r := range judged {
			switch {
			case found.on[r.Node]:
				p.Nodes = append(p.Nodes, r.Node)
				bad = append(bad, of[r.Node])
				kinds[i] = '+'
			case g.unsure[k.service][r.Node]:
				p.NotKnown++
				kinds[i] = '?'
			default:
				p.Without++
				good = append(good, of[r.Node])
				kinds[i] = '-'
			}
		}
		p.NotKnown += len(reports) - len(judged)
		slices.SortFunc(p.Nodes, natural.Compare)
		same, ok := compared[string(kinds)]
		if !ok {
			same = shared(bad, good)
			compared[string(kinds)] = same
		}
		p.Shared = same
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b report.Pattern) int {
		return cmp.Or(
			slices.Index(severities, a.Severity)-slices.Index(severities, b.Severity), len(b.Nodes)-len(a.Nodes),
			strings.Compare(a.Code, b.Code), strings.Compare(nameOf(&a), nameOf(&b)),
		)
	})
	return out
}

// severities are those of findings that count, the worst first. Information is true of many healthy nodes.
var severities = []report.Severity{report.Error, report.Warn}

func nameOf(p *report.Pattern) string {
	if p.Service == nil {
		return ""
	}
	return p.Service.Namespace + "/" + p.Service.Name
}

// groups are the findings of all nodes.
type groups struct {
	findings map[key]*group
	unsure   map[service]map[string]bool // on which nodes a path of a Service could not be judged
}

// group is one finding of one Service.
type group struct {
	on       map[string]bool // nodes
	severity report.Severity // the worst
}

// grouped groups the findings of nodes. A path without a Service of its own is one of the report's Service, which all
// have in common.
func grouped(judged []*report.NodeReport) groups {
	g := groups{findings: map[key]*group{}, unsure: map[service]map[string]bool{}}
	for _, n := range judged {
		for i := range n.Findings {
			g.add(n.Node, service{}, &n.Findings[i])
		}
		for i := range n.Paths {
			p := &n.Paths[i]
			of := service{}
			if p.Service != nil {
				of = service{p.Service.Namespace, p.Service.Name}
			}
			if p.Verdict == report.Unknown {
				if g.unsure[of] == nil {
					g.unsure[of] = map[string]bool{}
				}
				g.unsure[of][n.Node] = true
			}
			for k := range p.Findings {
				g.add(n.Node, of, &p.Findings[k])
			}
		}
	}
	return g
}

func (g *groups) add(node string, of service, f *report.Finding) {
	if !slices.Contains(severities, f.Severity) {
		return
	}
	k := key{of, f.Code}
	x := g.findings[k]
	if x == nil {
		x = &group{on: map[string]bool{}, severity: f.Severity}
		g.findings[k] = x
	}
	x.on[node] = true
	if slices.Index(severities, f.Severity) < slices.Index(severities, x.severity) {
		x.severity = f.Severity
	}
}
