// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
)

// gap is what stands between two columns, as in kubectl's tables.
const gap = 2

// readable is how wide a column of sentences is at least, as long as there is room elsewhere.
const readable = 20

// belowIndent is how far what stands below a row is indented.
const belowIndent = 4

// column is one column of a table.
type column struct {
	head  string
	right bool // numbers
}

// table is a table as kubectl prints it: no lines, no trailing spaces. Where it is wider than limit, its cells are
// wrapped; names and addresses in them never are.
type table struct {
	columns []column
	rows    [][]string
	below   [][]string // lines below each row; nil: there are none
	limit   int        // 0: as wide as it is
}

// add adds a row. The cells are cleaned, as their widths are those of what is printed.
func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = plaintext.Clean(c)
	}
	t.rows = append(t.rows, row)
}

// tableLine is one printed line of a table. last is what it has of the last cell, which may have a colour.
type tableLine struct {
	row        int // -1: the header
	first      bool
	text, last string
}

// table writes a table, the last cell of each row in a colour.
func (t *text) table(tab *table, color func(row int) terminal.Color) {
	for _, l := range tab.lines() {
		t.tableLine(l, color)
	}
}

func (t *text) tableLine(l tableLine, color func(row int) terminal.Color) {
	if l.row < 0 && t.noHeaders {
		return
	}
	t.Add(plain, l.text)
	if l.row >= 0 {
		t.Add(color(l.row), l.last)
	}
	t.End()
}

// widths returns the width of each column.
func (t *table) widths() []int {
	out := make([]int, len(t.columns))
	for i, c := range t.columns {
		out[i] = plaintext.Width(c.head)
		for _, r := range t.rows {
			out[i] = max(out[i], plaintext.Width(r[i]))
		}
	}
	return out
}

// width is the width of the whole table.
func (t *table) width() int {
	w := gap * (len(t.columns) - 1)
	for _, c := range t.widths() {
		w += c
	}
	return w
}

// without returns the table without a column.
func (t *table) without(head string) *table {
	out := &table{below: t.below, limit: t.limit}
	keep := make([]bool, len(t.columns))
	for i, c := range t.columns {
		if keep[i] = c.head != head; keep[i] {
			out.columns = append(out.columns, c)
		}
	}
	for _, r := range t.rows {
		var cells []string
		for i, cell := range r {
			if keep[i] {
				cells = append(cells, cell)
			}
		}
		out.rows = append(out.rows, cells)
	}
	return out
}

// dropEmpty leaves out those of the columns in which every cell is empty.
func (t *table) dropEmpty(heads ...string) *table {
	for _, head := range heads {
		t = t.withoutAll(head, "")
	}
	return t
}

// withoutZeros returns the table without a column of numbers, if all of them are 0.
func (t *table) withoutZeros(head string) *table { return t.withoutAll(head, "0") }

// withoutAll returns the table without a column in which every cell is the same as this one.
func (t *table) withoutAll(head, cell string) *table {
	i := t.index(head)
	if i < 0 || slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != cell }) {
		return t
	}
	return t.without(head)
}

func (t *table) index(head string) int {
	for i, c := range t.columns {
		if c.head == head {
			return i
		}
	}
	return -1
}

// lastItems leaves out the first items of a column of lists, down to least columns, as far as the table is too wide.
func (t *table) lastItems(head string, least, limit int) *table {
	i := t.index(head)
	over := t.width() - limit
	if i < 0 || over <= 0 {
		return t
	}
	w := max(least, t.widths()[i]-over)
	out := &table{columns: t.columns, below: t.below, limit: t.limit}
	for _, r := range t.rows {
		cells := slices.Clone(r)
		cells[i] = plaintext.LastItems(cells[i], w)
		out.rows = append(out.rows, cells)
	}
	return out
}

// fit gives the table a limit, and moves columns below the rows, in this order, until the others have room side by
// side. What stands below says which column it is of, but for those of unlabeled, each of which has lines of its own:
// they are texts, and are not wrapped side by side with others.
func (t *table) fit(limit int, unlabeled []string, order ...string) *table {
	out := *t
	out.limit = limit
	if limit <= 0 || t.width() <= limit {
		return &out
	}
	moved := map[string]bool{}
	rest := func() *table {
		left := t
		for head, gone := range moved {
			if gone {
				left = left.without(head)
			}
		}
		return left
	}
	fits := func() bool { return rest().leastWidth(unlabeled...) <= limit }
	for _, head := range order {
		if fits() {
			break
		}
		if t.index(head) >= 0 && len(moved)+1 < len(t.columns) {
			moved[head] = true
		}
	}
	for _, head := range order { // one that was not enough may have room now that a wider one is gone
		if moved[head] {
			delete(moved, head)
			moved[head] = !fits()
		}
	}
	if out = *rest(); len(out.columns) == len(t.columns) {
		out.limit = limit
		return &out
	}
	out.limit = limit
	out.below = make([][]string, len(t.rows))
	for k, r := range t.rows {
		var labeled, own []string
		for i, c := range t.columns {
			switch {
			case !moved[c.head] || r[i] == "":
			case slices.Contains(unlabeled, c.head):
				own = append(own, r[i])
			default:
				labeled = append(labeled, strings.ToLower(c.head)+" "+r[i])
			}
		}
		if len(labeled) > 0 {
			own = slices.Insert(own, 0, strings.Join(labeled, apart))
		}
		for _, text := range own {
			for _, line := range plaintext.Wrap(text, limit-belowIndent) {
				out.below[k] = append(out.below[k], plaintext.WrapCell(line, limit-belowIndent)...)
			}
		}
	}
	return &out
}

