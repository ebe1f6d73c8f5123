// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// listed returns the objects of an informer, in the order of their names.
func listed[P metav1.Object](i cache.SharedIndexInformer) []P {
	all := i.GetStore().List()
	out := make([]P, 0, len(all))
	for _, x := range all {
		if p, ok := x.(P); ok {
			out = append(out, p)
		}
	}
	return inOrder(out)
}

// inOrder sorts objects by their names.
func inOrder[P metav1.Object](out []P) []P {
	slices.SortFunc(out, func(a, b P) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return out
}
