// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/maruel/natural"
	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Node is what is known of one node of a fleet.
type Node struct {
	Name  string
	Known bool         // it was judged; else the rest is empty
	Mode  *report.Mode // nil where it is not known
	// ModeAt is when Mode was read; zero where that was at the same time on all nodes.
	ModeAt   time.Time
	Findings []Finding
	// Unsure tells whether the node may have a finding that is not in Findings; nil: it has no other one.
	Unsure func(code string, of report.ObjectRef) bool
}

// Finding is a finding of a Service, or of the node as a whole where Service is empty. One of severity Info is the
// reason why paths of the Service could not be judged.
type Finding struct {
	Code     string
	Severity report.Severity
	Service  report.ObjectRef
}

// key is what is grouped: a code, and the Service that it is about. What could not be judged is apart.
type key struct {
	service report.ObjectRef
	code    string
	unknown bool
}

// group is one finding of one Service.
type group struct {
	on       map[string]bool // nodes
	severity report.Severity // the worst
}

// How many different sets of nodes are compared at most, as most findings are of the same nodes, and how many values of
// properties are looked at for that: with 1,000 nodes of 20 labels all of these comparisons take some seconds.
const (
	maxCompared = 200
	maxValues   = 8 << 20
)

// Patterns groups what is wrong by finding and Service, and says of each group what its nodes share. nodes are the
// Node objects; those of other nodes are passed over. It returns nil for fewer than two nodes that were judged. What is
// on most nodes comes first.
func Patterns(reports []report.NodeReport, nodes []*corev1.Node) []report.Pattern {
	fleet := make([]Node, len(reports))
	known := 0
	for i := range reports {
		if fleet[i] = nodeOf(&reports[i]); fleet[i].Known {
			known++
		}
	}
	if known < 2 {
		return nil
	}
	out, _ := Group(fleet, nodes, 0)
	return out
}

// nodeOf takes from a report what is grouped. A path without a Service of its own is one of the report's Service, which
// all nodes have in common.
func nodeOf(r *report.NodeReport) Node {
	n := Node{Name: r.Node}
	if r.Error != "" {
		return n
	}
	n.Known, n.Mode = true, r.Mode
	add := func(of report.ObjectRef, f *report.Finding) {
		if f.Severity != report.Info { // information is true of many healthy nodes
			n.Findings = append(n.Findings, Finding{f.Code, f.Severity, of})
		}
	}
	for i := range r.Findings {
		add(report.ObjectRef{}, &r.Findings[i])
	}
	unsure := map[report.ObjectRef]bool{} // a path of the Service could not be judged
	for i := range r.Paths {
		p := &r.Paths[i]
		of := report.ObjectRef{}
		if p.Service != nil {
			of = *p.Service
		}
		if p.Verdict == report.Unknown {
			unsure[of] = true
		}
		for k := range p.Findings {
			add(of, &p.Findings[k])
		}
	}
	n.Unsure = func(_ string, of report.ObjectRef) bool { return unsure[of] }
	return n
}

// Group groups the findings of nodes, and says of each group what its nodes share. objects are the Node objects; those
// of other nodes are passed over. The worst comes first, and of that what is on most nodes. limit is how many groups
// are made, and left how many there are besides; 0: all are made.
func Group(nodes []Node, objects []*corev1.Node, limit int) (out []report.Pattern, left int) {
	byName := make(map[string]*corev1.Node, len(objects))
	for _, n := range objects {
		byName[n.Name] = n
	}
	var judged []*corev1.Node
	for i := range nodes {
		if n := byName[nodes[i].Name]; nodes[i].Known && n != nil {
			judged = append(judged, n)
		}
	}
	keys := labelsOf(judged)
	of := make([]properties, len(nodes))
	for i := range nodes {
		if n := &nodes[i]; n.Known {
			of[i] = propertiesOf(byName[n.Name], keys, n.Mode, n.ModeAt)
		}
	}
	groups := grouped(nodes)
	order := inOrder(groups)
	if limit > 0 && len(order) > limit {
		order, left = order[:limit], len(order)-limit
	}
	compared := map[string][]report.Shared{} // by which nodes are which
	looked := 0                              // at how many values, for that
	out = make([]report.Pattern, 0, len(order))
	for _, k := range order {
		p := report.Pattern{Code: k.code, Severity: groups[k].severity}
		if k.service.Name != "" || k.service.Namespace != "" {
			p.Service = &report.ObjectRef{Namespace: k.service.Namespace, Name: k.service.Name}
		}
		var bad, good []properties
		kinds := make([]byte, len(nodes))
		for i := range nodes {
			n := &nodes[i]
			switch {
			case groups[k].on[n.Name]:
				p.Nodes = append(p.Nodes, n.Name)
				bad = append(bad, of[i])
				kinds[i] = '+'
			case !n.Known || n.Unsure != nil && n.Unsure(k.code, k.service):
				p.NotKnown++
				kinds[i] = '?'
			default:
				p.Without++
				good = append(good, of[i])
				kinds[i] = '-'
			}
		}
		slices.SortFunc(p.Nodes, natural.Compare)
		same, ok := compared[string(kinds)]
		switch {
		case ok:
		case len(compared) >= maxCompared || looked > maxValues:
			p.NotCompared = true
		default:
			for _, list := range [][]properties{bad, good} {
				for i := range list {
					looked += len(list[i].texts) + len(list[i].times)
				}
			}
			same = shared(bad, good)
			compared[string(kinds)] = same
		}
		p.Shared = same
		out = append(out, p)
	}
	return out, left
}

// inOrder are the keys of groups in the order in which they are said.
func inOrder(groups map[key]*group) []key {
	out := make([]key, 0, len(groups))
	for k := range groups {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b key) int {
		return cmp.Or(
			report.CompareSeverities(groups[a].severity, groups[b].severity),
			len(groups[b].on)-len(groups[a].on), strings.Compare(a.code, b.code),
			strings.Compare(nameOf(&a.service), nameOf(&b.service)),
		)
	})
	return out
}

func nameOf(s *report.ObjectRef) string {
	if s == nil || s.Namespace == "" && s.Name == "" {
		return ""
	}
	return s.Namespace + "/" + s.Name
}

// grouped groups the findings of nodes.
func grouped(nodes []Node) map[key]*group {
	out := map[key]*group{}
	for i := range nodes {
		n := &nodes[i]
		for _, f := range n.Findings {
			if !slices.Contains(report.AgentSeverities, f.Severity) {
				continue
			}
			k := key{f.Service, f.Code, f.Severity == report.Info}
			x := out[k]
			if x == nil {
				x = &group{on: map[string]bool{}, severity: f.Severity}
				out[k] = x
			}
			x.on[n.Name] = true
			if report.CompareSeverities(f.Severity, x.severity) < 0 {
				x.severity = f.Severity
			}
		}
	}
	return out
}
