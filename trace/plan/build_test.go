// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// world is a node n1 with a Service shop/web that has an endpoint there and one elsewhere.
func world(change func(*corev1.Service, *discoveryv1.EndpointSlice)) (*expect.Node, *corev1.Service) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
		},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)},
		},
		Endpoints: []discoveryv1.Endpoint{
			{
				Addresses: []string{"10.244.1.1"}, NodeName: new("n1"), Conditions: discoveryv1.EndpointConditions{
					Ready: new(true),
				},
			},
			{
				Addresses: []string{"10.244.2.2"}, NodeName: new("n2"), Conditions: discoveryv1.EndpointConditions{
					Ready: new(true),
				},
			},
		},
	}
	if change != nil {
		change(svc, slice)
	}
	n := expect.New(expect.Inputs{
		Services: []*corev1.Service{svc}, Slices: []*discoveryv1.EndpointSlice{slice}, NodeName: "n1",
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}},
		}},
		Config: kubeproxy.Config{
			Source: "configz.json", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, MasqueradeBit: 14,
			LocalhostNodePorts: true, Version: "v1.36.0",
		},
		Addresses: []netip.Addr{
			netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("10.244.1.254"), netip.MustParseAddr("127.0.0.1"),
		},
	})
	return n, svc
}

func ends(w *Destination) string {
	var out []string
	if w == nil {
		return "-"
	}
	for _, e := range w.Endpoints {
		out = append(out, e.Addr().String())
	}
	if w.Masquerade {
		out = append(out, "masq")
	}
	return strings.Join(out, " ")
}

func TestFor(t *testing.T) {
	n, svc := world(func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	p, left, err := For(n, Request{
		Services: []*corev1.Service{svc}, Mark: n.MasqueradeMark(), NoLoopback: NoLoopbackRoute,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range p.Frontends {
		f := &p.Frontends[i]
		got = append(got, strings.Join([]string{
			f.Address.String(), ends(f.ForPods), ends(&f.ForNode), ends(&f.ForOthers),
		}, " | "))
	}
	const both = "10.244.1.1 10.244.2.2"
	want := []string{
		"10.96.0.10:80 | " + both + " | " + both + " masq | " + both + " masq",
		// NodePorts are served at every address of the node; pods of it and itself are not held to the policy.
		"10.244.1.254:30080 | " + both + " | " + both + " masq | 10.244.1.1",
		"192.0.2.10:30080 | " + both + " | " + both + " masq | 10.244.1.1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if p.Mark != 0x4000 || len(left) != 1 ||
		!strings.Contains(left[0], "NodePort 127.0.0.1:30080/TCP: the kernel lets no packet out that has a loopback source") {
		t.Errorf("mark 0x%x, left out %q", p.Mark, left)
	}
	again, _, err := For(n, Request{Services: []*corev1.Service{svc}, Mark: n.MasqueradeMark()})
	if err != nil || again.Name == p.Name || len(again.Frontends) != 4 {
		t.Errorf("with route_localnet: %+v %v", again, err)
	}
}

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Service, *discoveryv1.EndpointSlice)
		want   string
	}{
		"no endpoints": {
			func(_ *corev1.Service, s *discoveryv1.EndpointSlice) { s.Endpoints = nil }, "the Service port has no endpoints",
		},
		"none is ready": {func(_ *corev1.Service, s *discoveryv1.EndpointSlice) {
			for i := range s.Endpoints {
				s.Endpoints[i].Conditions.Ready = new(false)
			}
		}, "none of 2 endpoints is ready"},
		"headless": {
			func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) { svc.Spec.ClusterIP = corev1.ClusterIPNone },
			"it is headless",
		},
		"another proxy's": {func(svc *corev1.Service, _ *discoveryv1.EndpointSlice) {
			svc.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "x"}
		}, "leaves it to another proxy"},
	} {
		n, svc := world(tt.change)
		_, _, err := For(n, Request{Services: []*corev1.Service{svc}, Mark: 0x4000})
		var refusal RefusalError
		if !errors.As(err, &refusal) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
	n, svc := world(nil)
	if _, _, err := For(n, Request{
		Services: []*corev1.Service{svc}, Mark: 0x4000,
		Select: func(expect.Frontend) bool { return false },
	}); err == nil ||
		!strings.Contains(err.Error(), "has no frontend on this node that was asked for") {
		t.Errorf("nothing selected: %v", err)
	}
}
