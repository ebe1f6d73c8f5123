// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"slices"
	"strings"

	"github.com/maruel/natural"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/svcproxy/kubectl-svcproxy/plugin/plaintext"
	"github.com/svcproxy/kubectl-svcproxy/plugin/terminal"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// diffObject makes a Diff a runtime.Object, as reportObject does for reports.
type diffObject struct {
	*report.Diff
}

func (o *diffObject) GetObjectKind() schema.ObjectKind { return kindOf(o.APIVersion, o.Kind) }

func (o *diffObject) DeepCopyObject() runtime.Object {
	out := &diffObject{&report.Diff{}}
	deepCopy(o.Diff, out.Diff)
	return out
}

// Diff prints a DiffReport.
func (p *Printer) Diff(out *terminal.Stream, d *report.Diff, v View) error {
	if p.object != nil {
		return p.Object(out, &diffObject{d})
	}
	t := p.newText(v, nil)
	if p.format == "name" {
		t.diffNames(d)
	} else {
		t.diff(d)
	}
	return out.Text(t.Text)
}

// diffNames lists the nodes whose paths or rules differ.
func (t *text) diffNames(d *report.Diff) {
	names := slices.Concat(d.OnlyBefore, d.OnlyAfter)
	for i := range d.Nodes {
		if d.Nodes[i].InPathsOrRules() {
			names = append(names, d.Nodes[i].After.Node)
		}
	}
	slices.SortFunc(names, natural.Compare)
	for _, n := range names {
		t.Linef("node/%s", n)
	}
}

// How much of a list is shown before the rest is counted.
const (
	diffPaths   = 20 // groups of paths
	diffLines   = 30 // differences of a part
	diffAtPlace = 6  // at one place
	diffNodes   = 20
	diffNamed   = 3 // Services or endpoints that a line names
)

func (t *text) diff(d *report.Diff) {
	if d.Compares == report.ComparesNodes {
		t.source(d.Before)
		if d.Service != nil {
			t.say(plain, "Service", d.Service.Namespace+"/"+d.Service.Name, true)
		}
	} else {
		t.side("Before", d.Before)
		t.side("After", d.After)
	}
	for _, only := range []struct {
		in    string
		nodes []string
	}{{"before", d.OnlyBefore}, {"after", d.OnlyAfter}} {
		if len(only.nodes) > 0 {
			t.say(plain, "Only", only.in+": "+some(only.nodes, diffNodes), true)
		}
	}
	if d.Compares != report.ComparesNodes {
		before, after := failedOn(d, beforeOf), failedOn(d, afterOf)
		if len(before)+len(after) > 0 {
			t.Blank()
		}
		t.lostFor(before, "NOT INSPECTED before")
		t.lostFor(after, "NOT INSPECTED after")
	}
	for i := range d.Nodes {
		if i >= diffNodes && !t.wide {
			t.Linef("… and %s", andMore(len(d.Nodes)-i, "more node"))
			break
		}
		t.nodeDiff(&d.Nodes[i], d)
	}
	if len(d.Objects) > 0 {
		t.Blank()
		t.changes("API", d.Objects, d.ObjectsLeft)
	}
	if len(d.NotCompared) > 0 {
		t.Blank()
		t.notCompared(d.NotCompared)
	}
	t.Blank()
	t.diffConclusion(d)
}

// side says what one side was read from.
func (t *text) side(label string, s *report.Source) {
	if s == nil {
		return
	}
	made := "it does not say when it was made"
	if s.MadeAt != "" {
		made = "made " + s.MadeAt
	}
	t.say(plain, label, "snapshot "+s.Snapshot+apart+made, true)
}

