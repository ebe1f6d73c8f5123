// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// changes names the Services that differ between two readings, or whose EndpointSlices do; of all if names is nil.
func changes(before, after *snapshot.Cluster, names []types.NamespacedName) []types.NamespacedName {
	if before == after {
		return nil
	}
	was, is := versions(before), versions(after)
	var out []types.NamespacedName
	add := func(name types.NamespacedName) {
		if (names == nil || slices.Contains(names, name)) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for o, v := range was {
		if is[o] != v {
			add(o.service)
		}
	}
	for o := range is {
		if _, ok := was[o]; !ok {
			add(o.service)
		}
	}
	return out
}

// proxied names an object that decides on a Service.
type proxied struct {
	service types.NamespacedName
	slice   string // "" for the Service itself
}

// versions returns each object's version.
func versions(c *snapshot.Cluster) map[proxied]string {
	out := make(map[proxied]string, len(c.Services)+len(c.EndpointSlices))
	for _, svc := range c.Services {
		name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
		out[proxied{service: name}] = string(svc.UID) + svc.ResourceVersion
	}
	for _, s := range c.EndpointSlices {
		out[proxied{expect.ServiceOf(s), s.Name}] = string(s.UID) + s.ResourceVersion
	}
	return out
}

// unchanged tells whether two readings have the same objects in the same order, each in the same version. What has no
// version may have changed.
func unchanged(before, after *snapshot.Cluster) bool {
	return sameVersions(before.Services, after.Services) && sameVersions(before.EndpointSlices, after.EndpointSlices) &&
		sameVersions(before.Endpoints, after.Endpoints) && slices.Equal(before.Nodes, after.Nodes) &&
		slices.Equal(before.Pods, after.Pods) && slices.Equal(before.ConfigMaps, after.ConfigMaps) &&
		slices.Equal(before.Missing, after.Missing) && maps.Equal(before.Unread, after.Unread)
}

func sameVersions[T metav1.Object](before, after []T) bool {
	return slices.EqualFunc(before, after, func(a, b T) bool {
		return a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion() &&
			a.GetUID() == b.GetUID() && a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace()
	})
}
