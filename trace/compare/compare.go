// SPDX-License-Identifier: Apache-2.0

// Package compare says what differs between two captures of a node, or between two nodes: paths and findings of their
// reports, and the lines of canonical texts ([Object]) of what the node has: rules, sets, settings, routes, interfaces.
// It reads what nodestate has loaded and judge has judged, and changes and prints nothing.
package compare

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"znkr.io/diff"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Bounds of a comparison: nodes are written by others.
const (
	maxChanges = 2000 // that are listed of a part
	maxPaths   = 5000
	maxText    = 1000 // bytes of a text
)

// Captures compares two captures of a node.
func Captures(before, after *Facts) report.NodeDiff { return compareFacts(before, after, nil) }

// Nodes compares two nodes, as far as they matter for the paths of their reports, which are those of one Service and
// have to have their steps (judge.Request.Steps).
func Nodes(good, bad *Facts) report.NodeDiff { return compareFacts(good, bad, focusOf(good, bad)) }

// Diff returns the differences of two lists of lines. It takes n log n steps.
func Diff(before, after []Line) (out []report.Change) {
	canonical := func(lines []Line) []string {
		out := make([]string, len(lines))
		for i := range lines {
			out[i] = lines[i].Canonical
		}
		return out
	}
	for _, h := range diff.Hunks(canonical(before), canonical(after), diff.Context(0), diff.Fast()) {
		x, y := before[h.PosX:h.EndX], after[h.PosY:h.EndY]
		single := len(x) == 1 && len(y) == 1
		now, paired := map[string]*Line{}, map[*Line]bool{} // by the first word, what has another value
		for i := range y {
			if name := y[i].name(single); y[i].Number == 0 && now[name] == nil {
				now[name] = &y[i]
			}
		}
		for i := range x {
			ch := report.Change{Change: report.Removed, Before: x[i].Text, Rule: x[i].Number}
			if l := now[x[i].name(single)]; l != nil && x[i].Number == 0 && !paired[l] {
				ch.Change, ch.After, paired[l] = report.Changed, l.Text, true
			}
			out = append(out, ch)
		}
		for i := range y {
			if l := &y[i]; !paired[l] {
				out = append(out, report.Change{Change: report.Added, After: l.Text, Rule: l.Number})
			}
		}
	}
	return out
}

// name is what a line without a number is about: its first word, or all that there is.
func (l *Line) name(single bool) string {
	if single {
		return ""
	}
	name, _, _ := strings.Cut(l.Text, " ")
	return name
}

// comparison is one in progress.
type comparison struct {
	a, b  *Facts
	focus *focus // nil: captures of one node are compared
	in    string // begins the names of what is of a pod: "pod shop/web "
	out   report.NodeDiff
	count map[string]int // changes of each part
}

func compareFacts(a, b *Facts, f *focus) report.NodeDiff {
	c := &comparison{a: a, b: b, focus: f, count: map[string]int{}}
	c.out.Before, c.out.After = a.compared(), b.compared()
	if a.report.Error != "" || b.report.Error != "" {
		return c.out
	}
	c.paths()
	c.out.Findings = c.findings(a.report.Findings, b.report.Findings)
	if f != nil && f.form {
		c.note(PartRules, "kube-proxy runs in different modes: the paths tell what its rules do")
	}
	c.objects()
	c.pods()
	c.order()
	for _, part := range parts {
		if n := c.count[part] - maxChanges; n > 0 {
			c.out.Left = append(c.out.Left, report.PartCount{Part: part, Count: n})
		}
	}
	return c.out
}

func (f *Facts) compared() report.ComparedNode {
	out := report.ComparedNode{
		Node: f.node, Verdict: f.report.Verdict, Error: f.report.Error, Mode: f.report.Mode, Summary: f.report.Summary,
	}
	if f.report.Mode == nil || f.clock == 0 {
		return out
	}
	if at, err := time.Parse(time.RFC3339, f.report.Mode.LastSync); err == nil {
		if age := f.clock - at.Unix(); age >= 0 {
			out.SyncAge = &age
		}
	}
	return out
}

