// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// notFound says that there is no such Service, and which ones may have been meant: the same name elsewhere, or a
// similar one.
func notFound(objects *snapshot.Cluster, namespace, name string) error {
	var elsewhere, here, namespaces []string
	for _, svc := range objects.Services {
		switch {
		case svc.Namespace != namespace:
			if svc.Name == name {
				elsewhere = append(elsewhere, svc.Namespace)
			}
			namespaces = append(namespaces, svc.Namespace)
		default:
			here = append(here, svc.Name)
		}
	}
	what := fmt.Sprintf("service %q not found in namespace %q", name, namespace)
	slices.Sort(elsewhere)
	switch {
	case len(elsewhere) == 1:
		return fmt.Errorf("%s; there is one in namespace %s: add -n %s", what, elsewhere[0], elsewhere[0])
	case len(elsewhere) > 1:
		return fmt.Errorf("%s; there is one in each of the namespaces %s: add -n", what, shorten(elsewhere))
	case DidYouMean(name, here) != "":
		return fmt.Errorf("%s%s", what, DidYouMean(name, here))
	case len(here) == 0:
		return fmt.Errorf("%s, which has no Service at all: is the namespace right (-n)?%s", what,
			DidYouMean(namespace, namespaces))
	}
	slices.Sort(here)
	return fmt.Errorf("%s, which has %s", what, shorten(here))
}

// DidYouMean ends an error about a name that there is not with those that are similar, of the ones that there are; "":
// none is.
func DidYouMean(name string, among []string) string {
	var similar []string
	for _, n := range among {
		if n != "" && n != name && alike(n, name) && !slices.Contains(similar, n) {
			similar = append(similar, n)
		}
	}
	if len(similar) == 0 {
		return ""
	}
	slices.Sort(similar)
	return "; did you mean " + strings.Join(similar[:min(3, len(similar))], " or ") + "?"
}

// alike tells whether one name may be a slip for another: few letters apart, or one the beginning of the other.
func alike(a, b string) bool {
	if len(a) >= 3 && len(b) >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
		return true
	}
	return distance(a, b) <= max(1, min(len(a), len(b))/3)
}

// distance counts the letters to change, add, take away or swap with their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// shorten joins a list, and cuts a long one with a count.
func shorten(list []string) string {
	const limit = 8
	if len(list) > limit {
		return strings.Join(list[:limit], ", ") + fmt.Sprintf(" and %d more", len(list)-limit)
	}
	return strings.Join(list, ", ")
}
