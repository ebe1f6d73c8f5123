// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/plugin/picture"
	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The page's template, its style sheet, and the script that adds buttons and filters.
var (
	//go:embed html.tmpl
	htmlSource string
	//go:embed html.css
	htmlStyle string
	//go:embed html.js
	htmlScript string
)

// htmlPolicy allows a page nothing but the style sheet and the script that belong to it, which are known by their
// hashes: whatever else gets into a page does not run, and is not loaded.
var htmlPolicy = "default-src 'none'; style-src " + sourceHash(htmlStyle) + "; script-src " + sourceHash(htmlScript) +
	"; base-uri 'none'; form-action 'none'"

// sourceHash is the hash of an element's text in a Content-Security-Policy.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// htmlPage escapes whatever is put into it by where it stands: names and rule texts are anybody's.
var htmlPage = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("html").Funcs(template.FuncMap{
		"clean": plaintext.Clean, "words": words,
	}).Parse(htmlSource))
})

// How much of a page is shown before the rest is folded or counted.
const (
	htmlNodes    = 10  // nodes with their paths
	htmlRows     = 300 // rows of verify's table
	htmlBlocks   = 40  // findings, before they are folded to one for each code
	htmlServices = 100 // Services with a finding of one code
	htmlOpen     = 3   // of these, before the rest is folded
	// htmlPaperParts is up to how many more Services are unfolded on paper.
	htmlPaperParts = 5
	htmlList       = 20 // names in a list
	htmlEvidence   = 8  // quoted rules
	htmlFilter     = 12 // rows of a table, before it gets a field to filter them
	htmlPaper      = 40 // rows of a folded table that is unfolded on paper, where nobody can open it
)

// page is what the template fills in.
type page struct {
	Policy     string
	Style      template.CSS
	Script     template.JS
	Title      string
	Verdict    badge
	Conclusion string
	Impact     string // what the verdict means for connections
	Keep       *remedy
	Next       *remedy
	Read       string // when the nodes were read; empty for a snapshot
	Source     *report.Source
	Age        string // of a snapshot
	Service    string
	Ports      []string
	MorePorts  int
	Nodes      []nodeCard
	MoreNodes  []string // in words
	Tables     []*htmlTable
	MorePaths  int
	Blocks     []*htmlBlock
}

// badge is a verdict or a status: a class for its colour, a symbol, and words.
type badge struct{ Class, Symbol, Text string }

// nodeCard is a node, with its paths.
type nodeCard struct {
	Name    string
	Verdict badge
	Mode    string
	Config  string
	Error   string
	Paths   []pathCard
}

// htmlTable is a table of cells, whose last one has the colour of its row.
type htmlTable struct {
	Caption string
	Columns []htmlColumn
	Rows    []htmlRow
	Note    string
}

// Many tells whether there are so many rows that a filter helps.
func (t *htmlTable) Many() bool { return len(t.Rows) > htmlFilter }

type htmlColumn struct {
	Head  string
	Right bool
}

type htmlRow struct {
	Cells  []string
	Status badge
}

// Steps tells whether there are rules to show.
func (p *page) Steps() bool {
	return slices.ContainsFunc(p.Nodes, func(n nodeCard) bool {
		return slices.ContainsFunc(n.Paths, func(c pathCard) bool { return len(c.Steps) > 0 })
	})
}

func (t *text) html(b *bytes.Buffer) error {
	return htmlPage().Execute(b, t.page())
}

