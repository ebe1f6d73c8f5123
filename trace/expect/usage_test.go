// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestUsage(t *testing.T) {
	in := testInputs(testService(loadBalancer, etpLocal), testSlice("a",
		"10.244.1.11 node1 zone=zone-a", "10.244.2.12 node2 zone=zone-b", "10.244.1.13 node1 not-ready",
		"10.244.2.14 node2 not-ready serving terminating"))
	want := map[string][2]Use{
		"10.244.1.11:8080": {{Used: true, Why: "ready, and meant for zone zone-a"}, {Used: true, Why: "ready"}},
		"10.244.2.12:8080": {
			{Why: "ready, but meant for zone zone-b, and zone zone-a has its own"}, {Why: "on node node2, not on node1"},
		},
		"10.244.1.13:8080": {{Why: "not ready"}, {Why: "not ready"}},
		"10.244.2.14:8080": {{Why: "terminating; others are ready"}, {Why: "on node node2, not on node1"}},
	}
	got := New(in).Usage(clusterFrontend.Service, &in.Services[0].Spec.Ports[0], corev1.IPv4Protocol)
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for _, u := range got {
		if w := want[u.Address.String()]; u.Cluster != w[0] || u.Local != w[1] {
			t.Errorf("%s: got %+v %+v, want %+v", u.Address, u.Cluster, u.Local, w)
		}
	}
}

// A policy that no traffic follows is said to be so, and not only in words.
func TestUsageOfAPolicyThatIsNotFollowed(t *testing.T) {
	in := testInputs(testService(), testSlice("a", "10.244.1.11 node1"))
	got := New(in).Usage(clusterFrontend.Service, &in.Services[0].Spec.Ports[0], corev1.IPv4Protocol)
	if len(got) != 1 || got[0].Cluster.NotFollowed || !got[0].Local.NotFollowed {
		t.Errorf("got %+v, want policy Local not followed", got)
	}
}
