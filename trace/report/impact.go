// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
)

// Impact says in a sentence what the verdict of a TraceReport means for connections to its Service: how many of them,
// from where, and what their clients see ("1 of 3 connections to shop/web from pods of worker-1 hangs: dropped"). It is
// that of the worst that was found, and of all paths of which the same is true. It is empty for a Match, and where no
// path was judged. Of a VerifyReport it says how many Services are affected.
func Impact(r *Report) string {
	if r.Kind == KindVerify {
		return impactOnServices(r)
	}
	var worst effect
	var on []placed
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for k := range n.Paths {
			p := &n.Paths[k]
			if p.Verdict != r.Verdict {
				continue
			}
			switch e := effectOn(p); {
			case e.kind == noEffect:
			case e.worseThan(worst):
				worst, on = e, append(on[:0], placed{p, n.Node})
			case e == worst:
				on = append(on, placed{p, n.Node})
			}
		}
	}
	service := "the Service"
	if r.Service != nil {
		service = r.Service.Namespace + "/" + r.Service.Name
	}
	if len(on) == 0 {
		return impactOfNodes(r, service)
	}
	if worst.itself {
		return worst.toItself(service+frontendsOf(r, on), on)
	}
	return worst.sentence(service+frontendsOf(r, on), originsOf(on))
}

// impactOfNodes is the sentence where no path is wrong, and something about a node is.
func impactOfNodes(r *Report, service string) string {
	if r.Summary.Paths == 0 || r.Verdict != Mismatch && r.Verdict != Warning {
		return ""
	}
	var may []string
	for i := range r.Nodes {
		for k := range r.Nodes[i].Findings {
			f := &r.Nodes[i].Findings[k]
			if f.VerdictOn(nil) != r.Verdict {
				continue
			}
			if s := f.Client.Sentence; s != "" {
				if sum := &r.Summary; r.Kind == KindTrace && sum.Paths == sum.Matched+sum.ByDesign {
					s += "; all paths are right, so that new connections are not affected by it"
				}
				return s
			}
			if text := f.Code + " on " + r.Nodes[i].Node; f.Code != "" && !slices.Contains(may, text) {
				may = append(may, text)
			}
		}
	}
	const few = 3
	if len(may) == 0 || len(may) > few {
		may = []string{"what was found about the node"}
		if len(r.Nodes) > 1 {
			may[0] += "s"
		}
	}
	return "no path to " + service + " is wrong, but " + And(may) + " may affect its connections"
}

// impactOnServices says of which Services paths have the report's verdict, and on which nodes.
func impactOnServices(r *Report) string {
	words := map[Verdict]string{
		Mismatch: "connections that do not work as they should", Warning: "connections that may fail",
		Unknown: "connections of which it is not known what happens to them",
	}[r.Verdict]
	if words == "" {
		return ""
	}
	var services, nodes []string
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			p := &r.Nodes[i].Paths[k]
			if p.Service == nil || p.Verdict != r.Verdict {
				continue
			}
			if name := p.Service.Namespace + "/" + p.Service.Name; !slices.Contains(services, name) {
				services = append(services, name)
			}
			if node := r.Nodes[i].Node; !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	if len(services) == 0 {
		return impactOfNodes(r, "any Service")
	}
	const few = 3
	of, where := And(services), And(nodes)
	if left := len(services) - few; left > 0 {
		of = strings.Join(services[:few], ", ") + fmt.Sprintf(" and %d more", left)
	}
	if len(nodes) > few {
		where = fmt.Sprintf("%d of %d nodes", len(nodes), len(r.Nodes))
	}
	have := "have"
	if len(services) == 1 {
		have = "has"
	}
	return fmt.Sprintf("%s on %s %s %s: %s", count(len(services), "Service"), where, have, words, of)
}

// LeftToDNS tells whether kube-proxy programs nothing for the traced Service, wherever packets come from: its paths
// have no origin.
func (r *Report) LeftToDNS() bool {
	paths := 0
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			if p := &r.Nodes[i].Paths[k]; p.Verdict != ByDesign || p.Origin.Kind != "" {
				return false
			}
			paths++
		}
	}
	return paths > 0 && r.Service != nil
}

// placed is a path with its node.
type placed struct {
	*Path
	node string
}

// frontendsOf names the frontends of paths, where a report has others; "" where it has none.
func frontendsOf(r *Report, on []placed) string {
	distinct := func(paths []placed) (out []Frontend) {
		for _, p := range paths {
			if !slices.Contains(out, p.Frontend) {
				out = append(out, p.Frontend)
			}
		}
		return out
	}
	var every []placed
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			every = append(every, placed{&r.Nodes[i].Paths[k], r.Nodes[i].Node})
		}
	}
	all, hit := distinct(every), distinct(on)
	switch {
	case len(hit) == len(all):
		return ""
	case len(hit) == 1:
		f := &hit[0]
		return " at " + strings.TrimSpace(f.Kind+" "+JoinHostPort(f.Address, f.Port))
	}
	return fmt.Sprintf(" at %d of its %d frontends", len(hit), len(all))
}

// originsOf says where the packets of paths come from: " from pods of worker-1 and worker-1 itself".
func originsOf(on []placed) string {
	var keys []string
	nodes := map[string][]string{}
	for _, p := range on {
		key := originKey(p.Path)
		if nodes[key] == nil {
			keys = append(keys, key)
		}
		if !slices.Contains(nodes[key], p.node) {
			nodes[key] = append(nodes[key], p.node)
		}
	}
	parts := make([]string, len(keys))
	for i, key := range keys {
		of := nodes[key]
		const few = 3
		where := And(of)
		if len(of) > few {
			where = fmt.Sprintf("%d nodes", len(of))
		}
		switch {
		case !strings.Contains(key, "%s"):
			parts[i] = key
		case key == "%s itself" && len(of) > 1:
			parts[i] = where + " themselves"
		default:
			parts[i] = fmt.Sprintf(key, where)
		}
	}
	return " from " + And(parts)
}

// originKey is the text for an origin, with %s for its node where it depends on that.
func originKey(p *Path) string {
	o := &p.Origin
	switch {
	case o.Kind == "node":
		return "%s itself"
	case o.Kind == "pod" && len(o.Pods) == 1:
		return "pod " + strings.ReplaceAll(o.Pods[0], "%", "")
	case o.Kind == "pod" && len(o.Pods) > 0:
		return count(len(o.Pods), "pod") + " of %s"
	case o.Kind == "pod" && !o.Sample && o.Pod != "":
		return "pod " + strings.ReplaceAll(o.Pod, "%", "")
	case o.Kind == "pod":
		return "pods of %s"
	case o.Kind == "external" && !o.Sample && o.Address != "":
		return strings.ReplaceAll(o.Address, "%", "")
	}
	return "outside the cluster"
}

// And joins words as in a sentence.
func And(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Guilty are the rules and policies at which findings of severity error or warning point, that could not be judged, or
// that end packets which should have come to an endpoint.
func (p *Path) Guilty() map[RuleRef]bool {
	out := map[RuleRef]bool{}
	for _, x := range placesOf(p) {
		out[x.where] = true
	}
	return out
}
