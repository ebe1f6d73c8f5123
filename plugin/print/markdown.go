// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
)

// markdown writes a report for a ticket, in Markdown as GitHub and GitLab have it: what is on the page in HTML, in its
// order, without pictures. Names and texts of rules are anybody's: they are escaped, or stand in blocks of code.
func (t *text) markdown(b *bytes.Buffer) {
	p := t.page()
	fmt.Fprintf(b, "## %s %s: %s\n\n", p.Verdict.Symbol, p.Verdict.Text, escapeMarkdown(p.Conclusion))
	if p.Impact != "" {
		fmt.Fprintf(b, "%s\n\n", escapeMarkdown(p.Impact))
	}
	if p.Service != "" {
		fmt.Fprintf(b, "- Service: %s\n", escapeMarkdown(p.Service))
	}
	for _, port := range p.Ports {
		fmt.Fprintf(b, "- Port: %s\n", escapeMarkdown(port))
	}
	if s := p.Source; s != nil {
		from := "cluster " + s.Cluster + ", read " + s.ReadAt
		if s.Snapshot != "" {
			from = "snapshot " + s.Snapshot
			if s.MadeAt != "" {
				from += ", made " + s.MadeAt
			}
		}
		fmt.Fprintf(b, "- Source: %s, by %s\n", escapeMarkdown(from), escapeMarkdown(s.Tool))
		fmt.Fprintf(b, "- Command: %s\n", inCode(s.Command))
	}
	for i := range p.Blocks {
		markdownFinding(b, p.Blocks[i])
	}
	for _, tab := range p.Tables {
		markdownTable(b, tab)
	}
	for i := range p.Nodes {
		markdownNode(b, &p.Nodes[i])
	}
	if p.MorePaths > 0 {
		fmt.Fprintf(b, "\n… and %s\n", plaintext.Plural(p.MorePaths, "more path"))
	}
	for _, more := range p.MoreNodes {
		fmt.Fprintf(b, "\n%s\n", escapeMarkdown(more))
	}
	if p.Next != nil {
		b.WriteString("\n### Next\n")
		markdownRemedy(b, *p.Next)
	}
}

// markdownNode writes a node with the endpoints of its paths.
func markdownNode(b *bytes.Buffer, n *nodeCard) {
	fmt.Fprintf(b, "\n### %s %s %s\n", escapeMarkdown(n.Name), n.Verdict.Symbol, n.Verdict.Text)
	if n.Error != "" {
		fmt.Fprintf(b, "\nNot inspected: %s\n", escapeMarkdown(n.Error))
	}
	if n.Mode != "" {
		fmt.Fprintf(b, "\n%s\n", escapeMarkdown(n.Mode))
	}
	for i := range n.Paths {
		c := &n.Paths[i]
		tab := &htmlTable{
			Caption: c.Title + ", from " + c.From,
			Columns: []htmlColumn{{"Endpoint", false}, {"Pod", false}, {"Node", false}, {"Expected", true}, {"Actual", true}},
		}
		if c.Shown.Observed {
			tab.Columns = append(tab.Columns, htmlColumn{"Observed", true})
		}
		for _, e := range c.Shown.Rows {
			cells := []string{e.Endpoint, e.Pod, e.Node, e.Expected.Text, e.Actual.Text}
			if c.Shown.Observed {
				cells = append(cells, e.Observed.Text)
			}
			tab.Rows = append(tab.Rows, htmlRow{cells, e.Status})
		}
		markdownTable(b, tab)
	}
}

// markdownTable writes a table, below its caption.
func markdownTable(b *bytes.Buffer, t *htmlTable) {
	fmt.Fprintf(b, "\n**%s**\n\n|", escapeMarkdown(t.Caption))
	rule := []string{""}
	for _, c := range t.Columns {
		fmt.Fprintf(b, " %s |", escapeMarkdown(c.Head))
		if c.Right {
			rule = append(rule, " ---: ")
		} else {
			rule = append(rule, " --- ")
		}
	}
	// The head of the last column, the status, may be among the columns already.
	if len(t.Rows) > 0 && len(t.Rows[0].Cells) == len(t.Columns) {
		b.WriteString(" Status |")
		rule = append(rule, " --- ")
	}
	b.WriteString("\n" + strings.Join(rule, "|") + "|\n")
	for _, r := range t.Rows {
		b.WriteByte('|')
		for _, cell := range r.Cells {
			fmt.Fprintf(b, " %s |", escapeMarkdown(cell))
		}
		fmt.Fprintf(b, " %s |\n", strings.TrimSpace(r.Status.Symbol+" "+escapeMarkdown(r.Status.Text)))
	}
	if t.Note != "" {
		fmt.Fprintf(b, "\n%s\n", escapeMarkdown(t.Note))
	}
}

