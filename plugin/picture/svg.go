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
}

// Box is a box with its text.
type Box struct {
	X, Y, W, H int
	Class      string // of its state, or "plain"
	Full       string // its text, not cut
	Marks      []Mark // behind the lines of text that are not as they should be
	Texts      []Text
}

// Mark is the ground of a line of text; its class is that of a state.
type Mark struct {
	X, Y, W, H int
	Class      string
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

// FontSize is that of the text of drawings, in pixels. Drawings are shown in their own size, so that it is that of the
// screen, too.
const FontSize = 12

// Widths in pixels: what the content of a page has room for in a window of 1280 pixels, and on a phone of 360.
const (
	WideRoom = 1196
	TallRoom = 300
)

// Sizes in pixels. Text is set in a monospaced font of FontSize, whose characters are at most 7.3 px wide in the fonts
// that systems have.
const (
	charTenths = 73 // a character's width, in tenths of a pixel
	lineHeight = 17
	padding    = 10
	columnGap  = 24
	forkGap    = 44 // from where lanes meet to the ends
	laneGap    = 28
	endGap     = 10
	tallRail   = 12 // where the line runs down in the tall layout
	tallLeft   = 30
)

// lineLimits are how many characters lines of stages may have in the wide layout, and of origins and ends: the first
// is taken with which a picture has the room of a page.
var lineLimits = [...][2]int{{38, 48}, {36, 36}, {34, 30}, {30, 26}, {26, 22}}

// card is a box before it has a position.
type card struct {
	class string
	lines []cardLine
	full  []string // the texts of its lines before they were broken: a piece of one is no line of its own
	arrow string   // the class of the arrow to it
}

// cardLine is a line of a card. One with a mark has the class of a state as its ground.
type cardLine struct{ class, text, mark string }

func heightOf(lines int) int { return lines*lineHeight + 2*padding - 4 }

// charsIn is how many characters a line of a box has room for.
func charsIn(width int) int { return (width - 2*padding) * 10 / charTenths }

// wrapped is the card with lines of at most limit characters: longer ones are broken, at words where that is possible.
func (c *card) wrapped(limit int) card {
	out := *c
	out.lines = nil
	for _, l := range c.lines {
		out.full = append(out.full, strings.TrimSpace(l.text))
		for _, part := range breakLine(l.text, limit) {
			out.lines = append(out.lines, cardLine{l.class, part, l.mark})
		}
	}
	return out
}

// breakLine breaks a line at words, and words that are too long anywhere. What is continued is indented as its
// beginning is.
func breakLine(s string, limit int) []string {
	indent := s[:len(s)-len(strings.TrimLeft(s, " "))]
	room := max(limit-len(indent), 8)
	var out []string
	for _, line := range plaintext.Wrap(strings.TrimLeft(s, " "), room) {
		for plaintext.Width(line) > room {
			head := plaintext.Start(line, room)
			if head == "" {
				break
			}
			if at := strings.LastIndexAny(head, "/-.:,]"); at >= len(head)/2 {
				head = head[:at+1]
			}
			out = append(out, indent+head)
			line = line[len(head):]
		}
		out = append(out, indent+line)
	}
	return out
}

// width is that of the longest line.
func (c *card) width() int {
	w := 0
	for _, l := range c.lines {
		w = max(w, plaintext.Width(l.text))
	}
	return (w*charTenths+9)/10 + 2*padding // rounded up
}

func (c *card) height() int { return heightOf(len(c.lines)) }

// at is the box of a card with a position; it is at least as high as its lines need.
func (c *card) at(x, y, w, h int) Box {
	b := Box{X: x, Y: y, W: w, H: max(h, c.height()), Class: c.class, Full: strings.Join(c.full, "\n")}
	for i, l := range c.lines {
		baseline := y + padding + FontSize - 2 + i*lineHeight
		if l.mark != "" {
			b.Marks = append(b.Marks, Mark{x + 3, baseline - lineHeight + 5, w - 6, lineHeight, l.mark})
		}
		b.Texts = append(b.Texts, Text{x + padding, baseline, l.class, l.text})
	}
	return b
}

// cards are the boxes of a picture: those of each lane from the origin on, and the ends.
func (p *Picture) cards(stageLimit, otherLimit int) (lanes [][]card, ends []card) {
	for _, l := range p.Lanes {
		origin := card{class: plainClass}
		origin.add("head", "from")
		for _, from := range l.From {
			origin.add("mono", from)
		}
		origin.add("mono", "to "+p.Frontend)
		lane := []card{origin.wrapped(otherLimit)}
		for i := range l.Stages {
			c := l.Stages[i].card()
			lane = append(lane, c.wrapped(stageLimit))
		}
		if len(l.Stages) == 0 {
			c := card{class: plainClass}
			c.add("head", "rules of "+p.Node)
			lane = append(lane, c.wrapped(stageLimit))
		}
		lanes = append(lanes, lane)
	}
	for i := range p.Ends {
		c := p.card(&p.Ends[i])
		ends = append(ends, c.wrapped(otherLimit))
	}
	return lanes, ends
}

func (c *card) add(class, text string) {
	c.lines = append(c.lines, cardLine{class, plaintext.Clean(text), ""})
}

// mark adds a line that is not as it should be.
func (c *card) mark(class, text string, s State) {
	c.lines = append(c.lines, cardLine{class + " mark " + s.Class(), plaintext.Clean(text), s.Class()})
}

// card lists a hook's chains below their tables: a chain's name is long enough without its table's. Only the lines of
// what is not as it should be are coloured.
func (s *Stage) card() card {
	c := card{class: plainClass}
	c.add("head", s.Hook)
	table := ""
	for i := range s.Chains {
		link := &s.Chains[i]
		if link.Table != table {
			table = link.Table
			c.add("mono table", table)
		}
		text := "  " + symbolOf(link.State) + link.Name + link.which()
		if link.State.mark() == "" {
			c.add("mono", text)
		} else {
			c.mark("mono", text, link.State)
		}
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

// card is an end, with the share of the connections that comes to it.
func (p *Picture) card(e *End) card {
	class := p.endClass(e)
	c := card{class: class, arrow: class}
	c.add("head mono", e.Lines[0])
	for _, l := range e.Lines[1:] {
		c.add("mono", l)
	}
	if e.Share != "" && !e.Counts {
		c.add("mono", e.Share)
	}
	if e.Status != "" {
		c.add("mono mark "+class, e.State.Symbol()+" "+e.Status)
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

// wideColumns are the cards of the wide layout, the widths of its columns, and that of the ends, so that they have the
// room of a page where that is possible.
func (p *Picture) wideColumns() (lanes [][]card, ends []card, columns []int, endWidth int) {
	for _, limit := range lineLimits {
		lanes, ends = p.cards(limit[0], limit[1])
		columns, endWidth = nil, 0
		for _, lane := range lanes {
			for k := range lane {
				if k == len(columns) {
					columns = append(columns, 0)
				}
				columns[k] = max(columns[k], lane[k].width())
			}
		}
		for i := range ends {
			endWidth = max(endWidth, ends[i].width())
		}
		total := 2 + endWidth + columnGap/2 + forkGap + columnGap*(len(columns)-1)
		for _, w := range columns {
			total += w
		}
		if total <= WideRoom {
			break
		}
	}
	return lanes, ends, columns, endWidth
}

// Wide lays a picture out from left to right.
func (p *Picture) Wide(id string) *SVG {
	lanes, ends, columns, endWidth := p.wideColumns()
	s := p.drawing(id, "wide")
	laneHeights, left := make([]int, len(lanes)), 0
	for i, lane := range lanes {
		for k := range lane {
			laneHeights[i] = max(laneHeights[i], lane[k].height())
		}
		left += laneHeights[i]
	}
	left += laneGap * max(len(lanes)-1, 0)
	height := 0
	for i := range ends {
		height += ends[i].height() + endGap
	}
	total := height - endGap
	height = max(total, left)

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
			b := lane[k].at(x, at-lane[k].height()/2, columns[k], 0)
			s.Boxes = append(s.Boxes, b)
			if k > 0 {
				s.arrow(fmt.Sprintf("M%d %dH%d", x-columnGap, at, x), x, at, plainClass, tipRight)
			}
			x += columns[k] + columnGap
		}
		s.Lines = append(s.Lines, Line{curve(x-columnGap, at, fork, middleY), "arrow plain"})
		y += laneHeights[i] + laneGap
	}
	y = 1 + (height-total)/2
	x := fork + forkGap
	for i := range ends {
		e := &ends[i]
		at := y + e.height()/2
		s.Boxes = append(s.Boxes, e.at(x, y, endWidth, 0))
		s.arrow(curve(fork, middleY, x-tipLength, at)+fmt.Sprintf("H%d", x), x, at, e.arrow, tipRight)
		y += e.height() + endGap
	}
	s.W, s.H = x+endWidth+1, height+2
	return s
}

// Tall lays a picture out from top to bottom, for narrow screens: all ends branch off a line that runs down at the
// left.
func (p *Picture) Tall(id string) *SVG {
	const w = TallRoom - tallLeft - 1
	lanes, ends := p.cards(charsIn(w), charsIn(w))
	s := p.drawing(id, "tall")
	y, first, end := 1, 0, 0
	for _, lane := range lanes {
		for k := range lane {
			if k > 0 {
				s.arrow(fmt.Sprintf("M%d %dV%d", tallLeft+20, y-laneGap, y), tallLeft+20, y, plainClass, tipDown)
			}
			b := lane[k].at(tallLeft, y, w, 0)
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
		at := y + e.height()/2
		s.Boxes = append(s.Boxes, e.at(tallLeft, y, w, 0))
		s.arrow(fmt.Sprintf("M%d %dH%d", tallRail, at, tallLeft), tallLeft, at, e.arrow, tipRight)
		end = at
		y += e.height() + endGap
	}
	s.Lines = append([]Line{{fmt.Sprintf("M%d %dV%d", tallRail, first, max(first, end)), "arrow plain"}}, s.Lines...)
	s.W, s.H = TallRoom, y-endGap+2
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
	tipLength = 8
	tipRight  = "l-8 -4v8z"
	tipLeft   = "l8 -4v8z"
	tipDown   = "l-4 -8h8z"
)

// arrow draws a line that ends at a point, and its tip.
func (s *SVG) arrow(d string, x, y int, class, tip string) {
	s.Lines = append(s.Lines, Line{d, "arrow " + class}, Line{fmt.Sprintf("M%d %d%s", x, y, tip), "tip " + class})
}
