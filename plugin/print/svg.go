// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"
)

// svg is a picture with every place settled; units are CSS pixels. The template draws it, and escapes its texts.
type svg struct {
	ID, Class   string
	Title, Desc string
	W, H        int
	Boxes       []svgBox
	Lines       []svgPath // ways of packets
	Labels      []svgText // beside the ways
}

// svgBox is a box with its text.
type svgBox struct {
	X, Y, W, H int
	Class      string // of its state, or "plain"
	Full       string // its text uncut
	Texts      []svgText
}

// svgText is a line of text; Y is its baseline.
type svgText struct {
	X, Y  int
	Class string
	Text  string
}

// svgPath is a way, or the head of an arrow.
type svgPath struct {
	D, Class string
}

// Sizes in pixels. Text is set in a monospaced font of 11 px, whose characters are at most 6.7 px wide in the fonts that systems have.
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
	tallRail   = 12 // where the ways run down in the tall layout
	tallLeft   = 30
)

// card is a box before it has a place.
type card struct {
	class string
	lines []cardLine
	share string // what arrives at an end
	way   string // the class of the way to an end
}

type cardLine struct{ class, text string }

func (c *card) height() int { return len(c.lines)*lineHeight + 2*padding - 4 }

// width is that of the longest line, which is cut at limit characters.
func (c *card) width(limit int) int {
	w := 0
	for _, l := range c.lines {
		w = max(w, min(width(l.text), limit))
	}
	return (w*charTenths+9)/10 + 2*padding // rounded up: at cuts what does not fit
}

func (c *card) at(x, y, w int) svgBox {
	b := svgBox{X: x, Y: y, W: w, H: c.height(), Class: c.class}
	chars := (w - 2*padding) * 10 / charTenths
	full := make([]string, len(c.lines))
	for i, l := range c.lines {
		full[i] = l.text
		b.Texts = append(b.Texts, svgText{x + padding, y + padding + 10 + i*lineHeight - 1, l.class, middle(l.text, chars)})
	}
	b.Full = strings.Join(full, "\n")
	return b
}

// symbols stand beside colours, for those who do not see them.
var symbols = map[state]string{right: "✓", intended: "–", unsure: "?", off: "!", broken: "✗"}

// cards are the boxes of a picture: those of each lane from the origin on, and the ends.
func (p *picture) cards() (lanes [][]card, ends []card) {
	for _, l := range p.lanes {
		origin := card{class: "plain", lines: []cardLine{{"head", "from"}}}
		for _, from := range l.from {
			origin.add("mono", from)
		}
		origin.add("mono", "to "+p.frontend)
		lane := []card{origin}
		for i := range l.stages {
			lane = append(lane, l.stages[i].card())
		}
		if len(l.stages) == 0 {
			lane = append(lane, card{class: "plain", lines: []cardLine{{"head", "rules of " + p.node}}})
		}
		lanes = append(lanes, lane)
	}
	for i := range p.ends {
		ends = append(ends, p.ends[i].card())
	}
	return lanes, ends
}

func (c *card) add(class, text string) { c.lines = append(c.lines, cardLine{class, clean(text)}) }

// card lists a hook's chains below their tables: a chain's name is long enough without its table's.
func (s *stage) card() card {
	c := card{}
	worst := right
	for i := range s.chains {
		worst = max(worst, s.chains[i].state)
	}
	c.add("head", strings.TrimSpace(s.hook+"  "+symbolOf(worst)+worst.mark()))
	table := ""
	for i := range s.chains {
		link := &s.chains[i]
		in, chain := link.split()
		if in != table {
			table = in
			c.add("mono table", in)
		}
		class := "mono"
		if link.state != right {
			class = "mono mark"
		}
		c.add(class, "  "+symbolOf(link.state)+chain+link.which())
	}
	if s.more > 0 {
		c.add("mono", "  … and "+plural(s.more, "more chain"))
	}
	c.class = worst.onTheWay()
	return c
}

// symbolOf marks what a finding points at.
func symbolOf(s state) string {
	if s.mark() == "" {
		return ""
	}
	return symbols[s] + " "
}

func (r *row) card() card {
	c := card{class: r.class(), share: clean(r.share()), way: r.class()}
	if r.counts() {
		c.share = ""
	}
	lines := r.lines()
	c.add("head mono", lines[0])
	for _, l := range lines[1:] {
		if l == r.status {
			c.add("mono mark", symbols[r.state]+" "+l)
		} else {
			c.add("mono", l)
		}
	}
	if r.status == "ok" {
		c.add("mono mark", symbols[r.state]+" ok")
	}
	if r.missed() {
		c.way += " none"
	}
	return c
}