func markdownFinding(b *bytes.Buffer, f *htmlBlock) {
	fmt.Fprintf(b, "\n### %s %s %s\n", f.Verdict.Symbol, f.Verdict.Text, escapeMarkdown(f.Code))
	for _, parts := range [][]htmlPart{f.Parts, f.Folded} {
		for i := range parts {
			markdownPart(b, &parts[i])
		}
	}
	if f.MoreParts > 0 {
		fmt.Fprintf(b, "\n… and %s (-o json has them all)\n", plaintext.Plural(f.MoreParts, "more Service"))
	}
	for _, fix := range f.Fixes {
		markdownRemedy(b, fix)
	}
	if f.Page != "" || len(f.Links) > 0 {
		b.WriteString("\n")
	}
	if f.Page != "" {
		fmt.Fprintf(b, "- More: [what %s means](%s)\n", escapeMarkdown(f.Code), f.Page)
	}
	for _, l := range f.Links {
		if l.Address != "" {
			fmt.Fprintf(b, "- See <%s>\n", l.Address)
		}
	}
}

func markdownPart(b *bytes.Buffer, p *htmlPart) {
	if p.Service != "" {
		fmt.Fprintf(b, "\n#### %s\n", escapeMarkdown(p.Service))
	}
	b.WriteString("\n")
	for _, line := range []struct {
		label, sep string
		names      []string
		more       int
	}{{"Of", ", ", p.Of, p.MoreOf}, {"On", "; ", p.On, p.MoreOn}, {"Nodes", ", ", p.Nodes, p.MoreNodes}} {
		if len(line.names) == 0 {
			continue
		}
		fmt.Fprintf(b, "- %s: %s", line.label, escapeMarkdown(strings.Join(line.names, line.sep)))
		if line.more > 0 {
			fmt.Fprintf(b, " and %d more", line.more)
		}
		b.WriteString("\n")
	}
	why := p.Why
	if p.Example != "" {
		why = "for example, of " + p.Example + ": " + why
	}
	fmt.Fprintf(b, "- Why: %s\n", escapeMarkdown(why))
	if len(p.Evidence) > 0 {
		b.WriteString("\n")
		lines := make([]string, len(p.Evidence))
		for i := range p.Evidence {
			lines[i] = p.Evidence[i].Text
		}
		codeBlock(b, "", strings.Join(lines, "\n"))
	}
	if p.More > 0 {
		fmt.Fprintf(b, "\n… and %d more (-o json has them all)\n", p.More)
	}
}

func markdownRemedy(b *bytes.Buffer, r remedy) {
	if r.Text != "" {
		fmt.Fprintf(b, "\n%s\n", escapeMarkdown(r.Text))
	}
	for _, c := range r.Commands {
		if c.Lead != "" {
			fmt.Fprintf(b, "\n%s:\n", escapeMarkdown(c.Lead))
		}
		b.WriteString("\n")
		codeBlock(b, "sh", c.Line)
	}
}

// codeBlock writes a block of code that nothing in it can end.
func codeBlock(b *bytes.Buffer, language, code string) {
	fence := fenceOf(code, 3)
	fmt.Fprintf(b, "%s%s\n%s\n%s\n", fence, language, code, fence)
}

// inCode is a text as code within a line.
func inCode(s string) string {
	s = plaintext.Clean(s)
	fence := fenceOf(s, 1)
	if len(fence) > 1 {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// fenceOf is the shortest run of backticks, of at least some, that is longer than those of a text.
func fenceOf(text string, least int) string {
	longest, run := 0, 0
	for _, r := range text {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return strings.Repeat("`", max(least, longest+1))
}

// escapeMarkdown escapes what means something to Markdown, in HTML within it or in a cell of a table, and what GitHub
// makes a link of: addresses, names that begin with www., mail addresses and mentions of people.
func escapeMarkdown(s string) string {
	s = plaintext.Clean(s)
	var b strings.Builder
	for i, r := range s {
		if strings.ContainsRune("\\`*_[]<>|~&#!@", r) ||
			r == ':' && strings.HasPrefix(s[i:], "://") ||
			r == '.' && i >= len("www") && strings.EqualFold(s[i-len("www"):i], "www") {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
