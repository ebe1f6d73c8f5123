// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestPath(t *testing.T) {
	both := testSlice("web-1", "10.244.1.11 node1", "10.244.2.12 node2")
	remote := testSlice("web-1", "10.244.2.12 node2", "10.244.3.13 node3", "10.244.3.14 node3")
	ranges := func(list ...string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = list }
	}
	from := func(address string) Origin {
		return Origin{Kind: FromExternal, Address: netip.MustParseAddr(address), Iface: "eth0"}
	}
	for _, c := range []struct {
		name   string
		mods   []func(*corev1.Service)
		slice  *discoveryv1.EndpointSlice
		config func(*Inputs)
		f      Frontend
		o      Origin
		want   string // action, endpoints, masquerade or reason
		why    string // part of Why
		unsure bool
	}{
		{name: "pod to cluster IP", slice: both, f: clusterFrontend, o: aPod, want: "DNAT 11 12 Hairpin"},
		{name: "node to cluster IP", slice: both, f: clusterFrontend, o: aNode, want: "DNAT 11 12 Always"},
		{name: "outside to cluster IP", slice: both, f: clusterFrontend, o: outsider, want: "DNAT 11 12 Always"},
		{
			name: "masqueradeAll", slice: both, f: clusterFrontend, o: aPod,
			config: func(in *Inputs) { in.Config.MasqueradeAll = true }, want: "DNAT 11 12 Always",
		},
		{
			name: "no cluster CIDR", slice: both, f: clusterFrontend, o: aNode,
			config: func(in *Inputs) { in.Config.ClusterCIDRs = nil }, want: "DNAT 11 12 Hairpin",
		},
		{
			name: "unknown configuration", slice: both, f: clusterFrontend, o: aNode,
			config: func(in *Inputs) { in.Config = kubeproxy.DefaultConfig() }, want: "DNAT 11 12 ",
		},
		{
			name: "no endpoints", slice: testSlice("web-1"), f: clusterFrontend, o: aPod, want: "Reject  NoEndpoints",
			why: "no endpoints",
		},
		{
			name: "none ready", slice: testSlice("web-1", "10.244.1.11 node1 not-ready"), f: clusterFrontend, o: aPod,
			want: "Reject  NoEndpoints", why: "its only endpoint is not ready",
		},
		{
			name: "internal policy", mods: []func(*corev1.Service){itpLocal}, slice: both, f: clusterFrontend, o: aPod,
			want: "DNAT 11 Hairpin",
		},
		{
			name: "internal policy, none here", mods: []func(*corev1.Service){itpLocal}, slice: remote,
			f: clusterFrontend, o: aPod,
			want: "Drop  NoLocalEndpoints", why: "usable ones are on node2 (1), node3 (2)",
		},

		{
			name: "NodePort", mods: []func(*corev1.Service){loadBalancer}, slice: both, f: nodeFrontend, o: outsider,
			want: "DNAT 11 12 Always",
		},
		{
			name: "NodePort, no endpoints", mods: []func(*corev1.Service){loadBalancer}, slice: testSlice("web-1"),
			f: nodeFrontend, o: aNode, want: "Reject  NoEndpoints",
		},
		{
			name: "NodePort on loopback", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: remote,
			f: frontend(NodePort, "127.0.0.1", 30080),
			o: Origin{Kind: FromNode, Address: netip.MustParseAddr("127.0.0.1")}, want: "DNAT 12 13 14 Always",
		},
		{
			name: "NodePort on loopback, off", mods: []func(*corev1.Service){loadBalancer}, slice: remote,
			f: frontend(NodePort, "127.0.0.1", 30080),
			o: aNode, config: func(in *Inputs) { in.Config.LocalhostNodePorts = false }, want: "None  NodePortAddress",
		},
		{
			name: "NodePort left out", mods: []func(*corev1.Service){loadBalancer}, slice: both, f: nodeFrontend, o: outsider,
			config: func(in *Inputs) { in.Config.NodePortAddresses = []string{"10.0.0.0/8"} }, want: "None  NodePortAddress",
			why: "10.0.0.0/8 leaves out 192.168.0.1",
		},
		{
			name: "NodePort left out, no endpoints", mods: []func(*corev1.Service){loadBalancer}, slice: testSlice("web-1"),
			f: nodeFrontend, o: outsider,
			config: func(in *Inputs) { in.Config.NodePortAddresses = []string{"10.0.0.0/8"} }, want: "Reject  NoEndpoints",
		},

		{
			name: "external policy, outside", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: both,
			f: nodeFrontend, o: outsider, want: "DNAT 11 Never",
		},
		{
			name: "external policy, pod", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: both, f: nodeFrontend,
			o: aPod, want: "DNAT 11 12 Hairpin",
		},
		{
			name: "external policy, node", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: both,
			f: externalFrontend, o: aNode, want: "DNAT 11 12 Always",
		},
		{
			name: "external policy, none here, outside", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: remote,
			f: vipFrontend, o: outsider, want: "Drop  NoLocalEndpoints",
		},
		{
			name: "external policy, none here, pod", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: remote,
			f: vipFrontend, o: aPod, want: "DNAT 12 13 14 Hairpin",
		},
		{
			name: "external policy, pod, no detector", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: both,
			f: nodeFrontend, o: aPod,
			config: func(in *Inputs) { in.Config.ClusterCIDRs = nil }, want: "DNAT 11 Hairpin",
		},
		{
			name: "external policy, pod, unknown detector", mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: both,
			f: nodeFrontend, o: aPod,
			config: func(in *Inputs) { in.Config = kubeproxy.DefaultConfig() }, want: "DNAT 11 12 Hairpin", unsure: true,
		},
		{
			name: "external policy, pod, unknown detector that decides nothing",
			mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: testSlice("web-1", "10.244.1.11 node1"),
			f: nodeFrontend, o: aPod, config: func(in *Inputs) { in.Config = kubeproxy.DefaultConfig() },
			want: "DNAT 11 Hairpin",
		},
		{
			name: "external policy on ClusterIP Service", mods: []func(*corev1.Service){
				loadBalancer, etpLocal, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
			},
			slice: both, f: externalFrontend, o: outsider, want: "DNAT 11 Never",
		},

		{
			name: "refusal at hooks that the node's packets do not pass", mods: []func(*corev1.Service){loadBalancer},
			slice: testSlice("web-1"), f: vipFrontend, o: aNode,
			want: "None  NoEndpoints", why: "without translation",
		},
		{
			name: "the same with the address bound on the node", mods: []func(*corev1.Service){loadBalancer},
			slice: testSlice("web-1"), f: vipFrontend, o: aNode,
			config: func(in *Inputs) { in.Addresses = append(in.Addresses, vipFrontend.Address) }, want: "Reject  NoEndpoints",
		},
		{
			name: "the same with unknown addresses", mods: []func(*corev1.Service){loadBalancer}, slice: testSlice("web-1"),
			f: vipFrontend, o: aNode,
			config: func(in *Inputs) { in.Addresses = nil }, want: "None  NoEndpoints", unsure: true,
		},

		{
			name: "inside the source ranges", mods: []func(*corev1.Service){loadBalancer, ranges(" 192.0.2.0/28 ")}, slice: both,
			f: vipFrontend, o: outsider, want: "DNAT 11 12 Always",
		},
		{
			name: "outside of them", mods: []func(*corev1.Service){loadBalancer, ranges("192.0.2.0/28")}, slice: both,
			f: vipFrontend, o: from("192.0.2.16"), want: "Drop  SourceRange", why: "192.0.2.0/28",
		},
		{
			name: "ranges of the other family only", mods: []func(*corev1.Service){loadBalancer, ranges("2001:db8::/64")},
			slice: both, f: vipFrontend, o: outsider, want: "DNAT 11 12 Always",
		},
		{
			name: "a range of everything", mods: []func(*corev1.Service){loadBalancer, ranges("10.0.0.0/8", "0.0.0.0/0")},
			slice: both, f: vipFrontend, o: outsider, want: "DNAT 11 12 Always",
		},
		{
			name: "ranges do not hold for NodePorts", mods: []func(*corev1.Service){loadBalancer, ranges("10.0.0.0/8")},
			slice: both, f: nodeFrontend, o: outsider, want: "DNAT 11 12 Always",
		},
		{
			name: "the node's IP within lets the VIP in", mods: []func(*corev1.Service){loadBalancer, ranges("192.168.0.0/24")},
			slice: both, f: vipFrontend,
			o: Origin{Kind: FromNode, Address: vipFrontend.Address}, want: "DNAT 11 12 Always",
		},
		{
			name: "the node's IP outside does not", mods: []func(*corev1.Service){loadBalancer, ranges("192.168.1.0/24")},
			slice: both, f: vipFrontend,
			o: Origin{Kind: FromNode, Address: vipFrontend.Address}, want: "Drop  SourceRange",
		},
		{
			name: "no endpoints go before ranges", mods: []func(*corev1.Service){loadBalancer, ranges("10.0.0.0/8")},
			slice: testSlice("web-1"), f: vipFrontend, o: outsider, want: "Reject  NoEndpoints",
		},
		{
			name: "ranges go before the policy", mods: []func(*corev1.Service){loadBalancer, etpLocal, ranges("10.0.0.0/8")},
			slice: remote, f: vipFrontend, o: outsider, want: "Drop  SourceRange",
		},
		{name: "an external IP that is the load balancer's too has no ranges", mods: []func(*corev1.Service){
			loadBalancer, ranges("10.0.0.0/8"),
			func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} },
		}, slice: both, f: vipFrontend, o: outsider, want: "DNAT 11 12 Always"},

		{
			name: "the same asked for as external IP, with external IPs off", mods: []func(*corev1.Service){
				loadBalancer, ranges("10.0.0.0/8"),
				func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} },
			}, slice: both, f: frontend(ExternalIP, "198.51.100.1", 80), o: outsider,
			config: func(in *Inputs) { in.Config.FeatureGates = map[string]bool{"AllowServiceExternalIPs": false} },
			want:   "Drop  SourceRange",
		},
		{
			name: "a cluster IP that is bound on the node, without endpoints", slice: testSlice("web-1"),
			f: clusterFrontend, o: aPod,
			config: func(in *Inputs) { in.Addresses = append(in.Addresses, clusterFrontend.Address) }, want: "None  NoEndpoints",
		},

		{name: "ipMode Proxy", mods: []func(*corev1.Service){loadBalancer, func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress[0].IPMode = new(corev1.LoadBalancerIPModeProxy)
		}}, slice: both, f: vipFrontend, o: outsider, want: "None  NotForKubeProxy", why: "ipMode is Proxy"},
		{
			name: "external IPs off", mods: []func(*corev1.Service){loadBalancer}, slice: both, f: externalFrontend, o: outsider,
			config: func(in *Inputs) { in.Config.FeatureGates = map[string]bool{"AllowServiceExternalIPs": false} },
			want:   "None  NotForKubeProxy",
		},
		{
			name: "headless", mods: []func(*corev1.Service){func(s *corev1.Service) { s.Spec.ClusterIP = "None" }}, slice: both,
			f: clusterFrontend, o: aPod, want: "None  Headless",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := testInputs(testService(c.mods...), c.slice)
			if c.config != nil {
				c.config(&in)
			}
			p := New(in).Path(c.f, c.o)
			got := string(p.Action) + " " + last(p.Endpoints) + " " + p.Reason
			if p.Action == DNAT {
				got += string(p.Masquerade)
			}
			if got != c.want || !strings.Contains(p.Why, c.why) || (p.Unsure != "") != c.unsure {
				t.Errorf("got %q, want %q; why %q, unsure %q", got, c.want, p.Why, p.Unsure)
			}
		})
	}
}

