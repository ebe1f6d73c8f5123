// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// EndToEnd is connections from a client to the endpoints of a frontend and back, over both nodes and pods: what all
// have in common on the left, then a row for each endpoint, with the request above and the answer below.
type EndToEnd struct {
	Service  string // namespace/name; empty where the whole report is of one Service
	Node     string // the client's
	Frontend string
	From     string
	Verdict  string
	Common   []Part // the client's pod and node
	Routes   []Route
	More     string // in words, which endpoints are not drawn
}

// Route is what is particular to one endpoint.
type Route struct {
	Endpoint string // address and port
	Parts    []Part // of the request: the network, the endpoint's node, its pod
	Answer   *Part  // nil where none comes to be
}

// Part is one segment.
type Part struct {
	Name   string // "client's node"
	Place  string // "node worker-1"
	State  State
	Status string // in a word
	Text   string // what was found
	Ghost  bool   // the packet does not come there
}

func (e *EndToEnd) title() string {
	s := e.From + " to " + e.Frontend + ", end to end"
	if e.Service != "" {
		s += " (" + e.Service + ")"
	}
	return s
}

// class is that of a part: nothing is said against one that is right, and what is not known or wrong stands out.
func (p *Part) class() string {
	if p.Ghost {
		return "ghost"
	}
	return p.State.ChainClass()
}

// lines are the label of a part.
func (p *Part) lines() []string {
	head := p.Name
	if p.Ghost {
		return append(nonEmpty(head, p.Place), "not reached")
	}
	return nonEmpty(head, p.Place, strings.TrimSpace(p.State.Symbol()+" "+p.Status), p.Text)
}

