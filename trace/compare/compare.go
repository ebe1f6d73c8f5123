// SPDX-License-Identifier: Apache-2.0

// Package compare says what differs between two captures of a node, or between two nodes: paths, the rules behind them,
// sets, settings, configuration, routes, interfaces and neighbours. It reads what nodestate has loaded and judge has
// judged, and changes and prints nothing.
//
// What two captures of a healthy node differ in by themselves is no difference: counters, timers, the order in which
// kube-proxy writes the rules of Services and the endpoints of a Service, with their probabilities, the elements of
// sets that expire, neighbours that are no next hop. Nor is what two nodes must differ in: their own addresses, pod
// CIDRs, names and local endpoints; such differences are counted.
package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Bounds of a comparison: nodes are written by others.
const (
	maxChanges = 2000 // that are listed of a part, and of the API's objects
	maxPaths   = 5000
	maxText    = 1000 // bytes of a text
)

// Captures compares two captures of a node.
func Captures(before, after *Facts) report.NodeDiff { return compareFacts(before, after, nil) }

// Nodes compares two nodes, as far as they matter for the paths of their reports, which are those of one Service and
// have to have their steps (judge.Request.Steps).
func Nodes(good, bad *Facts) report.NodeDiff { return compareFacts(good, bad, focusOf(good, bad)) }

// comparison is one in progress.
type comparison struct {
	a, b  *Facts
	focus *focus // nil: captures of one node are compared
	in    string // begins the places of what is of a pod: "pod shop/web "
	out   report.NodeDiff
	count map[string]int // changes of each part
	must  map[string]int
}

func compareFacts(a, b *Facts, f *focus) report.NodeDiff {
	c := &comparison{a: a, b: b, focus: f, count: map[string]int{}, must: map[string]int{}}
	c.out.Before, c.out.After = a.compared(), b.compared()
	if a.report.Error != "" || b.report.Error != "" {
		return c.out
	}
	c.paths()
	c.out.Findings = c.findings(a.report.Findings, b.report.Findings)
	if f != nil && f.form {
		c.out.NotCompared = append(c.out.NotCompared, report.NotCompared{
			Part: PartRules, Why: "kube-proxy runs in different modes: the paths tell what its rules do",
		})
	}
	c.parts()
	c.pods()
	slices.SortStableFunc(c.out.Changes, func(x, y report.Change) int {
		return slices.Index(parts, x.Part) - slices.Index(parts, y.Part)
	})
	for _, part := range parts {
		if n := c.count[part] - maxChanges; n > 0 {
			c.out.Left = append(c.out.Left, report.PartCount{Part: part, Count: n})
		}
		if n := c.must[part]; n > 0 {
			c.out.AsTheyMust = append(c.out.AsTheyMust, report.PartCount{Part: part, Count: n})
		}
	}
	if n := c.must[partPaths]; n > 0 {
		c.out.AsTheyMust = append(c.out.AsTheyMust, report.PartCount{Part: partPaths, Count: n})
	}
	return c.out
}

// parts compares all parts of two nodes, or of two pods.
func (c *comparison) parts() {
	for _, part := range parts {
		c.notCompared(part)
		c.partLists(part)
		c.partValues(part)
	}
}

// partPaths counts paths in AsTheyMust.
const partPaths = "paths"

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

// partLists compares the lists of a part.
func (c *comparison) partLists(part string) {
	left, right := c.listsOf(part, c.a, c.b), c.listsOf(part, c.b, c.a)
	places := maps.Clone(left)
	maps.Copy(places, right)
	order := slices.SortedFunc(maps.Keys(places), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.name, b.name))
	})
	for _, p := range order {
		if c.skip(p, left[p], right[p]) {
			continue
		}
		if a, b := c.pick(p, left[p]), c.pick(p, right[p]); a != nil || b != nil {
			c.lists(p, a, b)
		}
	}
}

// listsOf are the lists of a part. Between nodes what is a node's own in the name of a place has another name.
func (c *comparison) listsOf(part string, of, other *Facts) map[place]*list {
	out := map[place]*list{}
	for p, l := range of.lists {
		if p.part != part {
			continue
		}
		if c.focus != nil {
			p.name = of.rename(p.name, other)
			if c.focus.backend {
				p.table = strings.Replace(p.table, " legacy ", " ", 1)
			}
			if twin := out[p]; twin != nil {
				l = twin.with(l)
			}
		}
		out[p] = l
	}
	return out
}

// with returns a list with the entries of another behind its own.
func (l *list) with(more *list) *list {
	out := *l
	if len(more.items) > len(l.items) {
		out = *more
		more = l
	}
	out.items = slices.Concat(out.items, more.items)
	return &out
}

// pick is what of a list is compared: for one Service what is of it.
func (c *comparison) pick(p place, l *list) *list {
	if l == nil || c.focus == nil {
		return l
	}
	return c.focus.pick(p, l)
}

