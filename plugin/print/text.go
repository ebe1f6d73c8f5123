// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// text writes a report for people. The verdict is in the last line, where nothing can scroll it away.
type text struct {
	*terminal.Text
	terminal.Style
	wide      bool
	columns   int // of the terminal, also where nothing is cut (Style.Width is 0 then); 0: no terminal
	noHeaders bool
	view      View
	report    *report.Report
	kept      bool // how to keep the evidence has been said
}

func (t *text) print() {
	if t.noHeaders {
		t.rowsOnly()
		return
	}
	t.source(t.report.Source)
	switch t.report.Kind {
	case report.KindVerify:
		t.verify()
	case report.KindMode:
		t.mode()
	default:
		t.trace()
	}
	t.next(t.view.Next)
	if t.view.Explain != "" {
		t.say(plain, "Explain", t.view.Explain, false)
	}
	verdict, rest := t.conclusion()
	t.conclude(t.report.Verdict, verdict, rest)
}

// rowsOnly writes the rows of a report's table, for a program that reads them line by line.
func (t *text) rowsOnly() {
	switch t.report.Kind {
	case report.KindVerify:
		t.verifyTable()
	case report.KindMode:
		tab, verdicts, _ := t.modeTable()
		t.byVerdict(tab, verdicts)
	default:
		for i := range t.report.Nodes {
			n := &t.report.Nodes[i]
			node := ""
			if len(t.report.Nodes) > 1 {
				node = n.Node
			}
			t.pathTable(node, n.Paths)
		}
	}
}

// conclude writes the last line: a verdict, and what it holds for. On a terminal a long one is continued below itself;
// in a pipe it stays one line.
func (t *text) conclude(v report.Verdict, verdict, rest string) {
	t.lastLine(colorOf(v), verdict, rest)
}

// lastLine writes the word that matters in colour, and the rest in lines of the terminal's width.
func (t *text) lastLine(color terminal.Color, verdict, rest string) {
	lines := t.hanging(verdict + ": " + rest)
	t.Add(color, verdict)
	t.Linef("%s", strings.TrimPrefix(lines[0], verdict))
	for _, line := range lines[1:] {
		t.Linef("%s", line)
	}
}

// roomBeside is how many columns are left beside those taken, at least enough to read; 0, no limit, of no columns.
func roomBeside(columns, taken int) int {
	const readable = 40
	if columns <= 0 {
		return 0
	}
	return max(columns-taken, readable)
}

// hanging breaks a text between words into lines of the terminal's width; those after the first are indented.
func (t *text) hanging(s string) []string {
	const indent = "  "
	lines := plaintext.Wrap(plaintext.Clean(s), roomBeside(t.columns, len(indent)))
	for i := range lines[1:] {
		lines[i+1] = indent + lines[i+1]
	}
	return lines
}

// title writes a line above a table.
func (t *text) title(s string) {
	for _, line := range t.hanging(s) {
		t.Linef("%s", line)
	}
}

// next says what to do next. A command is to be copied in one piece: it stands beside its text where there is room.
func (t *text) next(r report.Remedy) {
	label := "Next"
	say := func(s string, breakable bool) {
		t.say(plain, label, s, breakable)
		label = ""
	}
	lead := r.Text
	for _, c := range r.Commands {
		if c.When != "" {
			if lead != "" {
				lead += "; "
			}
			lead += c.When
		}
		switch beside := lead + ": " + c.Line; {
		case lead == "":
			say(c.Line, false)
		case t.columns > 0 && labelWidth+plaintext.Width(beside) > t.columns:
			say(lead+":", true)
			say("  "+c.Line, false)
		default:
			say(beside, false)
		}
		lead = ""
	}
	if lead != "" {
		say(lead, true)
	}
}

// newText makes a text for people.
func (p *Printer) newText(v View, r *report.Report) *text {
	switch p.Color {
	case ColorAlways:
		v.Color = true
	case "never":
		v.Color = false
	}
	t := &text{Text: terminal.NewText(v.Color), noHeaders: p.NoHeaders, Style: v.Style, wide: p.Wide(), view: v, report: r}
	if t.noHeaders { // for a program: the same columns at every width
		t.Width = 0
	}
	if t.columns = t.Width; t.wide {
		t.Width = 0
	}
	return t
}

