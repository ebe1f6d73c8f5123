// SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func nodeObject(name, hostname, address string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: hostname}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

// --local finds out which Node the machine is.
func TestWhichNode(t *testing.T) {
	objects := &snapshot.Cluster{Nodes: []*corev1.Node{
		nodeObject("a.example.com", "a", "10.0.0.1"), nodeObject("b.example.com", "b", "10.0.0.2"),
		nodeObject("c", "c", "fd00::3"),
	}}
	for _, tt := range []struct{ host, own, want string }{
		{"a.example.com", "10.0.0.2", "a.example.com"},
		{"b", "10.0.0.9", "b.example.com"},
		{"elsewhere", "fd00::3", "c"},
		{"elsewhere", "10.0.0.9", ""},
	} {
		got := whichNode(objects, tt.host, map[netip.Addr]bool{netip.MustParseAddr(tt.own): true})
		if tt.want == "" && got != nil || tt.want != "" && !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s with %s is %v, want %q", tt.host, tt.own, got, tt.want)
		}
	}
}

// Without --node a cluster's nodes that run endpoints are read, few of them, and all where there are few.
func TestChooseNodes(t *testing.T) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
	}
	for _, n := range []string{"n5", "n2", "n5", "gone", "n4", "n3"} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{NodeName: &n})
	}
	other := slice.DeepCopy()
	other.Labels[discoveryv1.LabelServiceName] = "db"
	objects := &snapshot.Cluster{EndpointSlices: []*discoveryv1.EndpointSlice{other, slice}}
	for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
		objects.Nodes = append(objects.Nodes, nodeObject(n, n, "10.0.0.1"))
	}
	none := &snapshot.Cluster{Nodes: objects.Nodes}
	few := &snapshot.Cluster{Nodes: objects.Nodes[:2], EndpointSlices: objects.EndpointSlices}
	for _, tt := range []struct {
		name    string
		nodes   Selection
		objects *snapshot.Cluster
		want    []string
	}{
		{"those with endpoints, three at most", Selection{}, objects, []string{"n2", "n4", "n5"}},
		{"no endpoint anywhere", Selection{}, none, []string{"n1", "n2", "n3"}},
		{"few nodes", Selection{}, few, []string{"n1", "n2"}},
		{"named ones", Selection{Names: []string{"n3", "n1", "n3"}}, objects, []string{"n3", "n1"}},
		{"all", Selection{All: true}, objects, []string{"n1", "n2", "n3", "n4", "n5"}},
		{
			"named ones, where Nodes may not be listed",
			Selection{Names: []string{"x"}},
			&snapshot.Cluster{Missing: []string{"nodes"}},
			[]string{"x"},
		},
	} {
		s := &Session{config: Config{Nodes: tt.nodes}, live: true, Objects: tt.objects, nodes: noReader{}}
		got, err := s.ChooseNodes(NodesOf([]cluster.Target{{Service: svc}}))
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}
