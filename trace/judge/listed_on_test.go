// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// TestNobodyElsePlacesAnAddress: where an endpoint is that names no node, other slices tell only of a pod network.
func TestNobodyElsePlacesAnAddress(t *testing.T) {
	node := func(name, address, pods string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{pods}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
		}
	}
	slice := func(name, address, on string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{address}, NodeName: &on}},
		}
	}
	c := NewCluster(&snapshot.Cluster{
		Nodes: []*corev1.Node{node("cp1", "10.0.0.1", "10.244.1.0/24"), node("worker", "10.0.0.2", "10.244.2.0/24")},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			slice("pod", "10.244.2.7", "worker"), slice("stale", "10.244.2.7", "cp1"),
			slice("of-a-node", "10.0.0.1", "worker"), slice("virtual", "10.0.0.100", "worker"),
			slice("gone", "10.244.9.9", "worker-9"), slice("elsewhere", "10.244.1.5", "worker"),
		},
	})
	for address, want := range map[string]string{
		"10.244.2.7": "worker", "10.0.0.1": "", "10.0.0.100": "", "10.244.9.9": "", "10.244.1.5": "", "10.244.2.8": "",
	} {
		if got := c.listedOn(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
