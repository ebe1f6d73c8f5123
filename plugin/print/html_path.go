// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
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

// bar is a share in words and, where there is one, as a length in percent of the path's largest.
type bar struct {
	Text   string
	Length float64
	Drawn  bool
	Class  string // of its colour; none for what is expected
}

type stepTable struct {
	Title string
	Steps []stepRow
}

// Paper tells whether the table is short enough to be unfolded in print.
func (t *stepTable) Paper() bool { return len(t.Steps) <= htmlPaper }

type stepRow struct {
	Hook, Table, Chain, Rule, Share, Verdict, Text, Class string
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
	rows := pic.rows
	shown := fold(rows, rowLimit, differLimit)
	c.Shown = &endpointTable{Rows: endpointRows(first, shown)}
	for i := range rows {
		c.Shown.Pods = c.Shown.Pods || rows[i].pod != "" || rows[i].node != ""
		c.Shown.Observed = c.Shown.Observed || rows[i].observed != ""
	}
	if len(shown) < len(rows) {
		all := *c.Shown
		all.Rows = endpointRows(first, rows)
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

func endpointRows(p *report.Path, rows []row) []endpointRow {
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
		e.Actual.Class, e.Observed.Class = r.state.Class(), r.state.Class()
		e.Status = badge{r.state.Class(), r.state.Symbol(), plaintext.Clean(r.status)}
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
	// The largest share is as long as there is room: of 250 endpoints each has so little that it could not be seen
	// otherwise.
	for i := range out {
		for _, b := range []*bar{&out[i].Expected, &out[i].Actual, &out[i].Observed} {
			if longest > 0 {
				b.Length *= 100 / longest
			}
		}
	}
	return out
}

// measure sets the bar's length to a share. Where a share is not fixed, or not known, there is no bar.
func (b *bar) measure(share *float64) {
	if share != nil {
		b.Length, b.Drawn = *share, true
	}
}

func stepsTable(p *report.Path) (*stepTable, bool) {
	s := &stepTable{Title: plaintext.Clean(originWithPod(&p.Origin))}
	for i := range p.Steps {
		x := &p.Steps[i]
		number := "-"
		if x.Rule > 0 {
			number = strconv.Itoa(x.Rule)
		}
		s.Steps = append(s.Steps, stepRow{
			plaintext.Clean(x.Hook), plaintext.Clean(x.Table), plaintext.Clean(x.Chain), number, share(x.Share),
			plaintext.Clean(x.Verdict), plaintext.Clean(x.Text), statuses[x.Status].state.ChainClass(),
		})
	}
	return s, len(p.Steps) > 0
}
