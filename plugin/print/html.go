// SPDX-License-Identifier: Apache-2.0

package print

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	_ "embed"
	"fmt"
	"html/template"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed html.tmpl
var htmlSource string

// htmlPage escapes whatever is put into it by where it stands: names and rule texts are anybody's.
var htmlPage = template.Must(template.New("html").Funcs(template.FuncMap{"clean": clean}).Parse(htmlSource))

// How much of a page is shown before the rest is folded or counted.
const (
	htmlNodes    = 10  // nodes with their paths
	htmlRows     = 300 // rows of verify's table
	htmlBlocks   = 40  // findings, before they are folded to one for each code
	htmlList     = 20  // names in a list
	htmlEvidence = 8   // quoted rules
	htmlPaper    = 40  // rows of a folded table that is unfolded on paper, where nobody can open it
)

// page is what the template fills in.
type page struct {
	Title      string
	Verdict    badge
	Conclusion string
	Next       string
	Read       string // when the nodes were read; empty for a snapshot
	Service    string
	Ports      []string
	MorePorts  int
	Nodes      []nodeCard
	MoreNodes  []string // in words
	Tables     []htmlTable
	MorePaths  int
	Blocks     []htmlBlock
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

// pathCard is one picture with its endpoints.
type pathCard struct {
	ID         string
	Title      string
	From       string
	Verdict    badge
	Wide, Tall *svg
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

// htmlTable is a table of cells, whose last one has the colour of its row.
type htmlTable struct {
	Caption string
	Columns []htmlColumn
	Rows    []htmlRow
	Note    string
}

type htmlColumn struct {
	Head  string
	Right bool
}

type htmlRow struct {
	Cells  []string
	Status badge
}

// htmlBlock is a finding, with all that it is true of.
type htmlBlock struct {
	ID           string
	Verdict      badge
	Code         string
	Of, On       []string
	Nodes        []string
	MoreOf       int
	MoreOn       int
	MoreNodes    int
	Why          string
	Example      string
	Evidence     []string
	MoreEvidence []string
	Fixes        []remedy
	MoreFixes    int
	Links        []link
}

// link is a text that leads somewhere, where it is an address that a page may lead to.
type link struct{ Address, Text string }

// remedy is a command or advice, and what is said about it.
type remedy struct {
	Command, Text, Comment string
}

// Steps tells whether there are rules to show.
func (p *page) Steps() bool {
	return slices.ContainsFunc(p.Nodes, func(n nodeCard) bool {
		return slices.ContainsFunc(n.Paths, func(c pathCard) bool { return len(c.Steps) > 0 })
	})
}

func (t *text) html() error {
	return htmlPage.Execute(t.Buffer, t.page())
}

func (t *text) page() *page {
	r := t.report
	verdict, rest := t.conclusion()
	p := &page{Verdict: badgeOf(r.Verdict), Conclusion: clean(rest), Next: clean(t.view.Next)}
	p.Verdict.Text = verdict
	if !t.view.Now.IsZero() {
		p.Read = t.view.Now.UTC().Format(time.RFC3339)
	}
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
	p.Title = clean(p.Title)
	switch r.Kind {
	case report.KindVerify:
		t.verifyPage(p)
	case report.KindMode:
		t.modePage(p)
	default:
		t.tracePage(p)
	}
	blocks := blocksOf(r, r.Kind == report.KindVerify)
	if len(blocks) > htmlBlocks {
		blocks = blocksOf(r, true)
	}
	for i, b := range blocks {
		p.Blocks = append(p.Blocks, blockOf(fmt.Sprintf("finding-%d", i+1), b, len(r.Nodes) > 1))
	}
	return p
}

func (p *page) service(s *report.ServiceInfo) {
	p.Service = clean(s.Namespace + "/" + s.Name + ", " + s.Type)
	switch {
	case len(s.ClusterIPs) > 0:
		p.Service += " " + clean(strings.Join(s.ClusterIPs, ", "))
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
		case !wrong(n.Verdict) && len(t.report.Nodes) > fullNodes && !(i == 0 && !wrong(t.report.Verdict)):
			quiet[n.Verdict] = append(quiet[n.Verdict], n.Node)
		case len(p.Nodes) == htmlNodes:
			more++
		default:
			c := t.nodeCard(n)
			for k, pic := range t.picturesOf(n) {
				if pic.failure != "" {
					continue
				}
				if drawn == pictureLimit {
					p.MorePaths++
					continue
				}
				drawn++
				c.Paths = append(c.Paths, t.pathCard(fmt.Sprintf("path-%d-%d", i+1, k+1), &pic))
			}
			p.Nodes = append(p.Nodes, c)
		}
	}
	if more > 0 {
		p.MoreNodes = append(p.MoreNodes, "… and "+plural(more, "more node")+" that are not right (-o json has them all)")
	}
	for _, v := range []report.Verdict{report.Match, report.ByDesign} {
		if names := quiet[v]; len(names) > 0 {
			p.MoreNodes = append(p.MoreNodes, verdictText(v)+": "+clean(t.list(names, htmlList, ", ")))
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
			h.Note = "… and " + plural(more, "more path") + " (-o json has them all)"
		}
		p.Tables = append(p.Tables, h)
	}
	counts, verdicts, lost, quiet := t.countTable()
	if len(counts.rows) > 0 {
		h := tableOf("What was judged on each node", counts, verdicts)
		if quiet > 0 {
			h.Note = "… and " + plural(quiet, "more node") + " on which nothing is wrong"
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
		for k, pic := range t.picturesOf(n) {
			if drawn == pictureLimit {
				p.MorePaths++
				continue
			}
			drawn++
			c.Paths = append(c.Paths, t.pathCard(fmt.Sprintf("path-%d-%d", i+1, k+1), &pic))
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
			p.MoreNodes = append(p.MoreNodes, "… and "+plural(len(lost)-i, "more node")+" not inspected (-o json has them all)")
			return
		}
		p.Nodes = append(p.Nodes, t.nodeCard(n))
	}
}

func (t *text) nodeCard(n *report.NodeReport) nodeCard {
	c := nodeCard{Name: clean(n.Node), Verdict: badgeOf(n.Verdict)}
	if n.Error != "" {
		c.Error = clean(Sentence(n))
		return c
	}
	c.Mode = inline(modeText(n.Mode, t.view.Now))
	if n.Mode != nil && n.Mode.ConfigSource != "" {
		c.Config = clean(n.Mode.ConfigSource)
	}
	return c
}

// pathCard is a picture, its endpoints with bars, and its steps.
func (t *text) pathCard(id string, pic *picture) pathCard {
	first := pic.paths[0]
	c := pathCard{
		ID: id, Title: clean(pic.frontend), Verdict: badgeOf(pic.verdict), Sharing: clean(first.Actual.Sharing), Affinity: first.Expected.AffinitySeconds,
		Wide: pic.wideSVG(id + "-wide"), Tall: pic.tallSVG(id + "-tall"),
	}
	if pic.service != "" {
		c.Title = clean(pic.service) + ", " + c.Title
	}
	var from []string
	for _, l := range pic.lanes {
		from = append(from, l.from...)
	}
	c.From = clean(strings.Join(from, ", "))
	rows := t.rowsOf(first)
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
		return clean(s + o.Error)
	}
	s += fmt.Sprintf("%d of %d connected", o.Connected, o.Probes)
	if o.RTT > 0 {
		s += fmt.Sprintf(", median %.2f ms", o.RTT)
	}
	return clean(strings.Join(append([]string{s}, o.Events...), ", "))
}

func endpointRows(p *report.Path, rows []row) []endpointRow {
	out := make([]endpointRow, len(rows))
	for i := range rows {
		r := &rows[i]
		e := &out[i]
		*e = endpointRow{
			Endpoint: clean(r.endpoint), Pod: clean(r.pod), Node: clean(r.node), Counts: r.counts(),
			Expected: bar{Text: clean(r.expected)}, Actual: bar{Text: clean(r.actual)}, Observed: bar{Text: clean(r.observed)},
		}
		if e.Counts {
			continue
		}
		e.Actual.Class, e.Observed.Class = r.state.class(), r.state.class()
		e.Status = badge{r.state.class(), symbols[r.state], clean(r.status)}
		e.measure(p)
	}
	// The largest share is as long as there is room: of 250 endpoints each has so little that it could not be seen otherwise.
	longest := 0.0
	for i := range out {
		longest = max(longest, out[i].Expected.Length, out[i].Actual.Length, out[i].Observed.Length)
	}
	for i := range out {
		for _, b := range []*bar{&out[i].Expected, &out[i].Actual, &out[i].Observed} {
			if longest > 0 {
				b.Length *= 100 / longest
			}
		}
	}
	return out
}

// measure sets the bars' lengths to the shares. Where a share is not fixed, or not known, there is no bar.
func (e *endpointRow) measure(p *report.Path) {
	measure := func(b *bar, share float64) {
		if _, err := strconv.ParseFloat(strings.TrimSuffix(b.Text, "%"), 64); err == nil || b.Text == "-" {
			b.Length, b.Drawn = share, true
		}
	}
	is := func(address string, port int32) bool {
		return net.JoinHostPort(address, strconv.Itoa(int(port))) == e.Endpoint
	}
	for i := range p.Expected.Endpoints {
		if x := &p.Expected.Endpoints[i]; is(x.Address, x.Port) {
			measure(&e.Expected, x.Share)
		}
	}
	arrives, ended, found := 0.0, 0.0, false
	for i := range p.Actual.Outcomes {
		o := &p.Actual.Outcomes[i]
		if o.Endpoint == nil {
			if "("+endText(o.Action)+")" == e.Endpoint {
				ended, found = ended+o.Share, true
			}
			continue
		}
		if o.Action == "DNAT" && is(o.Endpoint.Address, o.Endpoint.Port) {
			arrives, found = arrives+o.Share, true
		}
	}
	if found || e.Expected.Drawn {
		measure(&e.Actual, arrives+ended)
	}
	if o := p.Observed; o != nil && o.Probes > 0 {
		for i := range o.Endpoints {
			if x := &o.Endpoints[i]; is(x.Address, x.Port) {
				e.Observed.Length, e.Observed.Drawn = float64(x.Count)/float64(o.Probes), true
			}
		}
	}
}

func stepsTable(p *report.Path) (*stepTable, bool) {
	from := strings.TrimSpace(p.Origin.Kind + " " + p.Origin.Address)
	if p.Origin.Pod != "" {
		from += " (" + p.Origin.Pod + ")"
	}
	s := &stepTable{Title: clean(from)}
	places := blamed(p)
	for i := range p.Steps {
		x := &p.Steps[i]
		number := "-"
		if x.Rule > 0 {
			number = strconv.Itoa(x.Rule)
		}
		st := blame(places, strings.TrimSpace(x.Table+" "+x.Chain))
		s.Steps = append(s.Steps, stepRow{clean(x.Hook), clean(x.Table), clean(x.Chain), number, share(x.Share), clean(x.Verdict), clean(x.Text), st.onTheWay()})
	}
	return s, len(p.Steps) > 0
}

// tableOf makes an HTML table of one for a terminal. Its last column is the status.
func tableOf(caption string, tab *table, verdicts []report.Verdict) htmlTable {
	h := htmlTable{Caption: caption}
	for _, c := range tab.columns {
		h.Columns = append(h.Columns, htmlColumn{c.head[:1] + strings.ToLower(c.head[1:]), c.right})
	}
	for i, cells := range tab.rows {
		b := badgeOf(verdicts[i])
		b.Text = clean(cells[len(cells)-1])
		row := htmlRow{Status: b}
		for _, c := range cells[:len(cells)-1] {
			row.Cells = append(row.Cells, clean(c))
		}
		h.Rows = append(h.Rows, row)
	}
	return h
}

func badgeOf(v report.Verdict) badge {
	s, text := right, verdictText(v)
	switch v {
	case report.Mismatch:
		s = broken
	case report.Unknown:
		s = unsure
	case report.Warning:
		s = off
	case report.ByDesign:
		s = intended
	case report.Match:
	case "":
		return badge{"plain", "i", "info"}
	}
	return badge{s.class(), symbols[s], text}
}

// blockOf makes a finding ready for the page.
func blockOf(id string, b *block, severalNodes bool) htmlBlock {
	h := htmlBlock{ID: id, Verdict: badgeOf(b.verdict), Code: clean(b.code), Why: clean(b.why)}
	h.Of, h.MoreOf = first(b.subjects.list, htmlList)
	h.On, h.MoreOn = first(b.places(), htmlList)
	if severalNodes {
		h.Nodes, h.MoreNodes = first(b.nodes.list, htmlList)
	}
	for _, l := range b.links {
		x := link{Text: clean(l)}
		if strings.HasPrefix(l, "https://") {
			x.Address = l
		}
		h.Links = append(h.Links, x)
	}
	if b.example && len(b.subjects.list) > 0 {
		h.Example = clean(b.subjects.list[0])
	}
	for i, e := range b.evidence {
		if i < htmlEvidence || len(b.evidence) == htmlEvidence+1 {
			h.Evidence = append(h.Evidence, clean(e))
		} else {
			h.MoreEvidence = append(h.MoreEvidence, clean(e))
		}
	}
	for i, fix := range b.fixes.list {
		if i == htmlList {
			h.MoreFixes = len(b.fixes.list) - i
			break
		}
		h.Fixes = append(h.Fixes, remedyOf(clean(fix)))
	}
	return h
}

func remedyOf(fix string) remedy {
	command, comment, ok := strings.Cut(fix, "   # ")
	if ok || strings.HasPrefix(fix, "kubectl ") {
		return remedy{Command: command, Comment: comment}
	}
	return remedy{Text: fix}
}

// inline parts by a comma what a terminal shows parted by two spaces, which a browser does not.
func inline(s string) string { return strings.ReplaceAll(clean(s), "  ", ", ") }

// first returns at most limit names, and how many there are beyond it.
func first(names []string, limit int) (list []string, more int) {
	for i, n := range names {
		if i == limit {
			return list, len(names) - i
		}
		list = append(list, clean(n))
	}
	return list, 0
}
