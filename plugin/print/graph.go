// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"
)

// graph is pictures as vertices and edges, for the formats that lay them out themselves.
type graph struct {
	clusters []graphCluster
	more     string // what was left out, in words
}

// graphCluster is one picture.
type graphCluster struct {
	label    string
	vertices []vertex
	edges    []edge
}

type shape int

const (
	shapeOrigin shape = iota
	shapeStage
	shapeFork
	shapeEnd
)

// vertex is a box. Identifiers are made of letters, digits and "_" alone.
type vertex struct {
	id    string
	shape shape
	lines []string
	class string // of a state, or "plain" of what is neither right nor wrong
}

// edge is an arrow; dashed is one that should be there and is not.
type edge struct {
	from, to, label string
	dashed          bool
}

// graph makes vertices and edges of the report's pictures.
func (t *text) graph() *graph {
	pictures, more := t.pictures()
	g := &graph{}
	for i := range pictures {
		g.clusters = append(g.clusters, clusterOf(fmt.Sprintf("p%d_", i+1), &pictures[i]))
	}
	if more > 0 {
		g.more = fmt.Sprintf("… and %s (-o wide lists them all)", plural(more, "more path"))
	}
	return g
}

// clusterOf makes one picture; its vertices' identifiers begin with prefix.
func clusterOf(prefix string, p *picture) graphCluster {
	c := graphCluster{label: p.title() + ": " + verdictText(p.verdict)}
	if p.failure != "" {
		c.vertices = []vertex{{id: prefix + "node", shape: shapeStage, lines: []string{"not inspected", p.failure}, class: unsure.class()}}
		return c
	}
	var last []string // of each lane
	for i, l := range p.lanes {
		at := fmt.Sprintf("%sl%d", prefix, i+1)
		c.vertices = append(c.vertices, vertex{id: at, shape: shapeOrigin, lines: append([]string{"from"}, l.from...), class: "plain"})
		label := "to " + p.frontend
		if len(l.stages) == 0 {
			l.stages = []stage{{hook: "rules of " + p.node}}
		}
		for k := range l.stages {
			s := &l.stages[k]
			id := fmt.Sprintf("%s_%d", at, k+1)
			lines, worst := s.lines()
			c.vertices = append(c.vertices, vertex{id: id, shape: shapeStage, lines: lines, class: worst.onTheWay()})
			from := at
			if k > 0 {
				from, label = fmt.Sprintf("%s_%d", at, k), ""
			}
			c.edges = append(c.edges, edge{from: from, to: id, label: label})
		}
		last = append(last, fmt.Sprintf("%s_%d", at, len(l.stages)))
	}
	if len(last) > 1 && len(p.ends) > 1 {
		fork := prefix + "fork"
		c.vertices = append(c.vertices, vertex{id: fork, shape: shapeFork, lines: []string{"shared out"}, class: "plain"})
		for _, from := range last {
			c.edges = append(c.edges, edge{from: from, to: fork})
		}
		last = []string{fork}
	}
	for i := range p.ends {
		r := &p.ends[i]
		id := fmt.Sprintf("%se%d", prefix, i+1)
		c.vertices = append(c.vertices, vertex{id: id, shape: shapeEnd, lines: r.lines(), class: r.class()})
		for _, from := range last {
			c.edges = append(c.edges, edge{from: from, to: id, label: r.share(), dashed: r.missed()})
		}
	}
	return c
}

// lines are the label of a stage: the hook, and its chains, with what is wrong with them. worst is the stage's state.
func (s *stage) lines() (lines []string, worst state) {
	lines = []string{s.hook}
	for i := range s.chains {
		c := &s.chains[i]
		worst = max(worst, c.state)
		lines = append(lines, strings.TrimSuffix(c.text()+"  "+c.state.mark(), "  "))
	}
	if s.more > 0 {
		lines = append(lines, "… and "+plural(s.more, "more chain"))
	}
	return lines, worst
}

// onTheWay is the class of what a packet passes: that it is right is no more than that nothing is said against it.
func (s state) onTheWay() string {
	if s == right {
		return "plain"
	}
	return s.class()
}

// class is that of an end. A row that counts others is none.
func (r *row) class() string {
	if r.counts() {
		return "plain"
	}
	return r.state.class()
}
