// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Endpoints is what people still write for Services without a selector, and kube-proxy no longer reads: a controller
// mirrors it in EndpointSlices (k8s.io/kubernetes/pkg/controller/endpointslicemirroring).
type Endpoints = corev1.Endpoints //nolint:staticcheck // it is deprecated, and written all the same

// mirroring is the value of discoveryv1.LabelManagedBy of slices that mirror Endpoints.
const mirroring = "endpointslicemirroring-controller.k8s.io"

// Mirrors tells whether a slice mirrors Endpoints.
func Mirrors(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelManagedBy] == mirroring
}

// Mirrored names the Services whose endpoints may come from Endpoints: those without a selector that have no slices but
// mirrors.
func (c *Cluster) Mirrored() (names []types.NamespacedName) {
	may := map[types.NamespacedName]bool{}
	for _, s := range c.Services {
		if len(s.Spec.Selector) == 0 && s.Spec.Type != corev1.ServiceTypeExternalName {
			name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
			may[name], names = true, append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	for _, s := range c.EndpointSlices {
		if !Mirrors(s) {
			delete(may, types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
		}
	}
	return slices.DeleteFunc(names, func(name types.NamespacedName) bool { return !may[name] })
}
