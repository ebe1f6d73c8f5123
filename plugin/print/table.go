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

// leastWrapped is the least width that a wrapped column has.
const leastWrapped = 20

// column is one column of a table.
type column struct {
	head  string
	right bool // numbers
}

// table is a table as kubectl prints it: no lines, no trailing spaces, no cells wrapped but those of the last column.
type table struct {
	columns []column
	rows    [][]string
	limit   int // to which the last column is wrapped; 0: not at all
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
	out := &table{}
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
		if i := t.index(head); i >= 0 {
			empty := true
			for _, r := range t.rows {
				empty = empty && r[i] == ""
			}
			if empty {
				t = t.without(head)
			}
		}
	}
	return t
}

func (t *table) index(head string) int {
	for i, c := range t.columns {
		if c.head == head {
			return i
		}
	}
	return -1
}

// squeeze cuts the middle out of a column's cells, down to least columns, as far as the table is too wide.
func (t *table) squeeze(head string, least, limit int) *table {
	return t.shorten(head, least, limit, plaintext.Middle)
}

// squeezeLists is squeeze for a column of lists whose last items tell most.
func (t *table) squeezeLists(head string, least, limit int) *table {
	return t.shorten(head, least, limit, plaintext.LastItems)
}

// shorten has the cells of a column cut, down to least columns, as far as the table is too wide.
func (t *table) shorten(head string, least, limit int, cut func(s string, limit int) string) *table {
	i := t.index(head)
	over := t.width() - limit
	if i < 0 || over <= 0 {
		return t
	}
	w := max(least, t.widths()[i]-over)
	out := &table{columns: t.columns}
	for _, r := range t.rows {
		cells := append([]string(nil), r...)
		cells[i] = cut(cells[i], w)
		out.rows = append(out.rows, cells)
	}
	return out
}

// lines renders the table: the header, then each row, which takes several lines where its last cell is wrapped.
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
	limit := 0
	if t.limit > 0 {
		limit = max(t.limit-(t.width()-t.widths()[last]), leastWrapped)
	}
	wrapped := make([][]string, len(t.rows))
	for i, r := range t.rows {
		cells := slices.Clone(r)
		wrapped[i] = plaintext.Wrap(cells[last], limit)
		cells[last] = strings.Join(wrapped[i], "\n")
		_ = w.Append(cells) // neither call fails with cells of strings and a buffer to write to
	}
	_ = w.Render()
	rendered := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	lines := make([]tableLine, 0, len(rendered))
	lines = append(lines, tableLine{row: -1, text: strings.TrimRight(rendered[0], " ")})
	for i, parts := range wrapped {
		for k, part := range parts {
			// The last cell is separate: with a colour in it, the table's padding behind it would end in a second end of
			// the colour.
			l := tableLine{row: i, first: k == 0, text: strings.TrimRight(rendered[len(lines)], " ")}
			if rest, ok := strings.CutSuffix(l.text, part); ok {
				l.text, l.last = rest, part
			}
			lines = append(lines, l)
		}
	}
	return lines
}
