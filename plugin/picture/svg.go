// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// SVG is a picture with every position settled; units are CSS pixels. It holds plain text: a template writes and
// escapes it.
type SVG struct {
	ID, Class   string
	Title, Desc string
	W, H        int
	Boxes       []Box
	Lines       []Line // arrows
	Labels      []Text // beside the arrows
}

// Box is a box with its text.
type Box struct {
	X, Y, W, H int
	Class      string // of its state, or "plain"
	Full       string // its text, not cut
	Texts      []Text
}

// Text is a line of text; Y is its baseline.
type Text struct {
	X, Y  int
	Class string
	Text  string
}

// Line is an arrow's line or its tip: the data of an SVG path element.
type Line struct {
	D, Class string
}

// Sizes in pixels. Text is set in a monospaced font of 11 px, whose characters are at most 6.7 px wide in the fonts
// that systems have.
const (
	charTenths = 67 // a character's width, in tenths of a pixel
	lineHeight = 16
	padding    = 10
	columnGap  = 40
	laneGap    = 28
	endGap     = 10
	cardLimit  = 38  // characters in a line of a stage
	endChars   = 47  // and of an end: an IPv6 address with its port
	shareWidth = 165 // room for "100%, 33.3% expected"
	tallWidth  = 330
	tallRail   = 12 // where the line runs down in the tall layout
	tallLeft   = 30
)

// card is a box before it has a position.
type card struct {
	class string
	lines []cardLine
	share string // what arrives at an end
	arrow string // the class of the arrow to an end
}

type cardLine struct{ class, text string }

func (c *card) height() int { return len(c.lines)*lineHeight + 2*padding - 4 }

// width is that of the longest line, which is cut at limit characters.
func (c *card) width(limit int) int {
	w := 0
	for _, l := range c.lines {
		w = max(w, min(plaintext.Width(l.text), limit))
	}
	return (w*charTenths+9)/10 + 2*padding // rounded up: at cuts what does not fit
}

func (c *card) at(x, y, w int) Box {
	b := Box{X: x, Y: y, W: w, H: c.height(), Class: c.class}
	chars := (w - 2*padding) * 10 / charTenths
	full := make([]string, len(c.lines))
	for i, l := range c.lines {
		full[i] = l.text
		baseline := y + padding + 10 + i*lineHeight - 1
		b.Texts = append(b.Texts, Text{x + padding, baseline, l.class, plaintext.Middle(l.text, chars)})
	}
	b.Full = strings.Join(full, "\n")
	return b
}

// cards are the boxes of a picture: those of each lane from the origin on, and the ends.
func (p *Picture) cards() (lanes [][]card, ends []card) {
	for _, l := range p.Lanes {
		origin := card{class: plainClass, lines: []cardLine{{"head", "from"}}}
		for _, from := range l.From {
			origin.add("mono", from)
		}
		origin.add("mono", "to "+p.Frontend)
		lane := []card{origin}
		for i := range l.Stages {
			lane = append(lane, l.Stages[i].card())
		}
		if len(l.Stages) == 0 {
			lane = append(lane, card{class: plainClass, lines: []cardLine{{"head", "rules of " + p.Node}}})
		}
		lanes = append(lanes, lane)
	}
	for i := range p.Ends {
		ends = append(ends, p.Ends[i].card())
	}
	return lanes, ends
}

func (c *card) add(class, text string) {
	c.lines = append(c.lines, cardLine{class, plaintext.Clean(text)})
}

// card lists a hook's chains below their tables: a chain's name is long enough without its table's.
func (s *Stage) card() card {
	worst := s.state()
	c := card{class: worst.ChainClass()}
	c.add("head", strings.TrimSpace(s.Hook+"  "+symbolOf(worst)+worst.mark()))
	table := ""
	for i := range s.Chains {
		link := &s.Chains[i]
		if link.Table != table {
			table = link.Table
			c.add("mono table", table)
		}
		class := "mono"
		if link.State != OK {
			class = "mono mark"
		}
		c.add(class, "  "+symbolOf(link.State)+link.Name+link.which())
	}
	if s.More > 0 {
		c.add("mono", "  … and "+plaintext.Plural(s.More, "more chain"))
	}
	return c
}

// symbolOf marks what a finding points at.
func symbolOf(s State) string {
	if s.mark() == "" {
		return ""
	}
	return s.Symbol() + " "
}

func (e *End) card() card {
	c := card{class: e.class(), share: plaintext.Clean(e.Share), arrow: e.class()}
	if e.Counts {
		c.share = ""
	}
	c.add("head mono", e.Lines[0])
	for _, l := range e.Lines[1:] {
		c.add("mono", l)
	}
	if e.Status != "" {
		c.add("mono mark", e.State.Symbol()+" "+e.Status)
	}
	if e.Missed {
		c.arrow += " none"
	}
	return c
}

// describe says in words what the picture shows.
func (p *Picture) describe() string {
	var s []string
	for _, l := range p.Lanes {
		passed := []string{"Packets from " + strings.Join(l.From, ", ")}
		for i := range l.Stages {
			st := &l.Stages[i]
			hook := []string{st.Hook}
			for k := range st.Chains {
				if c := &st.Chains[k]; c.State.mark() != "" {
					hook = append(hook, "("+strings.ToLower(c.State.mark())+": "+c.text()+")")
				}
			}
			passed = append(passed, strings.Join(hook, " "))
		}
		s = append(s, strings.Join(passed, ", ")+".")
	}
	for i := range p.Ends {
		e := &p.Ends[i]
		if e.Counts {
			s = append(s, e.Lines[0]+".")
			continue
		}
		s = append(s, strings.TrimSpace(strings.Join(e.labelled(), ", ")+": "+e.Share)+".")
	}
	return plaintext.Clean(strings.Join(s, " "))
}