// objects compares all objects of two nodes, or of two pods.
func (c *comparison) objects() {
	for _, x := range [][2]*Facts{{c.a, c.b}, {c.b, c.a}} {
		for _, s := range slices.SortedFunc(maps.Keys(x[0].unread), compareSources) {
			if why := x[0].unread[s]; why != "" {
				c.note(s.part, c.side(x[0])+": "+s.of(why))
			}
		}
	}
	left, right := c.sideOf(c.a, c.b), c.sideOf(c.b, c.a)
	all := maps.Clone(left)
	maps.Copy(all, right)
	for _, k := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		if x, y := left[k], right[k]; c.comparable(x, y) {
			c.object(k, x, y)
		}
	}
}

// order puts the changes into the order of the parts.
func (c *comparison) order() {
	slices.SortStableFunc(c.out.Changes, func(x, y report.Change) int {
		return slices.Index(parts, x.Part) - slices.Index(parts, y.Part)
	})
}

// sideOf returns the objects of a side by their names; those between nodes as far as they matter, with names in place
// of what is a node's own.
func (c *comparison) sideOf(f, other *Facts) map[key]*Object {
	if c.focus == nil {
		return f.objects
	}
	out := map[key]*Object{}
	for _, k := range slices.SortedFunc(maps.Keys(f.objects), compareKeys) {
		o := f.objects[k]
		k.name = f.rename(k.name, other)
		if c.focus.backend {
			k.name = strings.Replace(k.name, " legacy ", " ", 1)
		}
		if o = c.focus.pick(o); o == nil {
			continue
		}
		for i := range o.Lines {
			o.Lines[i].Canonical = f.rename(o.Lines[i].Canonical, other)
		}
		if twin := out[k]; twin != nil { // of the other backend
			if len(twin.Lines) > len(o.Lines) {
				o, twin = twin, o
			}
			o.Lines = slices.Concat(o.Lines, slices.DeleteFunc(twin.Lines, func(l Line) bool { return l.Number == 0 }))
		}
		sortLines(o.Lines)
		out[k] = o
	}
	return out
}

// comparable reports whether an object can be compared, of which a side may have none. What has not been read is noted.
func (c *comparison) comparable(x, y *Object) bool {
	one := cmp.Or(x, y)
	able := c.read(one.source, x, y)
	if one.Part == PartLinks { // they are from two files
		able = c.read(source{PartLinks, snapshot.LinkFile}, x, y) && able
	}
	switch {
	case !able:
		return false
	case x == nil || y == nil:
		return !one.weak && !(c.focus != nil && one.Part == PartLinks)
	case x.from != y.from && (x.weak || y.weak):
		c.note(x.Part, c.side(c.a)+": "+x.Name+" is from "+x.from+"; "+c.side(c.b)+": from "+y.from)
		return false
	}
	return c.focus == nil || x.Part != PartNeighbours || x.weak != y.weak // link-layer addresses are each node's own
}

// read reports whether both sides have read a source of an object, of which one may have none. What has not been read
// is noted.
func (c *comparison) read(from source, x, y *Object) bool {
	was, unreadA := c.a.unread[from]
	now, unreadB := c.b.unread[from]
	alike := unreadA && unreadB && was+now == "" // what neither side has collected is the same on both
	able := true
	for _, side := range []struct {
		f          *Facts
		own, other *Object
	}{{c.a, x, y}, {c.b, y, x}} {
		why, unread := side.f.unread[from]
		switch {
		case side.own != nil && side.own.unread != "":
			c.note(from.part, c.side(side.f)+": "+side.own.Name+": "+side.own.unread)
		case !unread && side.own == nil && side.f.tables[strings.Replace(side.other.table, " nft ", " ", 1)]:
			// One of iptables' tables, which this side has read by iptables-save, and the other by nft alone.
		case !unread || alike:
			continue
		case why == "":
			c.note(from.part, c.side(side.f)+": "+from.of("not collected"))
		}
		able = false
	}
	return able
}