func (t *text) page() *page {
	r := t.report
	verdict, rest := t.conclusion()
	p := &page{
		Policy: htmlPolicy, Style: template.CSS(htmlStyle), Script: template.JS(htmlScript), //nolint:gosec // our own
		Verdict: badgeOf(r.Verdict), Conclusion: plaintext.Clean(rest),
	}
	if r.Kind != report.KindMode {
		p.Impact = plaintext.Clean(report.Impact(r))
	}
	if !t.view.Keep.IsZero() {
		keep := remedyOf(t.view.Keep)
		p.Keep = &keep
	}
	if !t.view.Next.IsZero() {
		next := remedyOf(t.view.Next)
		p.Next = &next
	}
	p.Verdict.Text = verdict
	if !t.view.Now.IsZero() {
		p.Read = t.view.Now.UTC().Format(time.RFC3339)
	}
	p.Source, p.Age = r.Source, t.view.Age
	switch r.Kind {
	case report.KindVerify:
		p.Title = "Services" + t.view.Scope + " on " + t.nodesText()
	case report.KindMode:
		p.Title = "Proxies of " + t.nodesText()
	default:
		p.Title = "trace on " + t.nodesText()
		if s := r.Service; s != nil {
			p.Title = s.Namespace + "/" + s.Name + " on " + t.nodesText()
			p.service(s)
		}
	}
	p.Title = plaintext.Clean(p.Title)
	switch r.Kind {
	case report.KindVerify:
		t.verifyPage(p)
	case report.KindMode:
		t.modePage(p)
	default:
		t.tracePage(p)
	}
	for i, same := range pageBlocks(r) {
		p.Blocks = append(p.Blocks, blockOf(fmt.Sprintf("finding-%d", i+1), same, len(r.Nodes) > 1))
	}
	return p
}

// pageBlocks are the findings of a page. Those of verify are of one code and several Services, each with its evidence.
func pageBlocks(r *report.Report) [][]*block {
	if r.Kind == report.KindVerify {
		return bySameCode(byService(r))
	}
	blocks := blocksOf(r, false)
	if len(blocks) > htmlBlocks {
		blocks = blocksOf(r, true)
	}
	return bySameCode(blocks)
}

func (p *page) service(s *report.ServiceInfo) {
	p.Service = plaintext.Clean(s.Namespace + "/" + s.Name + ", " + s.Type)
	switch {
	case len(s.ClusterIPs) > 0:
		p.Service += " " + plaintext.Clean(strings.Join(s.ClusterIPs, ", "))
	case s.Type == "ClusterIP":
		p.Service += ", headless"
	}
	for i := range s.Ports {
		if i == htmlList {
			p.MorePorts = len(s.Ports) - i
			break
		}
		p.Ports = append(p.Ports, inline(portText(&s.Ports[i])))
	}
}

// tracePage shows the nodes that a table shows, with their paths.
func (t *text) tracePage(p *page) {
	quiet := map[report.Verdict][]string{}
	more, drawn := 0, 0
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		switch {
		case !n.Verdict.NeedsAttention() && len(t.report.Nodes) > fullNodes &&
			(i > 0 || t.report.Verdict.NeedsAttention()):
			quiet[n.Verdict] = append(quiet[n.Verdict], n.Node)
		case len(p.Nodes) == htmlNodes:
			more++
		default:
			c := t.nodeCard(n)
			for k, pic := range t.drawingsOf(n) {
				if pic.Failure != "" {
					continue
				}
				if drawn == pictureLimit {
					p.MorePaths++
					continue
				}
				drawn++
				c.Paths = append(c.Paths, pathCardOf(fmt.Sprintf("path-%d-%d", i+1, k+1), &pic))
			}
			p.Nodes = append(p.Nodes, c)
		}
	}
	if more > 0 {
		left := plaintext.Plural(more, "more node")
		p.MoreNodes = append(p.MoreNodes, "… and "+left+" that are not right (-o json has them all)")
	}
	for _, v := range []report.Verdict{report.Match, report.ByDesign} {
		if names := quiet[v]; len(names) > 0 {
			p.MoreNodes = append(p.MoreNodes, verdictText(v)+": "+plaintext.Clean(t.list(names, htmlList, ", ")))
		}
	}
}

