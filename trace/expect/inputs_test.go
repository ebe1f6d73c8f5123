// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The world of the tests: node1 in zone-a with addresses of both families, a pod network, and one Service.

func testConfig() kubeproxy.Config {
	c := kubeproxy.DefaultConfig()
	c.Source = "test"
	c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}
	return c
}

func testNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "node1"},
			{Type: corev1.NodeInternalIP, Address: "192.168.0.1"},
			{Type: corev1.NodeInternalIP, Address: "fd00::1"},
			{Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
		}},
	}
}

func addrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, s := range list {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

func testInputs(svc *corev1.Service, slices ...*discoveryv1.EndpointSlice) Inputs {
	return Inputs{
		Services: []*corev1.Service{svc}, Slices: slices, Node: testNode(), NodeName: "node1", Config: testConfig(),
		Addresses: addrs("127.0.0.1", "::1", "192.168.0.1", "fd00::1", "10.244.1.1"),
	}
}

func testService(mods ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, m := range mods {
		m(s)
	}
	return s
}

func loadBalancer(s *corev1.Service) {
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.Ports[0].NodePort = 30080
	s.Spec.ExternalIPs = []string{"198.51.100.7", "2001:db8::7"}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
}

func etpLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func itpLocal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

// testSlice makes an EndpointSlice of port 8080 from a line for each endpoint: address, node, then any of not-ready,
// serving, terminating, zone=, for-node=.
func testSlice(name string, lines ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)},
		},
	}
	for _, line := range lines {
		words := strings.Fields(line)
		e := discoveryv1.Endpoint{Addresses: []string{words[0]}, NodeName: &words[1]}
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "not-ready":
				e.Conditions.Ready = new(false)
				e.Conditions.Serving = new(false)
			case "serving":
				e.Conditions.Serving = new(true)
			case "terminating":
				e.Conditions.Terminating = new(true)
			case "zone", "for-node":
				if e.Hints == nil {
					e.Hints = &discoveryv1.EndpointHints{}
				}
				if key == "zone" {
					e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: value})
				} else {
					e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: value})
				}
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

var (
	aPod     = Origin{Kind: FromPod, Address: netip.MustParseAddr("10.244.1.99"), Iface: "veth1"}
	aNode    = Origin{Kind: FromNode, Address: netip.MustParseAddr("192.168.0.1")}
	outsider = Origin{Kind: FromExternal, Address: netip.MustParseAddr("192.0.2.5"), Iface: "eth0"}
)

func frontend(kind FrontendKind, address string, port uint16) Frontend {
	return Frontend{
		Service: types.NamespacedName{Namespace: "shop", Name: "web"}, PortName: "http", Kind: kind,
		Address: netip.MustParseAddr(address), Port: port, Protocol: corev1.ProtocolTCP,
	}
}

var (
	clusterFrontend  = frontend(ClusterIP, "10.96.0.10", 80)
	nodeFrontend     = frontend(NodePort, "192.168.0.1", 30080)
	externalFrontend = frontend(ExternalIP, "198.51.100.7", 80)
	vipFrontend      = frontend(LoadBalancerIP, "198.51.100.1", 80)
)

// last returns the last parts of the endpoints' addresses, "11 12".
func last(eps []Endpoint) string {
	var out []string
	for _, e := range eps {
		a := e.Address.Addr().As4()
		out = append(out, strconv.Itoa(int(a[3])))
	}
	return strings.Join(out, " ")
}

func BenchmarkAll(b *testing.B) {
	in := scale(5000)
	for b.Loop() {
		n := New(in)
		for _, svc := range in.Services {
			for _, f := range n.Frontends(svc) {
				for _, o := range []Origin{aPod, aNode} {
					if p := n.Path(f, o); p.Action != DNAT {
						b.Fatal(p)
					}
				}
			}
		}
	}
}

func scale(services int) Inputs {
	var in Inputs
	for i := range services {
		name := "svc-" + strconv.Itoa(i)
		s := testService(func(s *corev1.Service) {
			s.Name = name
			s.Spec.ClusterIP = "10.96." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250)
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
			if i%10 == 0 {
				s.Spec.Type = corev1.ServiceTypeNodePort
				s.Spec.Ports[0].NodePort = int32(30000 + i/10)
			}
		})
		var lines []string
		for j := range 4 {
			lines = append(lines, "10.244."+strconv.Itoa(j)+"."+strconv.Itoa(i%250)+" node"+strconv.Itoa(j))
		}
		slice := testSlice(name+"-abcde", lines...)
		slice.Labels[discoveryv1.LabelServiceName] = name
		in.Services, in.Slices = append(in.Services, s), append(in.Slices, slice)
	}
	base := testInputs(testService())
	in.Node, in.NodeName, in.Config, in.Addresses = base.Node, base.NodeName, base.Config, base.Addresses
	return in
}