func nonEmpty(list ...string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// right tells whether all of a route is.
func (r *Route) right() bool {
	return r.Answer != nil && r.Answer.State == OK &&
		!slices.ContainsFunc(r.Parts, func(p Part) bool { return p.State != OK || p.Ghost })
}

// card is a part as a box, with lines of at most limit characters.
func (p *Part) card(limit int, more ...string) card {
	c := card{class: p.class(), arrow: plainClass}
	if p.Ghost {
		c.arrow += " none"
	}
	c.add("head", p.Name)
	for _, line := range nonEmpty(more...) {
		c.add("mono", line)
	}
	if p.Place != "" {
		c.add("mono table", p.Place)
	}
	if p.Ghost {
		c.add("mono table", "not reached")
		return c.wrapped(limit)
	}
	c.add("mono mark "+p.State.Class(), p.State.Symbol()+" "+p.Status)
	if p.Text != "" {
		c.add("mono", p.Text)
	}
	return c.wrapped(limit)
}

func (e *EndToEnd) drawing(id, class string) *SVG {
	return &SVG{ID: id, Class: class, Title: plaintext.Clean(e.title()) + ": " + e.Verdict, Desc: e.describe()}
}

// describe says in words what the picture shows.
func (e *EndToEnd) describe() string {
	var out []string
	say := func(p *Part) {
		s := strings.Join(nonEmpty(p.Name, p.Place), ", ") + ": "
		if p.Ghost {
			out = append(out, s+"not reached.")
			return
		}
		out = append(out, s+strings.Join(nonEmpty(p.Status, p.Text), ", ")+".")
	}
	for i := range e.Common {
		say(&e.Common[i])
	}
	for i := range e.Routes {
		r := &e.Routes[i]
		out = append(out, "To "+r.Endpoint+":")
		for k := range r.Parts {
			say(&r.Parts[k])
		}
		if r.Answer != nil {
			say(r.Answer)
		}
	}
	return plaintext.Clean(strings.Join(append(out, nonEmpty(e.More)...), " "))
}

// Sizes of the wide layout: columns of the same width, so that what is the same segment stands in one.
const (
	partColumns = 5
	partGap     = 40
	partWidth   = (WideRoom - 2 - (partColumns-1)*partGap) / partColumns
	answerGap   = 18 // between a route's boxes and its answer
	routeGap    = 26 // between routes
)

// partX is where a column begins.
func partX(column int) int { return 1 + column*(partWidth+partGap) }

// Wide lays it out from left to right: what is common as high as all routes together, the answer of each route below
// its boxes.
func (e *EndToEnd) Wide(id string) *SVG {
	s := e.drawing(id, "wide")
	chars := charsIn(partWidth)
	common := make([]card, len(e.Common))
	height := 0
	for i := range e.Common {
		common[i] = e.Common[i].card(chars)
		height = max(height, common[i].height())
	}
	// Routes stand beside the last common box; with one or none of these they begin where those would have ended.
	x := partX(len(common))
	y, answers := 1, []int{}
	firsts := make([]int, 0, len(e.Routes))
	for i := range e.Routes {
		r := &e.Routes[i]
		bottom, first := s.route(r, x, y, chars)
		firsts = append(firsts, first)
		if r.Answer != nil {
			at, next := s.answer(r.Answer, x, len(r.Parts), bottom+answerGap)
			answers, bottom = append(answers, at), next
		}
		y = bottom + routeGap
	}
	if e.More != "" {
		c := card{class: plainClass}
		c.add("mono table", e.More)
		c = c.wrapped(charsIn(span(3)))
		b := c.at(x, y, span(3), 0)
		s.Boxes = append(s.Boxes, b)
		y += b.H + routeGap
	}
	height = max(height, y-routeGap-1)
	for i := range common {
		b := common[i].at(partX(i), 1, partWidth, height)
		s.Boxes = append(s.Boxes, b)
		if i == 0 {
			continue
		}
		to := partX(i)
		at := 1 + common[i].height()/2
		if len(firsts) > 0 {
			at = firsts[0]
		}
		s.arrow(fmt.Sprintf("M%d %dH%d", to-partGap, at, to), to, at, common[i].arrow, tipRight)
		if len(answers) > 0 {
			at = answers[len(answers)-1]
			s.arrow(fmt.Sprintf("M%d %dH%d", to, at, to-partGap), to-partGap, at, "answer", tipLeft)
		}
	}
	s.W, s.H = x-partGap+1, height+2
	for _, b := range s.Boxes {
		s.W = max(s.W, b.X+b.W+1)
	}
	return s
}

// span is the width of some columns.
func span(columns int) int { return columns*partWidth + (columns-1)*partGap }

// route draws the boxes of a route, and says where they end and at which height the request comes to them.
func (s *SVG) route(r *Route, x, y, chars int) (bottom, at int) {
	cards := make([]card, len(r.Parts))
	height := 0
	for k := range r.Parts {
		more := ""
		if k == len(r.Parts)-1 {
			more = r.Endpoint
		}
		cards[k] = r.Parts[k].card(chars, more)
		height = max(height, cards[k].height())
	}
	at = y + height/2
	for k := range cards {
		to := x + k*(partWidth+partGap)
		s.Boxes = append(s.Boxes, cards[k].at(to, y, partWidth, height))
		s.arrow(fmt.Sprintf("M%d %dH%d", to-partGap, at, to), to, at, cards[k].arrow, tipRight)
	}
	return y + height, at
}

// answer draws the answer of a route with so many boxes, below them, and says at which height it goes back and where
// it ends.
func (s *SVG) answer(p *Part, x, boxes, y int) (at, bottom int) {
	w := span(boxes)
	c := card{class: p.class()}
	c.add("head", strings.Join(nonEmpty(p.Name, p.Place), " · "))
	c.add("mono mark "+p.State.Class(), strings.Join(nonEmpty(p.State.Symbol()+" "+p.Status, p.Text), ": "))
	c = c.wrapped(charsIn(w))
	b := c.at(x, y, w, 0)
	s.Boxes = append(s.Boxes, b)
	down := x + w - partWidth/2
	s.arrow(fmt.Sprintf("M%d %dV%d", down, y-answerGap, y), down, y, "answer", tipDown)
	at = y + b.H/2
	class := "answer"
	if p.State == Wrong {
		class += " none"
	}
	s.arrow(fmt.Sprintf("M%d %dH%d", x, at, x-partGap), x-partGap, at, class, tipLeft)
	return at, y + b.H
}

// Tall lays it out from top to bottom, for narrow screens. A route of which all is right is one box.
func (e *EndToEnd) Tall(id string) *SVG {
	const (
		w     = TallRoom - tallLeft - 1
		short = 20
	)
	s := e.drawing(id, "tall")
	chars := charsIn(w)
	y, first, last := 1, 0, 0
	put := func(c card) {
		b := c.at(tallLeft, y, w, 0)
		s.Boxes = append(s.Boxes, b)
		y += b.H
	}
	down := func(class string) {
		s.arrow(fmt.Sprintf("M%d %dV%d", tallLeft+20, y, y+short), tallLeft+20, y+short, class, tipDown)
		y += short
	}
	for i := range e.Common {
		if i > 0 {
			down(plainClass)
		}
		c := e.Common[i].card(chars)
		first = y + c.height()/2
		put(c)
	}
	branch := func(c card) {
		y += endGap + 4
		last = y + min(c.height(), 40)/2
		s.arrow(fmt.Sprintf("M%d %dH%d", tallRail, last, tallLeft), tallLeft, last, c.arrow, tipRight)
		put(c)
	}
	for i := range e.Routes {
		r := &e.Routes[i]
		if r.right() {
			branch(r.folded(chars))
			continue
		}
		for k := range r.Parts {
			more := ""
			if k == 0 || k == len(r.Parts)-1 {
				more = r.Endpoint
				if k == 0 {
					more = "to " + more
				}
			}
			c := r.Parts[k].card(chars, more)
			if k == 0 {
				branch(c)
				continue
			}
			down(c.arrow)
			put(c)
		}
		if r.Answer != nil {
			down("answer")
			put(r.Answer.card(chars))
		}
	}
	if e.More != "" {
		c := card{class: plainClass, arrow: plainClass}
		c.add("mono table", e.More)
		branch(c.wrapped(chars))
	}
	if last > 0 {
		s.Lines = append(s.Lines, Line{fmt.Sprintf("M%d %dH%dV%d", tallLeft, first, tallRail, last), "arrow plain"})
	}
	s.W, s.H = TallRoom, y+2
	return s
}

// folded is a route of which all is right, as one box.
func (r *Route) folded(chars int) card {
	c := card{class: plainClass, arrow: plainClass}
	c.add("head mono", r.Endpoint)
	for i := range r.Parts {
		if r.Parts[i].Place != "" && i > 0 {
			c.add("mono table", r.Parts[i].Place)
		}
	}
	c.add("mono mark "+OK.Class(), OK.Symbol()+" right, in both directions")
	return c.wrapped(chars)
}

// cluster is it as vertices and edges: of each route its segments, one after the other, and the answer as an arrow back
// to the client, or as a box where it does not come back.
func (e *EndToEnd) cluster(prefix string) cluster {
	c := cluster{label: e.title() + ": " + e.Verdict}
	put := func(id string, p *Part, from, label string, more ...string) string {
		class := p.class()
		if p.Ghost {
			class = plainClass
		}
		shape := shapeStage
		if from == "" {
			shape = shapeOrigin
		}
		lines := append(nonEmpty(more...), p.lines()...)
		c.vertices = append(c.vertices, vertex{id: id, shape: shape, lines: lines, class: class})
		if from != "" {
			c.edges = append(c.edges, edge{from: from, to: id, label: label, dashed: p.Ghost})
		}
		return id
	}
	from, label, first := "", "", ""
	for i := range e.Common {
		from = put(fmt.Sprintf("%sc%d", prefix, i+1), &e.Common[i], from, label)
		label = "request to " + e.Frontend
		if i == 0 {
			first = from
		}
	}
	for i := range e.Routes {
		r := &e.Routes[i]
		at := from
		for k := range r.Parts {
			arrow, more := "", ""
			if k == 0 {
				arrow = "to " + r.Endpoint
			}
			if k == len(r.Parts)-1 {
				more = r.Endpoint
			}
			at = put(fmt.Sprintf("%sr%d_%d", prefix, i+1, k+1), &r.Parts[k], at, arrow, more)
		}
		switch a := r.Answer; {
		case a == nil:
		case a.State == OK && first != "":
			c.edges = append(c.edges, edge{from: at, to: first, label: strings.Join(nonEmpty(a.Name, a.Text), ": ")})
		default:
			put(fmt.Sprintf("%sr%d_a", prefix, i+1), a, at, "")
		}
	}
	if e.More != "" {
		c.vertices = append(
			c.vertices, vertex{id: prefix + "more", shape: shapeEnd, lines: []string{e.More}, class: plainClass},
		)
		if from != "" {
			c.edges = append(c.edges, edge{from: from, to: prefix + "more"})
		}
	}
	return c
}
