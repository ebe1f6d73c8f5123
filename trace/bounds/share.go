// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Share shares out what there is between namespaces, each of which has the same or what it needs, and within one
// between its Services, of which those that need least are first: a tenant's Services take from no others'. It returns
// the Services that have nothing.
func Share(most int, needs map[types.NamespacedName]int) (left []types.NamespacedName) {
	spaces := map[string][]types.NamespacedName{}
	bySpace := map[string]int{}
	total := 0
	for name, need := range needs {
		spaces[name.Namespace] = append(spaces[name.Namespace], name)
		bySpace[name.Namespace] += need
		total += need
	}
	if total <= most {
		return nil
	}
	waiting := len(bySpace)
	for _, space := range slices.SortedFunc(maps.Keys(bySpace), func(a, b string) int {
		return cmp.Or(cmp.Compare(bySpace[a], bySpace[b]), strings.Compare(a, b))
	}) {
		share := min(bySpace[space], most/waiting)
		most, waiting = most-share, waiting-1
		names := spaces[space]
		slices.SortFunc(names, func(a, b types.NamespacedName) int {
			return cmp.Or(cmp.Compare(needs[a], needs[b]), strings.Compare(a.Name, b.Name))
		})
		for _, name := range names {
			if share -= needs[name]; share < 0 {
				left = append(left, name)
			}
		}
	}
	return left
}