func (t *text) verifyPage(p *page) {
	tab, verdicts, more := t.verifyPaths(htmlRows)
	if len(tab.rows) > 0 {
		caption := "Paths that are not right"
		if t.view.All {
			caption = "Paths"
		}
		h := tableOf(caption, tab, verdicts)
		if more > 0 {
			h.Note = "… and " + plaintext.Plural(more, "more path") + " (-o json has them all)"
		}
		p.Tables = append(p.Tables, h)
	}
	counts, verdicts, lost, quiet := t.countTable()
	if len(counts.rows) > 0 {
		h := tableOf("What was judged on each node", counts, verdicts)
		if quiet > 0 {
			h.Note = "… and " + plaintext.Plural(quiet, "more node") + " on which nothing is wrong"
		}
		p.Tables = append(p.Tables, h)
	}
	p.lost(t, lost)
	drawn := 0
	for i := range t.report.Nodes {
		n := &t.report.Nodes[i]
		if n.Error != "" {
			continue
		}
		c := t.nodeCard(n)
		for k, pic := range t.drawingsOf(n) {
			if drawn == pictureLimit {
				p.MorePaths++
				continue
			}
			drawn++
			c.Paths = append(c.Paths, pathCardOf(fmt.Sprintf("path-%d-%d", i+1, k+1), &pic))
		}
		if len(c.Paths) > 0 {
			p.Nodes = append(p.Nodes, c)
		}
	}
}

func (t *text) modePage(p *page) {
	tab, verdicts, lost := t.modeTable()
	if len(tab.rows) > 0 {
		p.Tables = append(p.Tables, tableOf("Which proxy each node runs", tab, verdicts))
	}
	p.lost(t, lost)
}

// lost shows the nodes that could not be inspected.
func (p *page) lost(t *text, lost []*report.NodeReport) {
	for i, n := range lost {
		if i == htmlNodes {
			left := plaintext.Plural(len(lost)-i, "more node")
			p.MoreNodes = append(p.MoreNodes, "… and "+left+" not inspected (-o json has them all)")
			return
		}
		p.Nodes = append(p.Nodes, t.nodeCard(n))
	}
}

func (t *text) nodeCard(n *report.NodeReport) nodeCard {
	c := nodeCard{Name: plaintext.Clean(n.Node), Verdict: badgeOf(n.Verdict)}
	if n.Error != "" {
		c.Error = plaintext.Clean(n.Error)
		return c
	}
	c.Mode = inline(modeText(n.Mode, t.view.Now))
	if n.Mode != nil && n.Mode.ConfigSource != "" {
		c.Config = plaintext.Clean(n.Mode.ConfigSource)
	}
	return c
}

// tableOf makes an HTML table of one for a terminal. Its last column is the status.
func tableOf(caption string, tab *table, verdicts []report.Verdict) *htmlTable {
	h := &htmlTable{Caption: caption}
	for _, c := range tab.columns {
		h.Columns = append(h.Columns, htmlColumn{c.head[:1] + strings.ToLower(c.head[1:]), c.right})
	}
	for i, cells := range tab.rows {
		b := badgeOf(verdicts[i])
		b.Text = plaintext.Clean(cells[len(cells)-1])
		row := htmlRow{Status: b}
		for _, c := range cells[:len(cells)-1] {
			row.Cells = append(row.Cells, plaintext.Clean(c))
		}
		h.Rows = append(h.Rows, row)
	}
	return h
}

// badgeOf makes a verdict a badge; "" is that of information.
func badgeOf(v report.Verdict) badge {
	s, text := picture.OK, verdictText(v)
	switch v {
	case report.Mismatch:
		s = picture.Wrong
	case report.Unknown:
		s = picture.Unknown
	case report.Warning:
		s = picture.Suspect
	case report.ByDesign:
		s = picture.ByDesign
	case report.Match:
	case "":
		return badge{"plain", "i", "info"}
	}
	return badge{s.Class(), s.Symbol(), text}
}

// inline joins parts by commas, where a terminal shows them apart.
func inline(parts []string) string { return plaintext.Clean(strings.Join(parts, ", ")) }

// first returns at most limit names, and how many there are beyond it.
func first(names []string, limit int) (list []string, more int) {
	for i, n := range names {
		if i == limit {
			return list, len(names) - i
		}
		list = append(list, plaintext.Clean(n))
	}
	return list, 0
}