// nodeDiff writes what differs on a node. Of several nodes those without a difference are left out.
func (t *text) nodeDiff(n *report.NodeDiff, d *report.Diff) {
	nodes, failed := d.Compares == report.ComparesNodes, n.Before.Error+n.After.Error != ""
	empty := len(n.Paths)+len(n.Findings)+len(n.Changes)+len(n.NotCompared) == 0
	if !nodes && failed || empty && len(d.Nodes) > 1 && !t.wide {
		return
	}
	if nodes {
		t.say(plain, "Good", n.Before.Node+apart+aboutNode(&n.Before), true)
		t.say(plain, "Bad", n.After.Node+apart+aboutNode(&n.After), true)
		if n.Before.Verdict.NeedsAttention() && n.Before.Error == "" && d.Service != nil {
			t.say(yellow, "Note", n.Before.Node+" is "+string(n.Before.Verdict)+" itself, and what is wrong on both nodes is "+
				"not listed. To see it: kubectl svcproxy trace "+d.Service.Name+" -n "+d.Service.Namespace+" --node "+
				n.Before.Node, true)
		}
	} else {
		t.Blank()
		about := aboutNode(&n.Before)
		if now := aboutNode(&n.After); now != about {
			about += " → " + now
		}
		t.say(plain, "Node", n.After.Node+apart+about, true)
	}
	for _, side := range []*report.ComparedNode{&n.Before, &n.After} {
		if side.Error != "" {
			t.say(plain, "", "not inspected: "+side.Node+": "+side.Error, true)
		}
	}
	if len(n.Paths) > 0 {
		t.Blank()
		t.pathChanges(n)
	}
	if len(n.Findings) > 0 {
		t.Blank()
		t.head("FINDINGS")
		for i := range n.Findings {
			f := &n.Findings[i]
			t.diffLine(sign(f.Change), string(f.Severity)+" "+f.Code+spaced(f.Subject)+": "+f.Message)
		}
	}
	for from := 0; from < len(n.Changes); {
		to := from
		for to < len(n.Changes) && n.Changes[to].Part == n.Changes[from].Part {
			to++
		}
		left := 0
		for _, l := range n.Left {
			if l.Part == n.Changes[from].Part {
				left = l.Count
			}
		}
		t.Blank()
		t.changes(strings.ToUpper(n.Changes[from].Part), n.Changes[from:to], left)
		from = to
	}
	if len(n.NotCompared) > 0 {
		t.Blank()
	}
	t.notCompared(n.NotCompared)
}

func (t *text) notCompared(list []report.NotCompared) {
	for _, x := range list {
		t.Linef("Not compared: %s (%s)", x.Part, x.Why)
	}
}

// aboutNode says in a few words what a side is.
func aboutNode(n *report.ComparedNode) string {
	words := []string{string(n.Verdict)}
	if m := n.Mode; m != nil {
		mode := m.Actual
		if m.Backend != "" {
			mode += " (" + m.Backend + ")"
		}
		if m.KubeProxyVersion != "" {
			mode += " " + m.KubeProxyVersion
		}
		words = append(words, strings.TrimSpace(mode))
	}
	if n.SyncAge != nil {
		words = append(words, "last sync "+shortSeconds(*n.SyncAge)+" before")
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}

// shortSeconds is a time in its largest unit.
func shortSeconds(n int64) string {
	switch {
	case n < 120:
		return fmt.Sprintf("%ds", n)
	case n < 7200:
		return fmt.Sprintf("%dm", n/60)
	case n < 48*3600:
		return fmt.Sprintf("%dh", n/3600)
	}
	return fmt.Sprintf("%dd", n/86400)
}

func (t *text) head(s string) {
	t.Add(terminal.Bold, s)
	t.End()
}

// diffLine writes a difference; a long one is continued below itself.
func (t *text) diffLine(sign, s string) {
	const below = "  "
	indent := len("  ") + plaintext.Width(sign) + len(" ")
	lines := []string{plaintext.Clean(s)}
	if t.columns > 0 && indent+plaintext.Width(lines[0]) > t.columns {
		lines = plaintext.WrapRule(lines[0], roomBeside(t.columns, indent+len(below)))
	}
	t.Linef("  %s %s", sign, lines[0])
	for _, line := range lines[1:] {
		t.Linef("%*s%s", indent, "", below+line)
	}
}

// sign is what stands before a difference.
func sign(change string) string {
	switch change {
	case report.Added:
		return "+"
	case report.Removed:
		return "-"
	}
	return "~"
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}

// some joins names, the first of them.
func some(names []string, most int) string {
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// changes writes the differences of a part, place by place: what came or went as a whole last. left is how many more
// there are than are listed.
func (t *text) changes(head string, list []report.Change, left int) {
	t.head(head)
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b report.Change) int { return min(a.Entries, 1) - min(b.Entries, 1) })
	lines, here, hidden := 0, 0, left
	for i := range list {
		c := &list[i]
		first := i == 0 || placeOf(&list[i-1]) != placeOf(c)
		here++
		if first && (c.Entries == 0 || i == 0 || list[i-1].Entries == 0) {
			here = 1 // what came or went as a whole is one list
		}
		if !t.wide && (lines >= diffLines || here > diffAtPlace) {
			hidden++
			continue
		}
		what := changeText(c)
		if single := i+1 == len(list) || placeOf(&list[i+1]) != placeOf(c); first && single && c.Rule == 0 {
			what = strings.TrimSpace(placeOf(c) + "  " + what)
		} else if first && c.Place != "" {
			t.Linef("  %s", placeOf(c))
		}
		t.diffLine(sign(c.Change), what)
		lines++
	}
	if hidden > 0 {
		more := wideShows(hidden)
		if left > 0 {
			more = "(more than are listed)"
		}
		t.Linef("  … and %d more %s", hidden, more)
	}
}

