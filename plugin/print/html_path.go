// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// pathCard is one picture with its endpoints.
type pathCard struct {
	ID         string
	Title      string
	From       string
	Verdict    badge
	Ends       []endToEndCard // of connections that were followed beyond the node
	Wide, Tall *picture.SVG
	Sharing    string
	Shown      *endpointTable
	All        *endpointTable // where Shown leaves some out
	Probes     []string
	Steps      []*stepTable
	Uncertain  []report.Uncertain
	Affinity   int32
}

// endpointTable is what becomes of the connections of a path, endpoint by endpoint.
type endpointTable struct {
	Pods, Observed bool // whether there are columns for these
	Rows           []endpointRow
	Scale          string // the share that a bar has whose length is full; "" where there is none
}

// Many tells whether there are so many rows that a filter helps.
func (t *endpointTable) Many() bool { return len(t.Rows) > htmlFilter }

// endToEndCard is a connection from one end to the other.
type endToEndCard struct {
	Title      string
	Wide, Tall *picture.SVG
	Rows       []segmentRow
	More       int
}

// Many tells whether there are so many rows that a filter helps.
func (c *endToEndCard) Many() bool { return len(c.Rows) > htmlFilter }

// segmentRow is a segment in words.
type segmentRow struct {
	Segment, Endpoint, Place, Text string
	Status                         badge
	Evidence                       []string
	// Seen is what the kernels saw there of real connections: how many passed, and how far they came through the rules.
	Seen   []string
	Guilty bool
}

// Paper tells whether the table is short enough to be unfolded in print.
func (t *endpointTable) Paper() bool { return len(t.Rows) <= htmlPaper }

// Span is the number of columns.
func (t *endpointTable) Span() int {
	n := 4
	if t.Pods {
		n += 2
	}
	if t.Observed {
		n++
	}
	return n
}

// endpointRow is a row of a path's table, with bars.
type endpointRow struct {
	Endpoint, Pod, Node        string
	Expected, Actual, Observed bar
	Status                     badge
	Counts                     bool
}

// bar is a share in words and, where there is one, as a length in percent of a full bar.
type bar struct {
	Text   string
	Length float64
	Drawn  bool
}

// scales are the shares that a full bar may stand for: all connections, unless all shares of a table are so small that
// they could not be told apart.
var scales = []float64{1, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001}

type stepTable struct {
	Title string
	Steps []stepRow
}

// Many tells whether there are so many rows that a filter helps.
func (t *stepTable) Many() bool { return len(t.Steps) > htmlFilter }

// Paper tells whether the table is short enough to be unfolded in print.
func (t *stepTable) Paper() bool { return len(t.Steps) <= htmlPaper }

type stepRow struct {
	Hook, Table, Chain, Rule, Share, Verdict, Text, Class, Symbol string
	Guilty                                                        bool
}

// pathCard is a picture, its endpoints with bars, and its steps.
func pathCardOf(id string, pic *drawing) pathCard {
	first := pic.paths[0]
	c := pathCard{
		ID: id, Title: plaintext.Clean(pic.Frontend), Verdict: badgeOf(pic.verdict),
		Sharing: plaintext.Clean(first.Actual.Sharing), Affinity: first.Expected.AffinitySeconds,
		Wide: pic.Wide(id + "-wide"), Tall: pic.Tall(id + "-tall"),
	}
	if pic.Service != "" {
		c.Title = plaintext.Clean(pic.Service) + ", " + c.Title
	}
	var from []string
	for _, l := range pic.Lanes {
		from = append(from, l.From...)
	}
	c.From = plaintext.Clean(strings.Join(from, ", "))
	for i, e := range pic.ends {
		c.Ends = append(c.Ends, endToEndCardOf(fmt.Sprintf("%s-end-%d", id, i+1), e, followed(pic.paths)[i]))
	}
	rows := pic.rows
	shown := fold(rows, rowLimit, differLimit)
	c.Shown = &endpointTable{}
	c.Shown.fill(pic, shown)
	for i := range rows {
		c.Shown.Pods = c.Shown.Pods || rows[i].pod != "" || rows[i].node != ""
		c.Shown.Observed = c.Shown.Observed || rows[i].observed != ""
	}
	if len(shown) < len(rows) {
		all := *c.Shown
		all.fill(pic, rows)
		c.All = &all
	}
	for _, p := range pic.paths {
		if s, ok := stepsTable(p); ok {
			c.Steps = append(c.Steps, s)
		}
		if o := p.Observed; o != nil {
			c.Probes = append(c.Probes, observedText(p))
		}
	}
	c.Uncertain = first.Actual.Uncertain
	return c
}

