// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"hash/maphash"
	"iter"
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
	ModeAt time.Time
	// Findings are those of the node; nil: none. They are not kept: 10,000 nodes may have 80 each.
	Findings iter.Seq[Finding]
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
	key

	nodes    int     // how many have it
	on       []int32 // which, in order
	severity report.Severity
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
	out, _, _ := Group(fleet, nodes, 0)
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
	var findings []Finding
	add := func(of report.ObjectRef, f *report.Finding) {
		if f.Severity != report.Info { // information is true of many healthy nodes
			findings = append(findings, Finding{f.Code, f.Severity, of})
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
	n.Findings = slices.Values(findings)
	n.Unsure = func(_ string, of report.ObjectRef) bool { return unsure[of] }
	return n
}

// Group groups the findings of nodes, and says of each group what its nodes share. objects are the Node objects; those
// of other nodes are passed over. The worst comes first, and of that what is on most nodes. limit is how many groups
// are made, and left how many there are besides; 0: all are made.
// wrong is how many of all are more than information.
func Group(nodes []Node, objects []*corev1.Node, limit int) (out []report.Pattern, left, wrong int) {
	nodes = slices.Clone(nodes) // groups name them in this order
	slices.SortStableFunc(nodes, func(a, b Node) int { return natural.Compare(a.Name, b.Name) })
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
	order, left, wrong := grouped(nodes, limit)
	compared := map[string][]report.Shared{} // by which nodes are which
	looked := 0                              // at how many values, for that
	out = make([]report.Pattern, 0, len(order))
	for _, k := range order {
		p := report.Pattern{Code: k.code, Severity: k.severity}
		if k.service.Name != "" || k.service.Namespace != "" {
			p.Service = &report.ObjectRef{Namespace: k.service.Namespace, Name: k.service.Name}
		}
		kinds := make([]byte, len(nodes))
		on := k.on
		for i := range nodes {
			n := &nodes[i]
			switch {
			case len(on) > 0 && int(on[0]) == i:
				on = on[1:]
				p.Nodes = append(p.Nodes, n.Name)
				kinds[i] = '+'
			case !n.Known || n.Unsure != nil && n.Unsure(k.code, k.service):
				p.NotKnown++
				kinds[i] = '?'
			default:
				p.Without++
				kinds[i] = '-'
			}
		}
		same, ok := compared[string(kinds)]
		switch {
		case ok:
		case len(compared) >= maxCompared || looked > maxValues:
			p.NotCompared = true
		default:
			var bad, good []properties
			for i, kind := range kinds {
				switch kind {
				case '+':
					bad = append(bad, of[i])
				case '-':
					good = append(good, of[i])
				}
			}
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
	return out, left, wrong
}

// compare orders groups as they are said.
func compare(a, b *group) int {
	return cmp.Or(
		report.CompareSeverities(a.severity, b.severity), b.nodes-a.nodes, strings.Compare(a.code, b.code),
		strings.Compare(a.service.Namespace, b.service.Namespace), strings.Compare(a.service.Name, b.service.Name),
	)
}

func nameOf(s *report.ObjectRef) string {
	if s == nil || s.Namespace == "" && s.Name == "" {
		return ""
	}
	return s.Namespace + "/" + s.Name
}

// grouped groups the findings of nodes: the first limit groups in their order, 0 for all, how many there are besides,
// and how many of all are more than information. Of all groups only numbers are kept: 10,000 nodes may have 800,000.
func grouped(nodes []Node, limit int) (out []*group, left, wrong int) {
	type count struct {
		nodes, last int32
		severity    uint8 // in report.AgentSeverities
		listed      bool
	}
	counts := map[uint64]count{}
	seed := maphash.MakeSeed()
	each := func(f func(i int, k key, hash uint64, severity int)) {
		for i := range nodes {
			if nodes[i].Findings == nil {
				continue
			}
			for x := range nodes[i].Findings {
				if severity := slices.Index(report.AgentSeverities, x.Severity); severity >= 0 {
					k := key{x.Service, x.Code, x.Severity == report.Info}
					f(i, k, maphash.Comparable(seed, k), severity)
				}
			}
		}
	}
	each(func(i int, k key, hash uint64, severity int) {
		c, has := counts[hash]
		if !has && !k.unknown {
			wrong++
		}
		if !has || report.CompareSeverities(report.AgentSeverities[severity], report.AgentSeverities[c.severity]) < 0 {
			c.severity = uint8(severity) //nolint:gosec // there are three
		}
		if at := int32(i); !has || c.last != at { //nolint:gosec // of nodes
			c.nodes, c.last = c.nodes+1, at
		}
		counts[hash] = c
	})
	first := func() {
		slices.SortFunc(out, compare)
		if limit > 0 {
			out = out[:min(limit, len(out))]
		}
	}
	each(func(_ int, k key, hash uint64, _ int) {
		c := counts[hash]
		if c.listed {
			return
		}
		c.listed = true
		counts[hash] = c
		out = append(out, &group{key: k, nodes: int(c.nodes), severity: report.AgentSeverities[c.severity]})
		if limit > 0 && len(out) == 2*limit {
			first()
		}
	})
	first()
	listed := make(map[uint64]*group, len(out))
	for _, g := range out {
		listed[maphash.Comparable(seed, g.key)] = g
	}
	each(func(i int, _ key, hash uint64, _ int) {
		at := int32(i) //nolint:gosec // of nodes
		if g := listed[hash]; g != nil && (len(g.on) == 0 || g.on[len(g.on)-1] != at) {
			g.on = append(g.on, at)
		}
	})
	return out, len(counts) - len(out), wrong
}