// lists compares what stands at a place.
func (c *comparison) lists(p place, a, b *list) {
	switch {
	case a == nil:
		c.whole(p, b, report.Added)
		return
	case b == nil:
		c.whole(p, a, report.Removed)
		return
	}
	if a.base != b.base {
		c.add(report.Change{Part: p.part, Place: p.String(), Change: report.Changed, Before: a.base, After: b.base})
	}
	left, right := a.items, b.items
	if c.focus != nil {
		both := inBoth(left, right)
		left, right = c.a.renamed(p.part, left, c.b, both), c.b.renamed(p.part, right, c.a, both)
	}
	d := compareLists(left, right)
	for _, x := range d.removed {
		c.entry(p, report.Removed, x, nil)
	}
	for _, x := range d.added {
		c.entry(p, report.Added, nil, x)
	}
	for _, m := range d.moved {
		if c.focus != nil && c.focus.backend { // what one node has in two tables is in one of the other's
			c.must[p.part]++
			continue
		}
		c.entry(p, report.Moved, m[0], m[1])
	}
	if len(d.removed)+len(d.added)+len(d.moved) == 0 && a.probabilities != b.probabilities {
		c.add(report.Change{
			Part: p.part, Place: p.String(), Change: report.Changed, Before: a.spread(), After: b.spread(),
		})
	}
	if c.focus != nil {
		c.must[p.part] += sameButForNames(left, right, a.items, b.items)
	}
}

// spread says how connections are spread over the endpoints of a chain.
func (l *list) spread() string {
	if l.probabilities == "" {
		return fmt.Sprintf("%d endpoints have equal shares", l.endpoints)
	}
	return "shares: " + l.probabilities
}

// entry adds the difference of an entry, unless the nodes have to differ in it.
func (c *comparison) entry(p place, change string, a, b *item) {
	x := report.Change{Part: p.part, Place: p.String(), Change: change}
	for _, i := range []*item{a, b} {
		if i == nil {
			continue
		}
		if c.focus.must(i) {
			c.must[p.part]++
			return
		}
		x.Rule = i.number
	}
	if a != nil {
		x.Before = a.text
	}
	if b != nil {
		x.After = b.text
	}
	if change == report.Moved && a.number != 0 {
		x.Before = fmt.Sprintf("rule %d", a.number)
	}
	c.add(x)
}

// whole adds a chain, set or server that one side has alone.
func (c *comparison) whole(p place, l *list, change string) {
	if c.focus != nil && len(l.items) > 0 && len(l.only(c.focus.must).items) == len(l.items) {
		c.must[p.part]++
		return
	}
	if c.focus != nil && p.part == PartLinks {
		c.must[p.part]++
		return
	}
	if p.part == PartRoutes || p.part == PartRoutingRules || p.part == PartTunnels || p.part == PartLinks {
		for i := range l.items {
			x := &l.items[i]
			if change == report.Added {
				c.entry(p, change, nil, x)
			} else {
				c.entry(p, change, x, nil)
			}
		}
		return
	}
	if c.in != "" && p.part == PartRules && len(l.items) == 0 && strings.HasPrefix(l.base, "policy ACCEPT") {
		return // whoever lists the rules of a pod makes its tables
	}
	x := report.Change{Part: p.part, Place: p.String(), Change: change, Whole: true, Entries: len(l.items)}
	text := l.base
	if len(l.items) > 0 {
		text = l.items[len(l.items)-1].text
	}
	if x.Before = text; change == report.Added {
		x.Before, x.After = "", text
	}
	c.add(x)
}

// partValues compares what has one value.
func (c *comparison) partValues(part string) {
	if c.apart(part) {
		return
	}
	left, right := c.valuesOf(part, c.a, c.b), c.valuesOf(part, c.b, c.a)
	names := maps.Clone(left)
	maps.Copy(names, right)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, inA := left[name]
		b, inB := right[name]
		if a == b {
			continue
		}
		if part == PartSettings && (!inA || !inB) {
			continue // an interface that came or went, or one that another helper asks for: links tell
		}
		if part == PartNeighbours && (!inA || !inB) && !notable(a+b) {
			continue // the kernel forgets those that it does not need, and asks again
		}
		if (part == PartConfiguration || part == PartVersions) && (!inA || !inB) && !c.countsAlone(name) {
			continue // known on one side alone
		}
		if x, y := c.a.sources[name], c.b.sources[name]; x != y && inA && inB {
			c.out.NotCompared = append(c.out.NotCompared, report.NotCompared{Part: c.in + part, Why: cut(fmt.Sprintf(
				"%s: %s is from %s; %s: from %s", c.side(c.a), name, x, c.side(c.b), y,
			))})
			continue
		}
		if c.focus != nil && c.mustDiffer(part, name, a, b, inA && inB) {
			c.must[part]++
			continue
		}
		x := report.Change{Part: part, Place: name, Change: report.Changed, Before: a, After: b}
		switch {
		case !inA:
			x.Change = report.Added
		case !inB:
			x.Change = report.Removed
		}
		c.add(x)
	}
}

// valuesOf are the values of a part. Between nodes what is a node's own in a name has another name.
func (c *comparison) valuesOf(part string, of, other *Facts) map[string]string {
	out := map[string]string{}
	for p, v := range of.values {
		if p.part != part {
			continue
		}
		if c.focus != nil {
			p.name = of.rename(p.name, other)
		}
		out[p.name] = v
	}
	return out
}

// add adds a change, within the bounds.
func (c *comparison) add(x report.Change) {
	c.count[x.Part]++
	if c.count[x.Part] > maxChanges {
		return
	}
	x.Place, x.Before, x.After = cut(c.in+x.Place), cut(x.Before), cut(x.After)
	c.out.Changes = append(c.out.Changes, x)
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