// leastWidth is the width of the table with its last column wrapped, unless that is to be left whole.
func (t *table) leastWidth(whole ...string) int {
	widths := t.widths()
	last := len(widths) - 1
	if slices.Contains(whole, t.columns[last].head) {
		return t.width()
	}
	return t.width() - widths[last] + min(widths[last], max(t.unbroken(last), t.sentence(last)))
}

// sentence is how wide a column of sentences is to be; 0 for one of words.
func (t *table) sentence(i int) int {
	for _, r := range t.rows {
		if strings.Contains(r[i], " ") {
			return readable
		}
	}
	return 0
}

// unbroken is the least width of a column in which no name, address or number is broken.
func (t *table) unbroken(i int) int {
	w := plaintext.Width(t.columns[i].head)
	for _, r := range t.rows {
		w = max(w, plaintext.Unbroken(r[i]))
	}
	return w
}

// fitted are the widths of the columns within the table's limit, as far as that is possible: the last column gives way
// first, as long as it can be read, then the widest of the others.
func (t *table) fitted() []int {
	widths := t.widths()
	over := t.width() - t.limit
	if t.limit <= 0 || over <= 0 {
		return widths
	}
	shrink := func(i, least int) {
		if by := min(over, widths[i]-least); by > 0 {
			widths[i], over = widths[i]-by, over-by
		}
	}
	last := len(widths) - 1
	shrink(last, max(t.unbroken(last), t.sentence(last)))
	others := make([]int, last)
	for i := range others {
		others[i] = i
	}
	slices.SortStableFunc(others, func(a, b int) int { return widths[b] - widths[a] })
	for _, i := range others {
		shrink(i, t.unbroken(i))
	}
	shrink(last, t.unbroken(last))
	return widths
}

// lines renders the table: the header, then each row, which takes several lines where its cells are wrapped, and what
// stands below it.
func (t *table) lines() []tableLine {
	var b bytes.Buffer
	align := make(tw.Alignment, len(t.columns))
	heads := make([]string, len(t.columns))
	for i, c := range t.columns {
		heads[i], align[i] = c.head, tw.AlignLeft
		if c.right {
			align[i] = tw.AlignRight
		}
	}
	w := tablewriter.NewTable(&b,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithRowAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone), tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithTrimSpace(tw.Off), tablewriter.WithTrimLine(tw.Off), tablewriter.WithEastAsian(tw.Off),
		tablewriter.WithPadding(tw.Padding{Right: strings.Repeat(" ", gap), Overwrite: true}),
		tablewriter.WithAlignment(align),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
	)
	w.Header(heads)
	last := len(t.columns) - 1
	widths := t.fitted()
	lasts := make([][]string, len(t.rows)) // the last cells
	heights := make([]int, len(t.rows))
	for k, r := range t.rows {
		cells := make([]string, len(r))
		heights[k] = 1
		for i, cell := range r {
			wrapped := plaintext.WrapCell(cell, widths[i])
			if i == 0 && len(wrapped) > 1 { // no line begins with what a name has behind a space
				wrapped = plaintext.WrapCell(cell, max(widths[i]-gap, 1))
				for n := 1; n < len(wrapped); n++ {
					wrapped[n] = strings.Repeat(" ", gap) + wrapped[n]
				}
			}
			cells[i], heights[k] = strings.Join(wrapped, "\n"), max(heights[k], len(wrapped))
			if i == last {
				lasts[k] = wrapped
			}
		}
		_ = w.Append(cells) // neither call fails with cells of strings and a buffer to write to
	}
	_ = w.Render()
	rendered := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	lines := []tableLine{{row: -1, text: strings.TrimRight(rendered[0], " ")}}
	rendered = rendered[1:]
	for k, height := range heights {
		for n, text := range rendered[:height] {
			// The last cell is separate: with a colour in it, the table's padding behind it would end in a second end of
			// the colour.
			l := tableLine{row: k, first: n == 0, text: strings.TrimRight(text, " ")}
			if n < len(lasts[k]) {
				if rest, ok := strings.CutSuffix(l.text, lasts[k][n]); ok {
					l.text, l.last = rest, lasts[k][n]
				}
			}
			lines = append(lines, l)
		}
		rendered = rendered[height:]
		if t.below != nil {
			for _, text := range t.below[k] {
				lines = append(lines, tableLine{row: k, text: strings.Repeat(" ", belowIndent), last: text})
			}
		}
	}
	return lines
}
