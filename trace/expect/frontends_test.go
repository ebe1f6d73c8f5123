// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFrontends(t *testing.T) {
	dual := func(s *corev1.Service) {
		s.Spec.ClusterIPs = []string{"fd00:96::a", "10.96.0.10"}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
			Hostname: "lb.example.com",
		},
			corev1.LoadBalancerIngress{IP: "198.51.100.9", IPMode: new(corev1.LoadBalancerIPModeProxy)})
	}
	for _, c := range []struct {
		name   string
		mods   []func(*corev1.Service)
		config func(*Inputs)
		want   string
	}{
		{name: "ClusterIP", want: "ClusterIP 10.96.0.10:80"},
		{
			name: "load balancer", mods: []func(*corev1.Service){loadBalancer},
			want: "ClusterIP 10.96.0.10:80, NodePort 127.0.0.1:30080, NodePort 192.168.0.1:30080, " +
				"ExternalIP 198.51.100.7:80, LoadBalancerIP 198.51.100.1:80",
		},
		{
			name: "dual-stack", mods: []func(*corev1.Service){loadBalancer, dual},
			want: "ClusterIP [fd00:96::a]:80, ClusterIP 10.96.0.10:80, NodePort [fd00::1]:30080, NodePort 127.0.0.1:30080, " +
				"NodePort 192.168.0.1:30080, " +
				"ExternalIP [2001:db8::7]:80, ExternalIP 198.51.100.7:80, LoadBalancerIP 198.51.100.1:80",
		},
		{
			name: "ipMode in 1.29", mods: []func(*corev1.Service){
				loadBalancer, dual, func(s *corev1.Service) { s.Spec.ExternalIPs, s.Spec.Ports[0].NodePort = nil, 0 },
			},
			config: func(in *Inputs) { in.Config.Version = "v1.29.3" },
			want: "ClusterIP [fd00:96::a]:80, ClusterIP 10.96.0.10:80, LoadBalancerIP 198.51.100.1:80, " +
				"LoadBalancerIP 198.51.100.9:80",
		},
		{
			name: "addresses not collected", mods: []func(*corev1.Service){
				loadBalancer, func(s *corev1.Service) { s.Spec.ExternalIPs, s.Status = nil, corev1.ServiceStatus{} },
			},
			config: func(in *Inputs) { in.Addresses = nil },
			want:   "ClusterIP 10.96.0.10:80, NodePort 127.0.0.1:30080, NodePort 192.168.0.1:30080",
		},
		{
			name: "neither addresses nor Node", mods: []func(*corev1.Service){
				loadBalancer, func(s *corev1.Service) { s.Spec.ExternalIPs, s.Status = nil, corev1.ServiceStatus{} },
			},
			config: func(in *Inputs) { in.Addresses, in.Node = nil, nil },
			want:   "ClusterIP 10.96.0.10:80, NodePort 127.0.0.1:30080",
		},
		{name: "headless", mods: []func(*corev1.Service){func(s *corev1.Service) { s.Spec.ClusterIP = "None" }}},
		{
			name: "other proxy", mods: []func(*corev1.Service){
				func(s *corev1.Service) { s.Labels = map[string]string{labelServiceProxyName: "x"} },
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := testInputs(testService(c.mods...))
			if c.config != nil {
				c.config(&in)
			}
			var got []string
			for _, f := range New(in).Frontends(in.Services[0]) {
				got = append(got, string(f.Kind)+" "+netip.AddrPortFrom(f.Address, f.Port).String())
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), c.want)
			}
		})
	}
}

func TestIgnored(t *testing.T) {
	for _, c := range []struct {
		mod    func(*corev1.Service)
		reason string
	}{
		{func(*corev1.Service) {}, ""},
		{func(s *corev1.Service) { s.Spec.ClusterIP = "None" }, ReasonHeadless},
		{func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "x.example"
		}, ReasonExternalName},
		{func(s *corev1.Service) { s.Labels = map[string]string{labelServiceProxyName: "cilium"} }, ReasonNotForKubeProxy},
		// since 1.36: only its slices are hidden
		{func(s *corev1.Service) { s.Labels = map[string]string{labelHeadless: ""} }, ""},
		{func(s *corev1.Service) { s.Spec.ClusterIP = "" }, ReasonNotForKubeProxy},
		{func(s *corev1.Service) { s.Spec.Ports = nil }, ReasonNotForKubeProxy},
	} {
		svc := testService(c.mod)
		if reason, why := New(testInputs(svc)).Ignored(svc); reason != c.reason || (why == "") != (reason == "") {
			t.Errorf("got %q (%s), want %q", reason, why, c.reason)
		}
	}
}

func TestHeadlessLabelHidesTheServiceUntil135(t *testing.T) {
	svc := testService(func(s *corev1.Service) { s.Labels = map[string]string{labelHeadless: ""} })
	for version, want := range map[string]string{"v1.35.4": ReasonNotForKubeProxy, "v1.36.1": ""} {
		in := testInputs(svc)
		in.Config.Version = version
		if reason, _ := New(in).Ignored(svc); reason != want {
			t.Errorf("%s: %q, want %q", version, reason, want)
		}
	}
}
