// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// graph is pictures as vertices and edges, for the formats that lay them out themselves.
type graph struct {
	clusters []cluster
	more     string // what was left out, in words
}

// cluster is one picture.
type cluster struct {
	label    string
	vertices []vertex
	edges    []edge
}

// shape is the outline of a vertex.
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
	class string
}

// edge is an arrow; dashed is one that should be there and is not.
type edge struct {
	from, to, label string
	dashed          bool
}

// graphOf makes vertices and edges of pictures.
func graphOf(drawings []Drawing, more string) *graph {
	g := &graph{more: more}
	for i, d := range drawings {
		g.clusters = append(g.clusters, d.cluster(fmt.Sprintf("p%d_", i+1)))
	}
	return g
}

func (p *Picture) cluster(prefix string) cluster {
	c := cluster{label: p.title() + ": " + p.Verdict}
	if p.Failure != "" {
		c.vertices = []vertex{{
			id: prefix + "node", shape: shapeStage, lines: []string{"not inspected", p.Failure}, class: Unknown.Class(),
		}}
		return c
	}
	var last []string // vertex of each lane
	for i := range p.Lanes {
		last = append(last, c.lane(fmt.Sprintf("%sl%d", prefix, i+1), p, &p.Lanes[i]))
	}
	if len(last) > 1 && len(p.Ends) > 1 {
		fork := prefix + "fork"
		c.vertices = append(
			c.vertices,
			vertex{id: fork, shape: shapeFork, lines: []string{"distributed"}, class: plainClass},
		)
		for _, from := range last {
			c.edges = append(c.edges, edge{from: from, to: fork})
		}
		last = []string{fork}
	}
	for i := range p.Ends {
		e := &p.Ends[i]
		id := fmt.Sprintf("%se%d", prefix, i+1)
		c.vertices = append(c.vertices, vertex{id: id, shape: shapeEnd, lines: e.labelled(), class: p.endClass(e)})
		for _, from := range last {
			c.edges = append(c.edges, edge{from: from, to: id, label: e.Share, dashed: e.Missed})
		}
	}
	return c
}

// lane adds the origin and the stages of a lane, and returns its last vertex.
func (c *cluster) lane(id string, p *Picture, l *Lane) (last string) {
	c.vertices = append(
		c.vertices,
		vertex{id: id, shape: shapeOrigin, lines: append([]string{"from"}, l.From...), class: plainClass},
	)
	stages := l.Stages
	if len(stages) == 0 {
		stages = []Stage{{Hook: "rules of " + p.Node}}
	}
	last = id
	label := "to " + p.Frontend
	for k := range stages {
		for j, part := range stages[k].apart() {
			at := fmt.Sprintf("%s_%d", id, k+1)
			if j > 0 {
				at += fmt.Sprintf("_%d", j+1)
			}
			c.vertices = append(
				c.vertices,
				vertex{id: at, shape: shapeStage, lines: part.lines(), class: part.state().ChainClass()},
			)
			c.edges = append(c.edges, edge{from: last, to: at, label: label})
			last, label = at, ""
		}
	}
	return last
}

// apart is a stage in pieces, so that a chain that is not as it should be is a box of its own: a box has one colour.
func (s *Stage) apart() []Stage {
	var out []Stage
	for i := range s.Chains {
		c := &s.Chains[i]
		if last := len(out) - 1; last >= 0 && out[last].state() == c.State {
			out[last].Chains = append(out[last].Chains, *c)
			continue
		}
		out = append(out, Stage{Hook: s.Hook, Chains: []Chain{*c}})
	}
	if len(out) == 0 {
		out = []Stage{{Hook: s.Hook}}
	}
	out[len(out)-1].More = s.More
	return out
}

// lines are the label of a stage: the hook, and its chains, with what is wrong with them.
func (s *Stage) lines() []string {
	lines := []string{s.Hook}
	for i := range s.Chains {
		c := &s.Chains[i]
		line := c.text()
		if mark := c.State.mark(); mark != "" {
			line += "  " + mark
		}
		lines = append(lines, line)
	}
	if s.More > 0 {
		lines = append(lines, "… and "+plaintext.Plural(s.More, "more chain"))
	}
	return lines
}