// objectKinds name API objects by their part.
var objectKinds = map[string]string{"Services": "Service ", "endpoints": "endpoints of ", "Nodes": "Node "}

func placeOf(c *report.Change) string { return objectKinds[c.Part] + c.Place }

// changeText says what a difference is.
func changeText(c *report.Change) string {
	number := ""
	switch {
	case c.Rule > 0:
		number = fmt.Sprintf("rule %d: ", c.Rule)
	case c.Entries > 0:
		number = fmt.Sprintf("(%d) ", c.Entries)
	}
	switch c.Change {
	case report.Added:
		return number + c.After
	case report.Removed:
		return number + c.Before
	}
	return number + c.Before + " → " + c.After
}

// diffConclusion writes the last line.
func (t *text) diffConclusion(d *report.Diff) {
	s := d.Summary
	different := d.InPathsOrRules()
	word, color := "SAME", terminal.Green
	switch {
	case different:
		word, color = "DIFFERENT", terminal.Red
	case s.NotJudged > 0:
		word, color = "UNKNOWN", terminal.Yellow
	}
	var parts []string
	if s.Paths > 0 {
		text := plaintext.Plural(s.Paths, "path")
		var how []string
		if s.Broke > 0 {
			how = append(how, fmt.Sprintf("%d broke", s.Broke))
		}
		if s.Repaired > 0 {
			how = append(how, fmt.Sprintf("%d repaired", s.Repaired))
		}
		if s.Known > 0 {
			how = append(how, fmt.Sprintf("%d now known", s.Known))
		}
		if s.Unclear > 0 {
			how = append(how, fmt.Sprintf("%d no longer known", s.Unclear))
		}
		if len(how) > 0 {
			text += " (" + strings.Join(how, ", ") + ")"
		}
		parts = append(parts, text)
	}
	for _, x := range []struct {
		n    int
		what string
	}{
		{s.Rules, "difference of rules"},
		{s.Others, "difference of settings, routes and the like"},
		{s.Objects, "difference of API objects"},
		{len(d.OnlyBefore) + len(d.OnlyAfter), "node in one snapshot only"},
		{s.NotJudged, "node not inspected"},
	} {
		if x.n > 0 {
			parts = append(parts, pluralOf(x.n, x.what))
		}
	}
	left := len(d.NotCompared)
	for i := range d.Nodes {
		left += len(d.Nodes[i].NotCompared)
	}
	if left > 0 {
		parts = append(parts, plaintext.Plural(left, "part")+" not compared")
	}
	rest := strings.Join(parts, ", ")
	switch {
	case different:
	case len(parts) > 0:
		rest = nothingOf(d) + "; " + rest
	default:
		rest = "nothing that is compared differs " + between(d)
	}
	t.lastLine(color, word, rest)
}

// between says where two sides were compared.
func between(d *report.Diff) string {
	if d.Compares == report.ComparesNodes && len(d.Nodes) == 1 {
		return "between " + d.Nodes[0].Before.Node + " and " + d.Nodes[0].After.Node
	}
	return "on " + plaintext.Plural(d.Summary.Nodes, "node")
}

// nothingOf says that nothing of what decides about connections differs, as far as it was compared.
func nothingOf(d *report.Diff) string {
	for i := range d.Nodes {
		for _, x := range d.Nodes[i].NotCompared {
			if report.IsRules(x.Part) {
				return "no path differs (" + x.Part + " are not compared)"
			}
		}
	}
	return "no path and no rule that is compared differs"
}

// pluralOf is a number with what it counts: the first word of that has the plural.
func pluralOf(n int, what string) string {
	first, rest, _ := strings.Cut(what, " ")
	return strings.TrimSpace(plaintext.Plural(n, first) + " " + rest)
}
