// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

func TestService(t *testing.T) {
	objects := shop()
	svc := objects.Services[0]
	ports := Ports(objects, svc)
	if Type(svc) != corev1.ServiceTypeClusterIP || len(AddressesOf(svc)) != 2 || len(ports) != 2 {
		t.Fatalf("got %s %v %+v", Type(svc), AddressesOf(svc), ports)
	}
	if p := ports[0]; p.Ready != 1 || p.Total != 2 || p.Protocol != corev1.ProtocolTCP || p.NodePort != 30080 {
		t.Errorf("got %+v, want 1 of 2 ready, TCP, NodePort 30080", p)
	}
	if p := ports[1]; p.Total != 0 {
		t.Errorf("https: got %+v, want no endpoint: the slice has only port http", p)
	}
}

// resolve resolves a Service of the cluster after a change to it, and sums the result up.
func resolve(t *testing.T, node string, change func(*corev1.Service)) *Resolution {
	t.Helper()
	objects := shop()
	svc := objects.Services[0]
	if change != nil {
		change(svc)
	}
	in := expect.Inputs{
		Services: objects.Services, Slices: objects.EndpointSlices, Config: kubeproxy.DefaultConfig(), NodeName: node,
	}
	for _, n := range objects.Nodes {
		if n.Name == node {
			in.Node = n
		}
	}
	return Resolve(&Target{Service: svc}, in)
}

func uses(r *Resolution) string {
	var out []string
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		word := "out"
		if e.Used {
			word = "in"
		}
		out = append(out, e.Address.Addr().String()+" "+word+": "+e.Reason)
	}
	return strings.Join(out, "\n")
}

func TestResolve(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	for _, tt := range []struct {
		name, node string
		change     func(*corev1.Service)
		dns, uses  string
	}{
		{
			"cluster", "", nil, "A 10.96.0.1 AAAA fd00::1",
			"10.244.1.1 in: ready\n10.244.2.1 out: not ready",
		},
		{
			"local in the cluster's view", "", func(s *corev1.Service) {
				s.Spec.ExternalIPs = nil
				s.Spec.InternalTrafficPolicy = &local
				s.Spec.Ports[0].NodePort = 0
			},
			"A 10.96.0.1 AAAA fd00::1",
			"10.244.1.1 in: ready, for clients on its own node (policy Local)\n10.244.2.1 out: not ready",
		},
		{
			"local on the other node", "node2", func(s *corev1.Service) {
				s.Spec.ExternalIPs = nil
				s.Spec.InternalTrafficPolicy = &local
				s.Spec.Ports[0].NodePort = 0
			},
			"A 10.96.0.1 AAAA fd00::1",
			"10.244.1.1 out: on node node1, not on node2\n10.244.2.1 out: not ready",
		},
		{
			"headless", "", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
			"A 10.244.1.1",
			"10.244.1.1 in: ready, so DNS returns it\n10.244.2.1 out: not ready, so not in DNS",
		},
		{
			"another proxy's", "",
			func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "x"} },
			"A 10.96.0.1 AAAA fd00::1",
			"10.244.1.1 out: ready, but kube-proxy does not handle this Service\n10.244.2.1 out: not ready",
		},
		{
			"external name", "", func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.test"}
			},
			"CNAME example.test", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := resolve(t, tt.node, tt.change)
			if got := strings.Join(r.DNS.Records, " "); got != tt.dns {
				t.Errorf("DNS: got %s, want %s", got, tt.dns)
			}
			if got := uses(r); got != tt.uses && tt.name != "external name" {
				t.Errorf("got\n%s\nwant\n%s", got, tt.uses)
			}
			if r.DNS.Name != "web.shop.svc.cluster.local" || r.Node != tt.node {
				t.Errorf("got %s %q", r.DNS.Name, r.Node)
			}
		})
	}
}

// A headless Service may have no ports at all.
func TestResolveHeadlessWithoutPorts(t *testing.T) {
	objects := shop()
	svc := service("shop", "peers", "None")
	objects.Services = append(objects.Services, svc)
	objects.EndpointSlices = append(objects.EndpointSlices, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "peers-1", Labels: map[string]string{discoveryv1.LabelServiceName: "peers"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.9"}}},
	})
	r := Resolve(&Target{Service: svc}, expect.Inputs{
		Services: objects.Services, Slices: objects.EndpointSlices, Config: kubeproxy.DefaultConfig(),
	})
	if got := uses(r); got != "10.244.1.9 in: ready, so DNS returns it" {
		t.Errorf("got %q", got)
	}
}

func TestResolveFrontends(t *testing.T) {
	var got []string
	for _, f := range resolve(t, "", nil).Frontends {
		address := ""
		if f.Address.IsValid() {
			address = f.Address.String()
		}
		got = append(got, string(f.Kind)+" "+address)
	}
	want := "ClusterIP 10.96.0.1, ClusterIP fd00::1, ExternalIP 192.0.2.1, ClusterIP 10.96.0.1, ClusterIP fd00::1, " +
		"ExternalIP 192.0.2.1, NodePort "
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
}