// object compares an object, of which a side may have none.
func (c *comparison) object(k key, x, y *Object) {
	var changes []report.Change
	switch {
	case x == nil && len(y.Lines) > 0:
		changes = []report.Change{whole(y, report.Added)}
	case y == nil && len(x.Lines) > 0:
		changes = []report.Change{whole(x, report.Removed)}
	case x != nil && y != nil:
		changes = Diff(x.Lines, y.Lines)
	}
	for _, ch := range changes {
		ch.Part = k.part
		c.count[ch.Part]++
		if c.count[ch.Part] <= maxChanges {
			ch.Place, ch.Before, ch.After = cut(c.in+k.name), cut(ch.Before), cut(ch.After)
			c.out.Changes = append(c.out.Changes, ch)
		}
	}
}

// whole is the change of an object that one side has alone.
func whole(o *Object, change string) report.Change {
	ch := report.Change{Change: change, Entries: len(o.Lines), After: o.Lines[len(o.Lines)-1].Text}
	if change == report.Removed {
		ch.Before, ch.After = ch.After, ""
	}
	return ch
}

// note notes what is not compared, once.
func (c *comparison) note(part, why string) {
	if n := (report.NotCompared{Part: c.in + part, Why: cut(why)}); !slices.Contains(c.out.NotCompared, n) {
		c.out.NotCompared = append(c.out.NotCompared, n)
	}
}

// side names one of the two.
func (c *comparison) side(f *Facts) string {
	switch {
	case c.focus != nil:
		return f.node
	case f == c.b:
		return "after"
	}
	return "before"
}

// pods compares the network namespaces of pods that were collected: of captures by their names, of nodes the first of
// each controller. One that only one side has is noted.
func (c *comparison) pods() {
	a, b, f := c.a, c.b, c.focus
	byName := func(of *Facts) map[string]string {
		out := map[string]string{}
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(of.pods))) {
			kind := name
			if at := strings.LastIndexByte(name, '-'); f != nil && at > strings.IndexByte(name, '/') {
				kind = name[:at] // the last word is the pod's own
			}
			out[kind] = name
		}
		return out
	}
	left, right := byName(a), byName(b)
	all := maps.Clone(left)
	maps.Copy(all, right)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		x, y := a.pods[left[kind]], b.pods[right[kind]]
		able := true
		for _, side := range []struct{ of, pod *Facts }{{a, x}, {b, y}} {
			switch {
			case side.pod == nil:
				c.note(PartPods, all[kind]+": "+c.side(side.of)+": not collected")
			case side.pod.why != "":
				c.note(PartPods, all[kind]+": "+c.side(side.of)+": "+side.pod.why)
			default:
				continue
			}
			able = false
		}
		if !able {
			continue
		}
		name := left[kind]
		if right[kind] != name {
			name += ", " + right[kind]
		}
		if f != nil {
			c.focus = &focus{all: true}
		}
		c.a, c.b, c.in = x, y, "pod "+name+" "
		c.objects()
		c.a, c.b, c.in, c.focus = a, b, "", f
	}
}

// cut shortens a text to maxText bytes. What it returns keeps nothing of a longer text alive.
func cut(s string) string {
	if len(s) <= maxText {
		return strings.Clone(s)
	}
	at := maxText
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at] + "…"
}

// Count counts the differences of the nodes and objects of a Diff.
func Count(d *report.Diff) {
	s := report.DiffSummary{Objects: len(d.Objects) + d.ObjectsLeft}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		if n.Before.Error != "" || n.After.Error != "" {
			s.NotJudged++
			continue
		}
		s.Nodes++
		s.Paths += len(n.Paths) + n.PathsLeft
		s.Broke += n.Verdicts.Broke
		s.Repaired += n.Verdicts.Repaired
		s.Known += n.Verdicts.Known
		s.Unclear += n.Verdicts.Unclear
		of := slices.Clone(n.Left)
		for k := range n.Changes {
			of = append(of, report.PartCount{Part: n.Changes[k].Part, Count: 1})
		}
		for _, l := range of {
			if report.IsRules(l.Part) {
				s.Rules += l.Count
			} else {
				s.Others += l.Count
			}
		}
	}
	d.Summary = s
}
