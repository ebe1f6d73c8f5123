// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// answersText has a line for each answer: its Service, the action, the last bytes of the endpoints, and when the source
// is translated.
func answersText(all []Path) []string {
	var out []string
	for i := range all {
		p := &all[i]
		line := p.Frontend.Service.Name + " " + string(p.Action)
		for _, e := range p.Endpoints {
			line += " " + fmt.Sprint(e.Address.Addr().As4()[3])
		}
		out = append(out, strings.TrimSpace(line+" "+string(p.Masquerade)))
		if p.Unsure != "" {
			out = append(out, "unsure: "+p.Unsure)
		}
	}
	slices.Sort(out)
	return out
}

func TestEachAnswerOfDuplicatesIsAllowedAndNoOther(t *testing.T) {
	const other = "10.244.1.12 node1"
	for _, c := range []struct {
		name    string
		version string
		change  func(svc *corev1.Service)
		slices  []*discoveryv1.EndpointSlice
		want    []string
	}{
		{
			"one entry", "v1.37.1", nil,
			[]*discoveryv1.EndpointSlice{testSlice("a", "10.244.1.11 node1", other)},
			[]string{"web DNAT 11 12 Hairpin"},
		},
		{
			"ready in one slice, not ready in another", "v1.37.1", nil,
			[]*discoveryv1.EndpointSlice{
				testSlice("a", "10.244.1.11 node1", other), testSlice("b", "10.244.1.11 node1 not-ready"),
			},
			[]string{"web DNAT 11 12 Hairpin", "web DNAT 12 Hairpin"},
		},
		{
			"the running one replaces the terminating one", "v1.37.1", nil,
			[]*discoveryv1.EndpointSlice{
				testSlice("a", "10.244.1.11 node1", other), testSlice("b", "10.244.1.11 node1 not-ready terminating"),
			},
			[]string{"web DNAT 11 12 Hairpin"},
		},
		{
			"within one slice the last one counts", "v1.37.1", nil,
			[]*discoveryv1.EndpointSlice{testSlice("a", "10.244.1.11 node1", other, "10.244.1.11 node1 not-ready")},
			[]string{"web DNAT 12 Hairpin"},
		},
		{
			"within one slice the first one counted, unless a later one is local", "v1.31.0", nil,
			[]*discoveryv1.EndpointSlice{testSlice("a", "10.244.1.11 node2", other, "10.244.1.11 node2 not-ready")},
			[]string{"web DNAT 11 12 Hairpin"},
		},
		{
			"of a version that may have either rule", "v1.34.2", nil,
			[]*discoveryv1.EndpointSlice{testSlice("a", "10.244.1.11 node2", other, "10.244.1.11 node2 not-ready")},
			[]string{"web DNAT 11 12 Hairpin", "web DNAT 12 Hairpin"},
		},
		{
			"local in one slice and on another node in the other", "v1.37.1",
			func(svc *corev1.Service) {
				svc.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
			},
			[]*discoveryv1.EndpointSlice{testSlice("a", "10.244.1.11 node1"), testSlice("b", "10.244.1.11 node2")},
			[]string{"web DNAT 11 Hairpin", "web Drop"},
		},
		{
			"two addresses follow one order of the slices", "v1.37.1", nil,
			[]*discoveryv1.EndpointSlice{
				testSlice("a", "10.244.1.11 node1", "10.244.1.13 node1 not-ready", other),
				testSlice("b", "10.244.1.11 node1 not-ready", "10.244.1.13 node1"),
			},
			[]string{"web DNAT 11 12 Hairpin", "web DNAT 12 13 Hairpin"},
		},
		{
			"conditions that decide nothing", "v1.37.1", nil,
			[]*discoveryv1.EndpointSlice{
				testSlice("a", "10.244.1.11 node1 not-ready terminating", other),
				testSlice("b", "10.244.1.11 node1 not-ready"),
			},
			[]string{"web DNAT 12 Hairpin"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := testService()
			if c.change != nil {
				c.change(svc)
			}
			in := testInputs(svc, c.slices...)
			in.Config.Version = c.version
			got := answersText(New(in).Answers(clusterFrontend, aPod, netip.AddrPort{}))
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEntriesInTooManySlicesAreNotTried(t *testing.T) {
	var list []*discoveryv1.EndpointSlice
	for i := range maxOrderedSlices + 1 {
		list = append(list, testSlice(string(rune('a'+i)), []string{"10.244.1.11 node1", "10.244.1.11 node1 not-ready"}[i%2]))
	}
	in := testInputs(testService(), list...)
	in.Config.Version = "v1.37.1"
	if got := New(in).Answers(clusterFrontend, aPod, netip.AddrPort{}); len(got) != 1 || got[0].Unsure == "" {
		t.Errorf("got %q", answersText(got))
	}
}

// twoServices are Service shop/web, and Service shop/api with the endpoint 21, changed by f.
func twoServices(f func(web, api *corev1.Service)) Inputs {
	web, api := testService(), testService()
	api.Name, api.Spec.ClusterIP, api.Spec.ClusterIPs = "api", "10.96.0.99", []string{"10.96.0.99"}
	for i := range api.Spec.Ports {
		api.Spec.Ports[i].NodePort = 0
	}
	api.Spec.ExternalIPs, api.Status.LoadBalancer.Ingress = nil, nil
	f(web, api)
	other := testSlice("api", "10.244.2.21 node2")
	other.Labels[discoveryv1.LabelServiceName] = "api"
	in := testInputs(web, testSlice("web", "10.244.1.11 node1"), other)
	in.Services = append(in.Services, api)
	return in
}

func TestEachServiceOfASharedFrontendMayAnswer(t *testing.T) {
	a := netip.MustParseAddr("198.51.100.1")
	for _, c := range []struct {
		name   string
		mode   string
		kind   FrontendKind
		at     netip.Addr
		port   uint16
		change func(web, api *corev1.Service)
		want   []string
	}{
		{
			"an external IP", "", ExternalIP, a, 80,
			func(web, api *corev1.Service) {
				web.Spec.ExternalIPs, api.Spec.ExternalIPs = []string{a.String()}, []string{a.String()}
			},
			[]string{"api DNAT 21 Always", "web DNAT 11 Always"},
		},
		{
			"another port of the same address", "", ExternalIP, a, 80,
			func(web, api *corev1.Service) {
				web.Spec.ExternalIPs, api.Spec.ExternalIPs = []string{a.String()}, []string{a.String()}
				api.Spec.Ports[0].Port = 81
			},
			[]string{"web DNAT 11 Always"},
		},
		{
			"another protocol", "", ExternalIP, a, 80,
			func(web, api *corev1.Service) {
				web.Spec.ExternalIPs, api.Spec.ExternalIPs = []string{a.String()}, []string{a.String()}
				api.Spec.Ports[0].Protocol = corev1.ProtocolUDP
			},
			[]string{"web DNAT 11 Always"},
		},
		{
			"a Service that kube-proxy leaves alone", "", ExternalIP, a, 80,
			func(web, api *corev1.Service) {
				web.Spec.ExternalIPs, api.Spec.ExternalIPs = []string{a.String()}, []string{a.String()}
				api.Labels = map[string]string{labelServiceProxyName: "other"}
			},
			[]string{"web DNAT 11 Always"},
		},
		{
			"an external IP of one, the load-balancer IP of the other", "", ExternalIP, a, 80,
			func(web, api *corev1.Service) {
				web.Spec.ExternalIPs = []string{a.String()}
				api.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: a.String()}}
			},
			[]string{"api DNAT 21 Always", "web DNAT 11 Always"},
		},
		{
			"a cluster IP twice", "", ClusterIP, clusterFrontend.Address, 80,
			func(web, api *corev1.Service) {
				api.Spec.ClusterIP, api.Spec.ClusterIPs = web.Spec.ClusterIP, web.Spec.ClusterIPs
			},
			[]string{"api DNAT 21 Always", "web DNAT 11 Always"},
		},
		{
			"a NodePort twice", "", NodePort, netip.MustParseAddr("192.168.0.11"), 30080,
			func(web, api *corev1.Service) {
				web.Spec.Type, api.Spec.Type = corev1.ServiceTypeNodePort, corev1.ServiceTypeNodePort
				web.Spec.Ports[0].NodePort, api.Spec.Ports[0].NodePort = 30080, 30080
			},
			[]string{"api DNAT 21 Always", "web DNAT 11 Always"},
		},
		{
			"a NodePort whose number and address are an external IP of another", "", NodePort,
			netip.MustParseAddr("192.168.0.11"), 30080,
			func(web, api *corev1.Service) {
				web.Spec.Type, web.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
				api.Spec.ExternalIPs, api.Spec.Ports[0].Port = []string{"192.168.0.11"}, 30080
			},
			[]string{"api DNAT 21 Always"},
		},
		{
			"the other answers differ by the masquerade set that both share in ipvs mode", kubeproxy.IPVS, ExternalIP, a, 80,
			func(web, api *corev1.Service) {
				web.Spec.ExternalIPs, api.Spec.ExternalIPs = []string{a.String()}, []string{a.String()}
				web.Spec.Type, web.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort,
					corev1.ServiceExternalTrafficPolicyLocal
			},
			[]string{"api DNAT 21 Always", "web DNAT 11 Always", "web DNAT 11 Hairpin"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := twoServices(c.change)
			in.Config.Mode = c.mode
			in.Addresses = []netip.Addr{netip.MustParseAddr("192.168.0.11")}
			f := clusterFrontend
			f.Kind, f.Address, f.Port = c.kind, c.at, c.port
			if got := answersText(New(in).Answers(f, outsider, netip.AddrPort{})); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