// source says what was read, and when.
func (t *text) source(s *report.Source) {
	if s == nil {
		return
	}
	var line string
	switch {
	case s.Snapshot == "":
		for _, part := range []struct{ what, name string }{{"context", s.Context}, {"cluster", s.Cluster}} {
			if part.name != "" {
				line += part.what + " " + part.name + apart
			}
		}
		line += "read " + s.ReadAt
	case s.MadeAt == "":
		line = "snapshot " + s.Snapshot + apart + "it does not say when it was made"
	default:
		line = "snapshot " + s.Snapshot + apart + "made " + s.MadeAt
		// Not where the text is kept: it would be another one the next day.
		if t.view.Age != "" && t.view.Width > 0 {
			line += " (" + t.view.Age + " ago)"
		}
	}
	t.say(plain, "Source", line, true)
}

// labelWidth is the width of the labels of the header and, without two of it, of the findings' lines.
const labelWidth = 9

// say writes a labelled line of the header. A long one is continued below itself, unless it is to be copied in one
// piece.
func (t *text) say(c terminal.Color, label, s string, breakable bool) {
	lines := []string{plaintext.Clean(s)}
	if breakable {
		lines = t.wrapped(lines[0])
	}
	for i, line := range lines {
		if i > 0 {
			label = ""
		}
		t.Addf("%-*s", labelWidth, label)
		t.Add(c, line)
		t.End()
	}
}

// wrapped breaks a text between words into lines that have room behind a label.
func (t *text) wrapped(s string) []string {
	return plaintext.Wrap(s, roomBeside(t.columns, labelWidth))
}

// list joins names, and cuts a long list with a count; wide output never cuts.
func (t *text) list(names []string, limit int, sep string) string {
	if !t.wide && len(names) > limit {
		return strings.Join(names[:limit], sep) + fmt.Sprintf(" and %d more", len(names)-limit)
	}
	return strings.Join(names, sep)
}

// andMore counts what is not shown, and says what shows it.
func andMore(n int, what string) string { return plaintext.Plural(n, what) + " " + wideShows(n) }

// wideShows says what shows so many things that are not shown.
func wideShows(n int) string {
	if n == 1 {
		return "(-o wide shows it)"
	}
	return "(-o wide shows them)"
}

func frontendText(f *report.Frontend) string {
	addr := f.Address
	if f.Port != 0 {
		if addr == "" {
			addr = "*"
		}
		addr = report.JoinHostPort(addr, f.Port)
	}
	if f.Protocol != "" && f.Protocol != "TCP" {
		addr += "/" + f.Protocol
	}
	return strings.TrimSpace(f.Kind + " " + addr)
}

// share writes a probability as people read it.
func share(s float64) string {
	if s > 1-1e-9 {
		return "100%"
	}
	return fmt.Sprintf("%.1f%%", s*100)
}

// serviceHeader says what the API holds of the traced Service.
func (t *text) serviceHeader(s *report.ServiceInfo) {
	if s == nil {
		return
	}
	head := s.Namespace + "/" + s.Name
	switch {
	case len(s.ClusterIPs) > 0:
		head += "  " + s.Type + " " + strings.Join(s.ClusterIPs, ", ")
	case s.Type == "ClusterIP":
		head += "  headless"
	default:
		head += "  " + s.Type
	}
	if len(s.Ports) == 1 {
		t.say(plain, "Service", head+apart+strings.Join(portText(&s.Ports[0]), apart), true)
		return
	}
	t.say(plain, "Service", head, true)
	const limit = 8
	label := "Ports"
	for i := range s.Ports {
		if i == limit && !t.wide {
			t.say(plain, "", fmt.Sprintf("… and %d more", len(s.Ports)-limit), true)
			break
		}
		t.say(plain, label, strings.Join(portText(&s.Ports[i]), apart), true)
		label = ""
	}
}

// apart is what separates the parts of a line, where it may be broken before between words.
const apart = "  "

// portText returns what is to be said of a port, in parts.
func portText(p *report.ServicePort) []string {
	s := strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
	if p.TargetPort != "" {
		s += " → " + p.TargetPort
	}
	if p.NodePort != 0 {
		s += fmt.Sprintf(", NodePort %d", p.NodePort)
	}
	return []string{s, fmt.Sprintf("%d of %s ready", p.Ready, plaintext.Plural(p.Total, "endpoint"))}
}

// nodeHeader says which proxy a node runs, or why the node could not be inspected.
func (t *text) nodeHeader(n *report.NodeReport) {
	if n.Error != "" {
		t.say(yellow, "Node", n.Node+"  NOT INSPECTED: "+n.Error, true)
		return
	}
	t.say(plain, "Node", strings.Join(append([]string{n.Node}, modeText(n.Mode, t.view.Now)...), apart), true)
}