// observedText says what real connections showed.
func observedText(p *report.Path) string {
	o := p.Observed
	s := "from " + p.Origin.Kind + ": "
	if o.Error != "" {
		return plaintext.Clean(s + o.Error)
	}
	s += fmt.Sprintf("%d of %d connected", o.Connected, o.Probes)
	if o.RTT > 0 {
		s += fmt.Sprintf(", median %.2f ms", o.RTT)
	}
	if len(o.Events) > 0 {
		s += ", " + eventsText(o.Events)
	}
	return plaintext.Clean(s)
}

// followed are the paths that were followed beyond the node.
func followed(paths []*report.Path) []*report.Path {
	return slices.DeleteFunc(slices.Clone(paths), func(p *report.Path) bool { return len(p.Segments) == 0 })
}

// endToEndCardOf is a connection from one end to the other, as a picture and in words.
func endToEndCardOf(id string, e *picture.EndToEnd, p *report.Path) endToEndCard {
	c := endToEndCard{
		Title: plaintext.Clean("From end to end: " + e.From + " to " + e.Frontend),
		Wide:  e.Wide(id + "-wide"), Tall: e.Tall(id + "-tall"),
	}
	for i := range p.Segments {
		if i == htmlRows {
			c.More = len(p.Segments) - i
			break
		}
		s := &p.Segments[i]
		part := partOfSegment(s)
		row := segmentRow{
			Segment: segmentNames[s.Segment], Endpoint: plaintext.Clean(s.Endpoint), Place: plaintext.Clean(s.Place),
			Text:   plaintext.Clean(part.Text),
			Status: badge{part.State.Class(), part.State.Symbol(), plaintext.Clean(part.Status)},
			Guilty: part.State == picture.Wrong,
		}
		for k := range s.Evidence {
			row.Evidence = append(row.Evidence, evidenceLine(s.Evidence[k]))
		}
		for _, line := range append([]string{seenText(p.Segments[i : i+1])}, tracedTexts(s)...) {
			if line != "" {
				row.Seen = append(row.Seen, plaintext.Clean(line))
			}
		}
		c.Rows = append(c.Rows, row)
	}
	return c
}

// fill makes the rows of a path's table. That connections do not come to an endpoint is not coloured as wrong where the
// rule is, to which that is due.
func (t *endpointTable) fill(pic *drawing, rows []row) {
	p := pic.paths[0]
	out := make([]endpointRow, len(rows))
	longest := 0.0
	for i := range rows {
		r := &rows[i]
		e := &out[i]
		*e = endpointRow{
			Endpoint: plaintext.Clean(r.endpoint),
			Pod:      plaintext.Clean(r.pod),
			Node:     plaintext.Clean(r.node),
			Counts:   r.counts(),
			Expected: bar{Text: plaintext.Clean(r.expected)},
			Actual:   bar{Text: plaintext.Clean(r.actual)},
			Observed: bar{Text: plaintext.Clean(r.observed)},
		}
		if e.Counts {
			continue
		}
		e.Status = badge{pic.StateClass(r.state), r.state.Symbol(), plaintext.Clean(r.status)}
		if !nothing(r.of.Expected) {
			e.Expected.measure(r.of.Expected.Share)
		}
		e.Actual.measure(r.of.Actual.Share)
		if x := r.of.Observed; x != nil && x.Count != nil && *x.Count > 0 && p.Observed.Probes > 0 {
			observed := float64(*x.Count) / float64(p.Observed.Probes)
			e.Observed.measure(&observed)
		}
		longest = max(longest, e.Expected.Length, e.Actual.Length, e.Observed.Length)
	}
	full := scales[0]
	for _, s := range scales {
		if s >= longest {
			full = s
		}
	}
	for i := range out {
		for _, b := range []*bar{&out[i].Expected, &out[i].Actual, &out[i].Observed} {
			b.Length *= 100 / full
		}
	}
	t.Rows, t.Scale = out, ""
	if longest > 0 {
		t.Scale = strconv.FormatFloat(100*full, 'g', -1, 64) + "%"
	}
}

// measure sets the bar's length to a share. Where a share is not fixed, or not known, there is no bar.
func (b *bar) measure(share *float64) {
	if share != nil {
		b.Length, b.Drawn = *share, true
	}
}

func stepsTable(p *report.Path) (*stepTable, bool) {
	s := &stepTable{Title: plaintext.Clean(originWithPod(&p.Origin))}
	states := stepStates(p)
	for i := range p.Steps {
		x := &p.Steps[i]
		number := "-"
		if x.Rule > 0 {
			number = strconv.Itoa(x.Rule)
		}
		state, symbol := states[i], ""
		if state != picture.OK {
			symbol = state.Symbol() + " "
		}
		s.Steps = append(s.Steps, stepRow{
			plaintext.Clean(x.Hook), plaintext.Clean(x.Table), plaintext.Clean(x.Chain), number, share(x.Share),
			plaintext.Clean(x.Verdict), plaintext.Clean(x.Text), state.ChainClass(), symbol, state == picture.Wrong,
		})
	}
	return s, len(p.Steps) > 0
}
