// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func pod(ns, name, node string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	p.Status.Phase = corev1.PodRunning
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func originObjects() *snapshot.Cluster {
	host := pod("kube-system", "proxy", "node1", "172.16.0.1")
	host.Spec.HostNetwork = true
	done := pod("shop", "job", "node2", "10.244.1.9")
	done.Status.Phase = corev1.PodSucceeded
	node := func(name, ip, cidr string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidr}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		return n
	}
	return &snapshot.Cluster{
		Pods: []*corev1.Pod{
			host, done, pod("shop", "client", "node1", "10.244.1.9", "fd00::9"), pod("shop", "v6", "node1", "fd00::a"),
			pod("shop", "pending", ""),
		},
		EndpointSlices: []*discoveryv1.EndpointSlice{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.9.0.7"}, NodeName: new("node1"),
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-1"},
			}},
		}},
		Nodes: []*corev1.Node{node("node1", "172.16.0.1", "10.244.1.0/24"), node("node2", "172.16.0.2", "10.244.2.0/24")},
	}
}

func TestParseOrigin(t *testing.T) {
	for _, tt := range []struct {
		from, node string
		kind       expect.OriginKind
		address    string
		pod        string
	}{
		{"pod", "node1", expect.FromPod, "", ""},
		{"node", "node1", expect.FromNode, "", ""},
		{"external", "node1", expect.FromExternal, "", ""},
		{"pod/client", "node1", expect.FromPod, "", "shop/client"},
		{"pod/shop/client", "node1", expect.FromPod, "", "shop/client"},
		{"pod/kube-system/proxy", "node1", expect.FromNode, "", ""}, // host network
		{"10.244.1.9", "node1", expect.FromPod, "10.244.1.9", "shop/client"},
		{"10.244.1.9", "node2", expect.FromExternal, "10.244.1.9", ""}, // comes in from the other node
		{"::ffff:10.244.1.9", "node1", expect.FromPod, "10.244.1.9", "shop/client"},
		{"10.244.2.200", "node2", expect.FromPod, "10.244.2.200", ""},   // no pod known, but the node's pod network
		{"10.9.0.7", "node1", expect.FromPod, "10.9.0.7", "shop/web-1"}, // an endpoint, of no pod network that is known
		{"10.9.0.7", "node2", expect.FromExternal, "10.9.0.7", ""},
		{"172.16.0.1", "node1", expect.FromNode, "172.16.0.1", ""},
		{"172.16.0.1", "node2", expect.FromExternal, "172.16.0.1", ""},
		{"192.0.2.1", "node1", expect.FromExternal, "192.0.2.1", ""},
	} {
		s, err := parseOrigin(tt.from, "shop", originObjects())
		if err != nil {
			t.Errorf("%s: %v", tt.from, err)
			continue
		}
		f := s.On(tt.node)
		address := ""
		if f.Address.IsValid() {
			address = f.Address.String()
		}
		if f.Kind != tt.kind || address != tt.address || f.Pod != tt.pod {
			t.Errorf("%s on %s: got %s %s %s, want %s %s %s", tt.from, tt.node, f.Kind, address, f.Pod, tt.kind, tt.address,
				tt.pod)
		}
	}
	var nobody *Origin
	s, err := parseOrigin("", "shop", originObjects())
	if s != nil || err != nil || s.On("node1") != nil || !nobody.canUse(corev1.IPv6Protocol) {
		t.Errorf("no --from: got %+v, %v", s, err)
	}
}

func TestParseOriginErrors(t *testing.T) {
	for _, tt := range []struct{ from, want string }{
		{"client", `--from "client" is not pod, pod/NAME`},
		{"pod/", "has no name of a pod"},
		{"pod/proxy", `there is no pod "proxy" in namespace "shop", but in kube-system: give pod/NAMESPACE/NAME`},
		{"pod/pending", "pod shop/pending has no IP address"},
		{"svc/web", "is not pod, pod/NAME"},
		{"external=203.0.113.9", "did you mean 203.0.113.9?"},
		{"external:2001:db8::9", "did you mean 2001:db8::9?"},
		{"outside/203.0.113.9", "did you mean 203.0.113.9?"},
	} {
		if _, err := parseOrigin(tt.from, "shop", originObjects()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.from, err, tt.want)
		}
	}
	_, err := parseOrigin("pod/client", "shop", &snapshot.Cluster{Missing: []string{"pods"}})
	if err == nil || !strings.Contains(err.Error(), "pods were not collected") {
		t.Errorf("got %v", err)
	}
}

func TestCheckFamilies(t *testing.T) {
	s, err := parseOrigin("pod/v6", "shop", originObjects())
	if err != nil {
		t.Fatal(err)
	}
	v4 := &corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}}
	dual := &corev1.Service{
		Spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
	}
	if err := s.CheckFamilies("pod/v6", v4); err == nil {
		t.Error("an IPv6 pod reaches an IPv4 Service")
	}
	if err := s.CheckFamilies("pod/v6", dual); err != nil {
		t.Error(err)
	}
	if !slices.Equal(s.families, []corev1.IPFamily{corev1.IPv6Protocol}) {
		t.Errorf("got %v", s.families)
	}
}
