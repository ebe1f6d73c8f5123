// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
)

// maxOrderedSlices is up to how many EndpointSlices all orders are tried in.
const maxOrderedSlices = 5

// maxDuplicates is up to how many addresses with different entries that is done: there are as many lists as orders.
const maxDuplicates = 100

// maxListed is how many endpoints all these lists may have together.
const maxListed = 50_000

// listsOf is how many lists there are at most, of entries in so many EndpointSlices.
func listsOf(inSlices int) int {
	out := 2 // rules for duplicates
	for k := 2; k <= min(inSlices, maxOrderedSlices); k++ {
		out *= k
	}
	return out
}

// allowedLists returns every list of endpoints that kube-proxy may have made of entries of which several have one
// address: it goes through the EndpointSlices in any order (a map), and through each from its beginning
// (pkg/proxy/endpointslicecache.go, endpointInfoByServicePort and addEndpoints). order are the entries sorted by
// address; chosen is one list, with which the result begins if it is allowed. nil where there are too many orders.
func (n *Node) allowedLists(eps []Endpoint, from, order []int, chosen []Endpoint) [][]Endpoint {
	groups := map[netip.AddrPort][]int{}
	var in []int // slices with an entry that matters
	for _, i := range order {
		groups[eps[i].Address] = append(groups[eps[i].Address], i)
	}
	for a, g := range groups {
		if !slices.ContainsFunc(g, func(i int) bool { return !equivalent(&eps[i], &eps[g[0]]) }) {
			delete(groups, a)
			continue
		}
		for _, i := range g {
			if !slices.Contains(in, from[i]) {
				in = append(in, from[i])
			}
		}
	}
	if len(in) > maxOrderedSlices || len(groups) > maxDuplicates || listsOf(len(in))*len(chosen) > maxListed {
		return nil
	}
	slices.Sort(in)
	var out [][]Endpoint
	for _, preferred := range n.features.duplicates.preferences() {
		permutations(in, func(slicesInOrder []int) {
			list := slices.Clone(chosen)
			for i := range list {
				if g := groups[list[i].Address]; g != nil {
					e := eps[taken(eps, from, g, slicesInOrder, preferred)]
					e.Slices = list[i].Slices
					list[i] = e
				}
			}
			if !slices.ContainsFunc(out, func(l []Endpoint) bool { return slices.EqualFunc(l, list, sameEntry) }) {
				out = append(out, list)
			}
		})
	}
	if i := slices.IndexFunc(out, func(l []Endpoint) bool { return slices.EqualFunc(l, chosen, sameEntry) }); i > 0 {
		out[0], out[i] = out[i], out[0]
	}
	return out
}

func sameEntry(a, b Endpoint) bool { return equivalent(&a, &b) }

// preferences are, for each rule that kube-proxy may follow, the entries that replace an earlier one.
func (r duplicateRule) preferences() []func(*Endpoint) bool {
	var out []func(*Endpoint) bool
	if r&lastRunning != 0 {
		out = append(out, func(e *Endpoint) bool { return !e.Terminating })
	}
	if r&lastLocal != 0 {
		out = append(out, func(e *Endpoint) bool { return e.Local })
	}
	return out
}

// taken returns the entry of a group that is left, once all slices were added in an order.
func taken(eps []Endpoint, from, group, order []int, preferred func(*Endpoint) bool) int {
	left := -1
	for _, slice := range order {
		for _, i := range group {
			if from[i] == slice && (left < 0 || preferred(&eps[i])) {
				left = i
			}
		}
	}
	return left
}

// permutations calls f with every order of a list; f must not keep it.
func permutations(list []int, f func([]int)) {
	var next func(k int)
	next = func(k int) {
		if k == len(list) {
			f(list)
			return
		}
		for i := k; i < len(list); i++ {
			list[k], list[i] = list[i], list[k]
			next(k + 1)
			list[k], list[i] = list[i], list[k]
		}
	}
	next(0)
}