func TestPathAffinity(t *testing.T) {
	slice := testSlice("web-1", "10.244.1.11 node1")
	for _, c := range []struct {
		timeout *int32
		want    int32
	}{{new(int32(60)), 60}, {nil, 10800}} {
		svc := testService(func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: c.timeout},
			}
		})
		if got := New(testInputs(svc, slice)).Path(clusterFrontend, aPod).AffinitySeconds; got != c.want {
			t.Errorf("got %d, want %d", got, c.want)
		}
	}
}

func TestPathOfOneAddressWithTwoOwners(t *testing.T) {
	slice := testSlice("web-1", "10.244.1.11 node1")
	in := testInputs(testService(loadBalancer), slice)
	other := testService(func(s *corev1.Service) {
		s.Name, s.Spec.ClusterIP, s.Spec.ClusterIPs = "other", "10.96.0.11", []string{"10.96.0.11"}
		s.Spec.ExternalIPs = []string{"198.51.100.7"}
	})
	in.Services = append(in.Services, other)
	n := New(in)
	if p := n.Path(externalFrontend, outsider); !strings.Contains(p.Unsure,
		"Service shop/other claims 198.51.100.7 port 80") {
		t.Errorf("got %+v", p)
	}
	if p := n.Path(vipFrontend, outsider); p.Unsure != "" {
		t.Errorf("got %+v", p)
	}
}
