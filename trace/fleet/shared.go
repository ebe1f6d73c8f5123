// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// leastNodes is how many nodes must have been judged before it is said what those with a finding share: between two
// nodes everything that differs would be named.
const leastNodes = 3

// How likely it may be that a property separates nodes that have a finding by chance, for it to be named. Each of the
// possible choices of so many nodes is taken to be as likely. A text that is different on each node separates any one
// node from the others, and a time separates the oldest and the newest.
const (
	textByChance = 0.5
	timeByChance = 0.1
)

// Where no property separates all nodes, one is named that nearly does: of at least some nodes with the finding most
// have it, and of the others few.
const (
	nearly      = 5   // nodes
	nearlyAll   = 0.9 // of those with the finding
	nearlyNone  = 0.1 // of the others
	maxOfNearly = 3   // properties
)

// shared returns the properties that all nodes with a finding have and none of the others, else those that nearly do.
func shared(with, without []properties) []report.Shared {
	if len(with) == 0 || len(without) == 0 || len(with)+len(without) < leastNodes {
		return nil
	}
	names := map[string]bool{}
	for _, list := range [][]properties{with, without} {
		for i := range list {
			for name := range list[i].texts {
				names[name] = true
			}
			for name := range list[i].times {
				names[name] = true
			}
		}
	}
	var all, most []report.Shared
	for _, name := range slices.SortedFunc(maps.Keys(names), rank) {
		bad, good := valuesOf(name, with), valuesOf(name, without)
		s := report.Shared{Property: name, OfWith: bad.known, OfWithout: good.known}
		switch {
		case bad.known < len(with) || good.known < (len(without)+1)/2:
			// What is not known of a node with the finding may be what the others have.
		case byText(&s, &bad, &good) || byTime(&s, &bad, &good):
			all = append(all, s)
		case byMost(&s, &bad, &good) && len(most) < maxOfNearly:
			most = append(most, s)
		}
	}
	if all != nil {
		return all
	}
	return most
}

// values are those of one property on some nodes.
type values struct {
	known  int            // on how many nodes
	counts map[string]int // of texts
	times  []time.Time    // in order
	read   time.Time      // when the first of times was read; zero: all of them at the same time
}

func valuesOf(name string, nodes []properties) values {
	v := values{counts: map[string]int{}}
	for i := range nodes {
		if s, ok := nodes[i].text(name); ok {
			v.counts[s]++
			v.known++
		} else if t, ok := nodes[i].times[name]; ok {
			v.times = append(v.times, t)
			v.known++
			if at := nodes[i].read[name]; !at.IsZero() && (v.read.IsZero() || at.Before(v.read)) {
				v.read = at
			}
		}
	}
	slices.SortFunc(v.times, time.Time.Compare)
	return v
}

// only returns the value that all nodes have, where they have the same.
func (v *values) only() (value string, ok bool) {
	for value := range v.counts {
		return value, len(v.counts) == 1 && v.times == nil
	}
	return "", false
}

// ofSize is how many values there are that so many nodes have.
func (v *values) ofSize(n int) int {
	found := 0
	for _, c := range v.counts {
		if c == n {
			found++
		}
	}
	return found
}

// byText tells whether a text separates the nodes: all of one kind have the same one, and none of the others. It says
// so of the nodes with the finding where it can.
func byText(s *report.Shared, bad, good *values) bool {
	n := bad.known + good.known
	if v, ok := bad.only(); ok && good.counts[v] == 0 && good.times == nil {
		s.Relation, s.Value, s.With = report.SharedIs, v, bad.known
		return float64(good.ofSize(bad.known)+1)/choices(n, bad.known) <= textByChance
	}
	if v, ok := good.only(); ok && bad.counts[v] == 0 && bad.times == nil {
		s.Relation, s.Value, s.With = report.SharedIsNot, v, bad.known
		return float64(bad.ofSize(good.known)+1)/choices(n, good.known) <= textByChance
	}
	return false
}

// byTime tells whether a time separates the nodes: those with the finding are all earlier than the others, or later.
// Where nodes were read at different moments, those with the earlier times must have been read after all later ones:
// a node that was read earlier has an earlier last sync for that alone.
func byTime(s *report.Shared, bad, good *values) bool {
	if len(bad.times) != bad.known || len(good.times) != good.known ||
		2/choices(bad.known+good.known, bad.known) > timeByChance {
		return false
	}
	first, last := bad.times[0], bad.times[len(bad.times)-1]
	until := good.times[len(good.times)-1]
	switch {
	case first.After(until) && good.readAfter(last):
		s.Relation, s.Value = report.SharedSince, first.UTC().Format(time.RFC3339)
	case last.Before(good.times[0]) && bad.readAfter(until):
		s.Relation, s.Value = report.SharedUntil, last.UTC().Format(time.RFC3339)
	default:
		return false
	}
	s.With = bad.known
	return true
}

// readAfter tells whether all nodes were read after a time.
func (v *values) readAfter(t time.Time) bool { return v.read.IsZero() || !v.read.Before(t) }

// byMost tells whether nearly all nodes with the finding have the same text, and nearly none of the others.
func byMost(s *report.Shared, bad, good *values) bool {
	if bad.known < nearly || good.known < nearly {
		return false
	}
	for v, c := range bad.counts {
		if float64(c) >= nearlyAll*float64(bad.known) && float64(good.counts[v]) <= nearlyNone*float64(good.known) {
			s.Relation, s.Value, s.With, s.Without = report.SharedIs, v, c, good.counts[v]
			return true
		}
	}
	return false
}

// choices is in how many ways k of n nodes can be chosen.
func choices(n, k int) float64 {
	out := 1.0
	for i := 1; i <= min(k, n-k); i++ {
		out = out * float64(n-i+1) / float64(i)
	}
	return out
}
