// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// Only a change that may ask for another rule has findings settle anew: an annotation that is written every second
// would hide a fault for ever. What changes an object at all is judged.
func TestWhatRestartsSettling(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", ResourceVersion: "1", Annotations: map[string]string{"a": "b"},
	}}
	service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", ResourceVersion: "1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.5"}}},
	}
	of := func(change func(*corev1.Service)) func() (any, any) {
		return func() (any, any) {
			now := service.DeepCopy()
			now.ResourceVersion = "2"
			change(now)
			return service, now
		}
	}
	in := func(change func(*discoveryv1.EndpointSlice)) func() (any, any) {
		return func() (any, any) {
			now := slice.DeepCopy()
			now.ResourceVersion = "2"
			change(now)
			return slice, now
		}
	}
	for name, c := range map[string]struct {
		objects                    func() (before, now any)
		settles, endpoints, judged bool
	}{
		"a list that is read again": {objects: of(func(s *corev1.Service) { s.ResourceVersion = "1" })},
		"a slice of such a list":    {objects: in(func(s *discoveryv1.EndpointSlice) { s.ResourceVersion = "1" })},
		"a version alone":           {objects: of(func(*corev1.Service) {})},
		"an annotation": {
			objects: of(func(s *corev1.Service) { s.Annotations["a"] = "c" }), judged: true,
		},
		"an annotation that kube-proxy reads": {
			objects: of(func(s *corev1.Service) { s.Annotations[corev1.AnnotationTopologyMode] = "Auto" }),
			settles: true, judged: true,
		},
		"a condition": {
			objects: of(func(s *corev1.Service) { s.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }), judged: true,
		},
		"a port": {
			objects: of(func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }), settles: true, judged: true,
		},
		"a label": {
			objects: of(func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/headless": ""} }),
			settles: true, judged: true,
		},
		"an address of a load balancer": {
			objects: of(func(s *corev1.Service) {
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			}), settles: true, judged: true,
		},
		"a Service that is new": {
			objects: func() (any, any) { return nil, service }, settles: true, judged: true,
		},
		"a Service that is gone": {
			objects: func() (any, any) { return service, nil }, settles: true, judged: true,
		},
		"an annotation of a slice": {
			objects: in(func(s *discoveryv1.EndpointSlice) { s.Annotations = map[string]string{"a": "c"} }), judged: true,
		},
		"an endpoint": {
			objects: in(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.244.1.6" }),
			settles: true, endpoints: true, judged: true,
		},
		"a slice that is gone": {
			objects: func() (any, any) { return slice, nil }, settles: true, endpoints: true, judged: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newObjects(fake.NewClientset(), "node1")
			if err != nil {
				t.Fatal(err)
			}
			woken := 0
			o.wake = func() { woken++ }
			before, now := c.objects()
			o.changed(o.holding.take(before), o.holding.take(now), false)
			settles := !o.lastChange(types.NamespacedName{Namespace: "shop", Name: "web"}).IsZero()
			if settles != c.settles || len(o.take()) > 0 != c.endpoints {
				t.Errorf("findings settle anew: %t", settles)
			}
			if judged := woken > 0; judged != c.judged || o.version > 0 != c.judged {
				t.Errorf("a pass begins: %t; version %d", judged, o.version)
			}
		})
	}
}
