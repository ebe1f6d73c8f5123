// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
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

// A list that has what the last one had is the last one, so that nobody makes its index again; one that may have
// changed in any respect is not.
func TestUnchangedListsAreTheLastOne(t *testing.T) {
	service := func(name, uid, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid), ResourceVersion: version,
		}}
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", ResourceVersion: "1"}}
	of := func(change func(*snapshot.Cluster)) *snapshot.Cluster {
		c := &snapshot.Cluster{
			Services: []*corev1.Service{service("a", "1", "7"), service("b", "2", "7")}, Missing: []string{"pods"},
			EndpointSlices: []*discoveryv1.EndpointSlice{slice.DeepCopy()}, Unread: map[string]string{"pods": "denied"},
		}
		change(c)
		return c
	}
	for _, tt := range []struct {
		name   string
		change func(*snapshot.Cluster)
		want   bool
	}{
		{"nothing", func(*snapshot.Cluster) {}, true},
		{"a version", func(c *snapshot.Cluster) { c.Services[1] = service("b", "2", "8") }, false},
		{"deleted and made again", func(c *snapshot.Cluster) { c.Services[1] = service("b", "3", "7") }, false},
		{"another name", func(c *snapshot.Cluster) { c.Services[1] = service("c", "2", "7") }, false},
		{"one fewer", func(c *snapshot.Cluster) { c.Services = c.Services[:1] }, false},
		{"without versions", func(c *snapshot.Cluster) { c.Services[1] = service("b", "2", "") }, false},
		{"a slice", func(c *snapshot.Cluster) { c.EndpointSlices[0].ResourceVersion = "2" }, false},
		{"Endpoints", func(c *snapshot.Cluster) { c.Endpoints = []*snapshot.Endpoints{{}} }, false},
		{"pods", func(c *snapshot.Cluster) { c.Pods = []*corev1.Pod{{}} }, false},
		{"Nodes", func(c *snapshot.Cluster) { c.Nodes = []*corev1.Node{{}} }, false},
		{"ConfigMaps", func(c *snapshot.Cluster) { c.ConfigMaps = []*corev1.ConfigMap{{}} }, false},
		{"what is missing", func(c *snapshot.Cluster) { c.Missing = nil }, false},
		{"why it is", func(c *snapshot.Cluster) { c.Unread = nil }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lists := []*snapshot.Cluster{of(func(*snapshot.Cluster) {}), of(tt.change)}
			s := &Session{source: &listing{lists: lists}, Objects: &snapshot.Cluster{}}
			var l objectLists
			var got [2]*snapshot.Cluster
			for i := range got {
				var err error
				if got[i], err = l.get(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if same := got[0] == got[1]; same != tt.want || !same && got[1] != lists[1] {
				t.Errorf("the last one: %t, want %t", same, tt.want)
			}
		})
	}
	// Without a version the first list is not known to be the same either.
	c := &snapshot.Cluster{Services: []*corev1.Service{service("a", "1", "")}}
	if unchanged(c, &snapshot.Cluster{Services: []*corev1.Service{service("a", "1", "")}}) {
		t.Error("objects without versions are taken for unchanged")
	}
}

// listing answers with one list after another.
type listing struct {
	cluster.Source
	lists []*snapshot.Cluster
}

func (l *listing) Proxied(context.Context, *snapshot.Cluster) (*snapshot.Cluster, error) {
	c := l.lists[0]
	l.lists = l.lists[1:]
	return c, nil
}