// describe says in words what the picture shows.
func (p *picture) describe() string {
	var s []string
	for _, l := range p.lanes {
		way := []string{"Packets from " + strings.Join(l.from, ", ")}
		for i := range l.stages {
			st := &l.stages[i]
			hook := []string{st.hook}
			for k := range st.chains {
				if c := &st.chains[k]; c.state.mark() != "" {
					hook = append(hook, "("+strings.ToLower(c.state.mark())+": "+c.text()+")")
				}
			}
			way = append(way, strings.Join(hook, " "))
		}
		s = append(s, strings.Join(way, ", ")+".")
	}
	for i := range p.ends {
		r := &p.ends[i]
		if r.counts() {
			s = append(s, r.endpoint+".")
			continue
		}
		s = append(s, strings.TrimSpace(strings.Join(r.lines(), ", ")+": "+r.share())+".")
	}
	return clean(strings.Join(s, " "))
}

func (p *picture) drawing(id, class string) *svg {
	return &svg{ID: id, Class: class, Title: clean(p.title()) + ": " + verdictText(p.verdict), Desc: p.describe()}
}

// wideSVG lays a picture out from left to right.
func (p *picture) wideSVG(id string) *svg {
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
				s.arrow(fmt.Sprintf("M%d %dH%d", x-columnGap, at, x), x, at, "plain")
			}
			x += columns[k] + columnGap
		}
		last := 1
		for k := range lane {
			last += columns[k] + columnGap
		}
		last -= columnGap
		s.Lines = append(s.Lines, svgPath{curve(last, at, fork, middleY), "way plain"})
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
		s.arrow(fmt.Sprintf("%sH%d", curve(fork, middleY, bend, at), x), x, at, e.way)
		if e.share != "" {
			s.Labels = append(s.Labels, svgText{bend + 4, at - 5, "label " + e.class, e.share})
		}
		y += e.height() + endGap
	}
	s.W, s.H = x+endWidth+1, height+2
	return s
}

// tallSVG lays a picture out from top to bottom, for narrow screens. The ways run down a rail at the left, at which all ends hang.
func (p *picture) tallSVG(id string) *svg {
	lanes, ends := p.cards()
	s := p.drawing(id, "tall")
	y, first, end := 1, 0, 0
	w := tallWidth - tallLeft - 1
	for _, lane := range lanes {
		for k := range lane {
			if k > 0 {
				s.arrow(fmt.Sprintf("M%d %dV%d", tallLeft+20, y-laneGap, y), tallLeft+20, y, "plain down")
			}
			b := lane[k].at(tallLeft, y, w)
			s.Boxes = append(s.Boxes, b)
			y += b.H + laneGap
		}
		at := y - laneGap - lane[len(lane)-1].height()/2
		s.Lines = append(s.Lines, svgPath{fmt.Sprintf("M%d %dH%d", tallLeft, at, tallRail), "way plain"})
		if first == 0 {
			first = at
		}
	}
	for i := range ends {
		e := &ends[i]
		if e.share != "" {
			s.Labels = append(s.Labels, svgText{tallLeft, y - 1, "label " + e.class, e.share})
			y += 5
		}
		at := y + e.height()/2
		s.Boxes = append(s.Boxes, e.at(tallLeft, y, w))
		s.arrow(fmt.Sprintf("M%d %dH%d", tallRail, at, tallLeft), tallLeft, at, e.way)
		end = at
		y += e.height() + laneGap - 4
	}
	s.Lines = append([]svgPath{{fmt.Sprintf("M%d %dV%d", tallRail, first, max(first, end)), "way plain"}}, s.Lines...)
	s.W, s.H = tallWidth, y-laneGap+6
	return s
}

// curve leads from one point to another and begins and ends level.
func curve(x1, y1, x2, y2 int) string {
	if y1 == y2 {
		return fmt.Sprintf("M%d %dH%d", x1, y1, x2)
	}
	m := (x1 + x2) / 2
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, m, y1, m, y2, x2, y2)
}

// arrow draws a way that ends at a point, and its head.
func (s *svg) arrow(d string, x, y int, class string) {
	s.Lines = append(s.Lines, svgPath{d, "way " + class})
	head := fmt.Sprintf("M%d %dl-8 -4v8z", x, y)
	if rest, down := strings.CutSuffix(class, " down"); down {
		class, head = rest, fmt.Sprintf("M%d %dl-4 -8h8z", x, y)
	}
	s.Lines = append(s.Lines, svgPath{head, "tip " + class})
}
