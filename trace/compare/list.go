// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"net/netip"
	"slices"
	"sort"
)

// item is an entry of a list: a rule of a chain, an element of a set, a route of a table.
type item struct {
	// key is what the entry does: two entries with the same key are the same.
	key string
	// text is the entry as a person knows it.
	text string
	// number is the rule's number in its chain; 0 for what has none.
	number int
	// class is that of entries whose order among each other means nothing, where they stand one after the other; "" for
	// one whose place matters.
	class string
	// What tells whose it is: the chain that a rule or an element leads to, the destination that it is for, and the
	// endpoint that it sends to.
	target   string
	jumps    bool // target is a chain of the table
	dst      netip.Addr
	port     uint16
	endpoint netip.AddrPort
}

// sortClasses puts runs of entries of the same class into the order of their keys, so that lists that differ by that
// alone are equal.
func sortClasses(list []item) {
	for i := 0; i < len(list); {
		end := i + 1
		if list[i].class != "" {
			for end < len(list) && list[end].class == list[i].class {
				end++
			}
			slices.SortStableFunc(list[i:end], func(a, b item) int {
				switch {
				case a.key < b.key:
					return -1
				case a.key > b.key:
					return 1
				}
				return 0
			})
		}
		i = end
	}
}

// difference is what makes one list of another.
type difference struct {
	removed, added []*item
	moved          [][2]*item // as few as there can be
}

// compareLists compares two lists whose classes are sorted. Entries that both have are paired, those with equal keys in
// their order; of the pairs those moved that are not in the longest run that both lists have in the same order. It
// takes n log n steps.
func compareLists(a, b []item) (d difference) {
	for len(a) > 0 && len(b) > 0 && a[0].key == b[0].key {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1].key == b[len(b)-1].key {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	where := make(map[string][]int, len(b)) // the places of a key in b that are not paired
	for i := range b {
		where[b[i].key] = append(where[b[i].key], i)
	}
	var pairs [][2]int
	paired := make([]bool, len(b))
	for i := range a {
		free := where[a[i].key]
		if len(free) == 0 {
			d.removed = append(d.removed, &a[i])
			continue
		}
		pairs = append(pairs, [2]int{i, free[0]})
		paired[free[0]] = true
		where[a[i].key] = free[1:]
	}
	for i := range b {
		if !paired[i] {
			d.added = append(d.added, &b[i])
		}
	}
	stay := increasing(pairs)
	for i, p := range pairs {
		if !stay[i] {
			d.moved = append(d.moved, [2]*item{&a[p[0]], &b[p[1]]})
		}
	}
	return d
}

// increasing tells which pairs are in the longest subsequence whose second numbers increase.
func increasing(pairs [][2]int) []bool {
	before := make([]int, len(pairs))
	var tails []int // the pair that ends the best subsequence of each length
	for i, p := range pairs {
		at := sort.Search(len(tails), func(k int) bool { return pairs[tails[k]][1] >= p[1] })
		before[i] = -1
		if at > 0 {
			before[i] = tails[at-1]
		}
		if at == len(tails) {
			tails = append(tails, i)
		} else {
			tails[at] = i
		}
	}
	stay := make([]bool, len(pairs))
	if len(tails) > 0 {
		for i := tails[len(tails)-1]; i >= 0; i = before[i] {
			stay[i] = true
		}
	}
	return stay
}