// modeText returns what is to be said of the proxy of a node, in parts.
func modeText(m *report.Mode, now time.Time) []string {
	if m == nil {
		return nil
	}
	var parts []string
	mode := m.Actual
	if mode == "" {
		mode = "no rules of kube-proxy"
	}
	switch m.Backend {
	case "":
	case "both":
		mode += " (nft and legacy backend)"
	default:
		mode += " (" + m.Backend + " backend)"
	}
	parts = append(parts, mode)
	if m.Configured != "" && m.Actual != "" && m.Configured != m.Actual {
		parts = append(parts, "configured for "+m.Configured)
	}
	if m.KubeProxyVersion != "" {
		version := "kube-proxy " + m.KubeProxyVersion
		if m.VouchedBy == report.VouchedByKubelet {
			version += " (not confirmed by the API)"
		}
		parts = append(parts, version)
	}
	out := []string{strings.Join(parts, ", ")}
	if m.LastSync != "" {
		out = append(out, "last sync "+ago(m.LastSync, now))
	}
	return out
}

// ago says how long ago something was. Of a snapshot (now is zero), and where the clocks of the node and of this
// machine disagree, it is the time itself.
func ago(at string, now time.Time) string {
	then, err := time.Parse(time.RFC3339, at)
	if now.IsZero() || err != nil || then.After(now) {
		return at
	}
	return duration.HumanDuration(now.Sub(then)) + " ago"
}

// conclusion is the last line: the verdict, and how much of what was looked at it holds for.
func (t *text) conclusion() (verdict, rest string) {
	r, s := t.report, &t.report.Summary
	if r.Kind == report.KindMode {
		return strings.ToUpper(verdictText(r.Verdict)), t.modes()
	}
	lost := 0
	for i := range r.Nodes {
		if r.Nodes[i].Error != "" {
			lost++
		}
	}
	where := "on " + t.nodesText()
	what := plaintext.Plural(s.Paths, "path")
	if r.Kind == report.KindVerify {
		what += " of " + plaintext.Plural(t.view.Services, "Service") + t.view.Scope
	} else if r.Service != nil {
		what += " of " + r.Service.Namespace + "/" + r.Service.Name
	}
	switch r.Verdict {
	case report.Match:
		verdict, rest = "MATCH", "all "+what+" "+where+" are right"
		if s.Paths == 1 {
			rest = what + " " + where + " is right"
		}
		if s.Paths == 0 {
			rest = "nothing to judge " + where
		}
		if s.ByDesign > 0 {
			rest += fmt.Sprintf(" (%d by design)", s.ByDesign)
		}
		rest += t.covered()
	case report.ByDesign:
		verdict, rest = "BY DESIGN", "kube-proxy's rules lead to no endpoint on "+what+" "+where+", and that is right"
		if r.LeftToDNS() {
			rest = "kube-proxy has nothing to do for " + r.Service.Namespace + "/" + r.Service.Name + " " + where +
				", and that is right"
		}
		if s.Paths == 0 {
			rest = "nothing to judge " + where
		}
	case report.Mismatch:
		verdict, rest = "MISMATCH", fmt.Sprintf("%d of %s %s are wrong", s.Mismatched, what, where)
		if s.Mismatched == 1 {
			rest = fmt.Sprintf("1 of %s %s is wrong", what, where)
		}
		if s.Mismatched == 0 {
			rest = "none of " + what + " is wrong, but something else " + where + " is: see above"
			if s.Paths == 1 {
				rest = what + " " + where + " is right, but something else there is wrong: see above"
			}
		}
	case report.Warning:
		verdict, rest = "WARNING", fmt.Sprintf("nothing is broken on %s %s, but see above", what, where)
	case report.Unknown:
		verdict = "UNKNOWN"
		rest = fmt.Sprintf("%d of %s %s cannot be judged, so nothing is claimed", s.Unknown, what, where)
		if s.Unknown == 0 && lost > 0 {
			nodes := plaintext.Plural(len(r.Nodes), "node")
			rest = fmt.Sprintf("%d of %s could not be inspected, so nothing is claimed", lost, nodes)
			if len(r.Nodes) == 1 {
				rest = r.Nodes[0].Node + " could not be inspected, so nothing is claimed"
			}
			lost = 0
		}
	}
	if lost > 0 {
		rest += fmt.Sprintf("; %d of %s not inspected", lost, plaintext.Plural(len(r.Nodes), "node"))
	}
	return verdict, rest
}

// nodesText names the nodes that were inspected, or counts them; where none was, all of them.
func (t *text) nodesText() string {
	count, last := 0, ""
	for i := range t.report.Nodes {
		if n := &t.report.Nodes[i]; n.Error == "" {
			count, last = count+1, n.Node
		}
	}
	if nodes := t.report.Nodes; count == 0 && len(nodes) > 0 {
		count, last = len(nodes), nodes[0].Node
	}
	if count == 1 {
		return last
	}
	return plaintext.Plural(count, "node")
}