func (p *Picture) drawing(id, class string) *SVG {
	return &SVG{ID: id, Class: class, Title: plaintext.Clean(p.title()) + ": " + p.Verdict, Desc: p.describe()}
}

// Wide lays a picture out from left to right.
func (p *Picture) Wide(id string) *SVG {
	lanes, ends := p.cards()
	s := p.drawing(id, "wide")
	var columns []int
	laneHeights, left := make([]int, len(lanes)), 0
	for i, lane := range lanes {
		for k := range lane {
			if k == len(columns) {
				columns = append(columns, 0)
			}
			columns[k] = max(columns[k], lane[k].width(cardLimit))
			laneHeights[i] = max(laneHeights[i], lane[k].height())
		}
		left += laneHeights[i]
	}
	left += laneGap * max(len(lanes)-1, 0)
	endWidth, height := 0, 0
	for i := range ends {
		endWidth = max(endWidth, ends[i].width(endChars))
		height += ends[i].height() + endGap
	}
	height = max(height-endGap, left)

	fork := 1
	for _, w := range columns {
		fork += w + columnGap
	}
	fork -= columnGap / 2
	middleY := 1 + height/2
	y := 1 + (height-left)/2
	for i, lane := range lanes {
		x, at := 1, y+laneHeights[i]/2
		for k := range lane {
			b := lane[k].at(x, at-lane[k].height()/2, columns[k])
			s.Boxes = append(s.Boxes, b)
			if k > 0 {
				s.arrow(fmt.Sprintf("M%d %dH%d", x-columnGap, at, x), x, at, "plain", tipRight)
			}
			x += columns[k] + columnGap
		}
		last := 1
		for k := range lane {
			last += columns[k] + columnGap
		}
		last -= columnGap
		s.Lines = append(s.Lines, Line{curve(last, at, fork, middleY), "arrow plain"})
		y += laneHeights[i] + laneGap
	}
	total := -endGap
	for i := range ends {
		total += ends[i].height() + endGap
	}
	y = 1 + (height-total)/2
	bend := fork + columnGap
	x := bend + shareWidth
	for i := range ends {
		e := &ends[i]
		at := y + e.height()/2
		s.Boxes = append(s.Boxes, e.at(x, y, endWidth))
		s.arrow(fmt.Sprintf("%sH%d", curve(fork, middleY, bend, at), x), x, at, e.arrow, tipRight)
		if e.share != "" {
			s.Labels = append(s.Labels, Text{bend + 4, at - 5, "label " + e.class, e.share})
		}
		y += e.height() + endGap
	}
	s.W, s.H = x+endWidth+1, height+2
	return s
}

// Tall lays a picture out from top to bottom, for narrow screens: all ends branch off a line that runs down at the
// left.
func (p *Picture) Tall(id string) *SVG {
	lanes, ends := p.cards()
	s := p.drawing(id, "tall")
	y, first, end := 1, 0, 0
	w := tallWidth - tallLeft - 1
	for _, lane := range lanes {
		for k := range lane {
			if k > 0 {
				s.arrow(fmt.Sprintf("M%d %dV%d", tallLeft+20, y-laneGap, y), tallLeft+20, y, "plain", tipDown)
			}
			b := lane[k].at(tallLeft, y, w)
			s.Boxes = append(s.Boxes, b)
			y += b.H + laneGap
		}
		at := y - laneGap - lane[len(lane)-1].height()/2
		s.Lines = append(s.Lines, Line{fmt.Sprintf("M%d %dH%d", tallLeft, at, tallRail), "arrow plain"})
		if first == 0 {
			first = at
		}
	}
	for i := range ends {
		e := &ends[i]
		if e.share != "" {
			s.Labels = append(s.Labels, Text{tallLeft, y - 1, "label " + e.class, e.share})
			y += 5
		}
		at := y + e.height()/2
		s.Boxes = append(s.Boxes, e.at(tallLeft, y, w))
		s.arrow(fmt.Sprintf("M%d %dH%d", tallRail, at, tallLeft), tallLeft, at, e.arrow, tipRight)
		end = at
		y += e.height() + laneGap - 4
	}
	s.Lines = append([]Line{{fmt.Sprintf("M%d %dV%d", tallRail, first, max(first, end)), "arrow plain"}}, s.Lines...)
	s.W, s.H = tallWidth, y-laneGap+6
	return s
}

// curve is a line from one point to another that begins and ends level.
func curve(x1, y1, x2, y2 int) string {
	if y1 == y2 {
		return fmt.Sprintf("M%d %dH%d", x1, y1, x2)
	}
	m := (x1 + x2) / 2
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, m, y1, m, y2, x2, y2)
}

// The tips of arrows, from their point on.
const (
	tipRight = "l-8 -4v8z"
	tipDown  = "l-4 -8h8z"
)

// arrow draws a line that ends at a point, and its tip.
func (s *SVG) arrow(d string, x, y int, class, tip string) {
	s.Lines = append(s.Lines, Line{d, "arrow " + class}, Line{fmt.Sprintf("M%d %d%s", x, y, tip), "tip " + class})
}
