// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func TestChanges(t *testing.T) {
	service := func(name, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}}
	}
	endpoints := func(of, name, version string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, ResourceVersion: version, Labels: map[string]string{discoveryv1.LabelServiceName: of},
		}}
	}
	before := &snapshot.Cluster{
		Services: []*corev1.Service{
			service("same", "1"), service("changed", "1"), service("gone", "1"), service("moved", "1"),
		},
		EndpointSlices: []*discoveryv1.EndpointSlice{endpoints("same", "s", "1"), endpoints("moved", "m", "1")},
	}
	after := &snapshot.Cluster{
		Services: []*corev1.Service{
			service("same", "1"), service("changed", "2"), service("new", "1"), service("moved", "1"),
		},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			endpoints("same", "s", "1"), endpoints("moved", "m", "2"), endpoints("moved", "m2", "1"),
		},
	}
	var got []string
	for _, n := range changes(before, after, nil) {
		got = append(got, n.Name)
	}
	slices.Sort(got)
	if want := []string{"changed", "gone", "moved", "new"}; !slices.Equal(got, want) {
		t.Errorf("changed: %v, want %v", got, want)
	}
	if got := changes(before, after, []types.NamespacedName{{Namespace: "shop", Name: "same"}}); got != nil {
		t.Errorf("of the one that is the same: %v", got)
	}
}
