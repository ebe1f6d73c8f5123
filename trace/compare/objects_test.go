// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/compare"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func slice(name, service string, ready bool, addrs ...string) *discoveryv1.EndpointSlice {
	port, node := int32(8080), "worker-1"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

func service(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, "10.96.0.7"
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func node(name, podCIDR string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: podCIDR}}
}

func TestObjects(t *testing.T) {
	before := &snapshot.Cluster{
		Services: []*corev1.Service{service("web", nil), service("old", nil), service("same", nil)},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			slice("web-1", "web", true, "10.244.1.1", "10.244.1.2"), slice("same-1", "same", true, "10.244.1.5", "10.244.1.6"),
		},
		Nodes: []*corev1.Node{node("worker-1", "10.244.1.0/24")},
	}
	after := &snapshot.Cluster{
		Services: []*corev1.Service{
			service("same", nil), service("web", func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = "Local" }),
			service("new", nil),
		},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			slice("same-2", "same", true, "10.244.1.6"), slice("same-3", "same", true, "10.244.1.5"), // cut otherwise
			slice("web-1", "web", false, "10.244.1.2"), slice("web-2", "web", true, "10.244.1.3"),
		},
		Nodes: []*corev1.Node{node("worker-1", "10.244.9.0/24")},
	}
	for c, at := range map[*snapshot.Cluster]string{before: "10.77.0.11", after: "10.77.0.19"} {
		c.Nodes[0].Annotations = map[string]string{snapshot.FlannelPublicIP: at, "example.com/seen": at}
	}
	got, left, not := compare.Objects(before, after)
	text := make([]string, len(got))
	for i, c := range got {
		text[i] = strings.TrimSpace(fmt.Sprintf("%s %s %s: %s → %s", c.Part, c.Change, c.Place, c.Before, c.After))
	}
	want := []string{
		"Services added shop/new:  → type ClusterIP",
		"Services removed shop/old: type ClusterIP →",
		"Services added shop/web:  → externalTrafficPolicy Local",
		"endpoints removed shop/web: 10.244.1.1:8080 ready on worker-1 →",
		"endpoints changed shop/web: 10.244.1.2:8080 ready on worker-1 → 10.244.1.2:8080 not ready on worker-1",
		"endpoints added shop/web:  → 10.244.1.3:8080 ready on worker-1",
		"Nodes changed worker-1: " +
			"flannel.alpha.coreos.com/public-ip 10.77.0.11 → flannel.alpha.coreos.com/public-ip 10.77.0.19",
		"Nodes changed worker-1: podCIDRs 10.244.1.0/24 → podCIDRs 10.244.9.0/24",
	}
	if !slices.Equal(text, want) || left != 0 || len(not) > 0 {
		t.Errorf("got\n%s\nwant\n%s\nleft %d", strings.Join(text, "\n"), strings.Join(want, "\n"), left)
	}
	if same, _, _ := compare.Objects(before, before); len(same) > 0 {
		t.Errorf("objects differ from themselves: %v", same)
	}
}
