// SPDX-License-Identifier: Apache-2.0

package run

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/plugin/cluster"
	"github.com/svcproxy/kubectl-svcproxy/trace/plan"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// What a Service's author has written into it and beside it is refused before the helper hears of it and before anybody
// is asked; with the class allowed it is named.
func TestWhatAServicesAuthorReaches(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(svc *corev1.Service, s *discoveryv1.EndpointSlice)
		want  string
		allow string
	}{
		{"nothing", func(*corev1.Service, *discoveryv1.EndpointSlice) {}, "", ""},
		{"an external IP of a public resolver", func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
			svc.Spec.ExternalIPs = []string{"8.8.8.8"}
		}, "--allow resolver", "resolver"},
		{"an external IP of the node", func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
			svc.Spec.ExternalIPs = []string{"10.77.0.11"}
		}, "--allow node", "node"},
		{"a load balancer's IP that is metadata", func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
			svc.Spec.Type = corev1.ServiceTypeLoadBalancer
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "169.254.169.254"}}
		}, "(class link-local): that is never programmed", ""},
		{"an endpoint of no Pod", func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = []string{"203.0.113.5"}
		}, "--allow no-pod", "no-pod"},
		{"an endpoint on the node that no Pod in its network has", func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses = []string{"10.77.0.11"}
		}, "--allow node", "node"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &fakeHelper{}
			k := keepFrontend(t, h, func(s cluster.Source) cluster.Source { return s })
			defer k.Close()
			svc := k.target.Service
			slice := k.session.Objects.EndpointSlices[slices.IndexFunc(k.session.Objects.EndpointSlices,
				func(s *discoveryv1.EndpointSlice) bool {
					return s.Namespace == "shop" && s.Labels[discoveryv1.LabelServiceName] == "frontend"
				})]
			tt.do(svc, slice)
			err := k.makePlan()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if tt.allow == "" {
				return
			}
			k.config.Allow = []string{tt.allow}
			if err := k.makePlan(); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(k.Taken(), func(l string) bool {
				return strings.HasPrefix(l, "allowed as --allow "+tt.allow+": ")
			}) {
				t.Errorf("it is not named: %q", k.Taken())
			}
			if !slices.Equal(h.all(), []string{"collect"}) {
				t.Errorf("the helper was asked for %q", h.all())
			}
		})
	}
}

// Those who are asked are told every address and port, and where it leads.
func TestTakenListsEveryFrontend(t *testing.T) {
	at := netip.MustParseAddrPort
	ends := plan.Destination{Endpoints: []netip.AddrPort{
		at("10.244.1.1:80"), at("10.244.1.2:80"), at("10.244.1.3:80"), at("10.244.1.4:80"), at("10.244.1.5:80"),
		at("10.244.1.6:80"), at("10.244.1.7:80"),
	}}
	one := plan.Destination{Endpoints: ends.Endpoints[:1]}
	k := &PathKeeper{plan: &plan.Plan{Frontends: []plan.Frontend{
		{Kind: "ClusterIP", Address: at("10.96.0.10:80"), Protocol: "TCP", ForNode: one, ForOthers: one},
		{Kind: "ExternalIP", Address: at("192.0.2.1:80"), Protocol: "UDP", ForNode: ends, ForOthers: ends, ForPods: &ends},
		{Kind: "NodePort", Address: at("192.0.2.10:30080"), Protocol: "TCP", ForNode: one},
		{Kind: "NodePort", Address: at("[fd00::1]:30080"), Protocol: "TCP", ForPods: &ends, ForNode: one, ForOthers: one},
	}}}
	want := []string{
		"ClusterIP 10.96.0.10:80/TCP → 10.244.1.1:80",
		"ExternalIP 192.0.2.1:80/UDP → 10.244.1.1:80, 10.244.1.2:80, 10.244.1.3:80, 10.244.1.4:80, 10.244.1.5:80 and 2 more",
		"NodePort 192.0.2.10:30080/TCP → from the node: 10.244.1.1:80; from others: dropped",
		"NodePort [fd00::1]:30080/TCP → from pods: 10.244.1.1:80, 10.244.1.2:80, 10.244.1.3:80, 10.244.1.4:80, " +
			"10.244.1.5:80 and 2 more; from the node: 10.244.1.1:80; from others: 10.244.1.1:80",
	}
	if got := k.Taken(); !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for range 100 {
		k.plan.Frontends = append(k.plan.Frontends, k.plan.Frontends[0])
	}
	got := k.Taken()
	if len(got) != listedFrontends+1 || got[listedFrontends] != "… and 84 frontends more: --dry-run shows all" {
		t.Errorf("%d lines, the last one %q", len(got), got[len(got)-1])
	}
}

// A Pod in the network of its node vouches for the node's address only where it is of the Service's namespace, named by
// the slice, and has not ended.
func TestPodsInTheNetworkOfTheirNode(t *testing.T) {
	pod := func(namespace, name string, host bool, phase corev1.PodPhase, ip string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{HostNetwork: host},
			Status: corev1.PodStatus{Phase: phase, PodIP: ip},
		}
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	slice := func(name, ip string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{ip}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name},
			}},
		}
	}
	objects := &snapshot.Cluster{
		Pods: []*corev1.Pod{
			pod("shop", "agent", true, corev1.PodRunning, "192.0.2.10"),
			pod("shop", "ended", true, corev1.PodSucceeded, "192.0.2.11"),
			pod("kube-system", "proxy", true, corev1.PodRunning, "192.0.2.12"),
			pod("shop", "plain", false, corev1.PodRunning, "10.244.1.1"),
			pod("shop", "plain-ended", false, corev1.PodFailed, "10.244.1.2"),
			pod("other", "theirs", false, corev1.PodRunning, "10.244.1.3"),
		},
		EndpointSlices: []*discoveryv1.EndpointSlice{
			slice("agent", "192.0.2.10"), slice("ended", "192.0.2.11"), slice("proxy", "192.0.2.12"),
			slice("agent", "192.0.2.13"),
			slice("plain", "10.244.1.1"),
		},
	}
	f := factsOf(objects, svc, nil)
	if got := f.HostPods; !slices.Equal(got, []netip.Addr{netip.MustParseAddr("192.0.2.10")}) {
		t.Errorf("in the network of their node: %v", got)
	}
	if got := f.Pods; !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.244.1.1")}) {
		t.Errorf("Pods of the namespace: %v", got)
	}
}
