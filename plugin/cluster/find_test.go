// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

func port(name string, number int32, p corev1.Protocol, nodePort int32) corev1.ServicePort {
	return corev1.ServicePort{
		Name: name, Port: number, Protocol: p, NodePort: nodePort, TargetPort: intstr.FromInt32(8080),
	}
}

func service(ns, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{"IPv4"},
			Ports: ports,
		},
	}
}

// shop is a small cluster: two nodes, and Services of every kind that a reference can mean.
func shop() *snapshot.Cluster {
	web := service("shop", "web", "10.96.0.1", port("http", 80, "TCP", 30080), port("https", 443, "TCP", 0))
	web.Spec.ClusterIPs = append(web.Spec.ClusterIPs, "fd00::1")
	web.Spec.IPFamilies = append(web.Spec.IPFamilies, "IPv6")
	web.Spec.ExternalIPs = []string{"192.0.2.1"}
	api := service("shop", "api", "10.96.0.2", port("", 8443, "TCP", 30443))
	api.Spec.ExternalIPs = []string{"192.0.2.1"}
	lb := service("infra", "lb", "10.96.0.3", port("", 80, "TCP", 30081))
	lb.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}, {Hostname: "lb.example.test"}}
	lb2 := service("infra", "lb2", "10.96.0.4", port("", 80, "TCP", 0))
	lb2.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	dns := service("kube-system", "dns", "10.96.0.10", port("dns", 53, "UDP", 0), port("dns-tcp", 53, "TCP", 0))
	alias := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "alias"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.test"},
	}
	node := func(name, ip string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeInternalIP, Address: ip},
			{Type: corev1.NodeInternalDNS, Address: name + ".example.test"},
		}
		return n
	}
	ready, not := true, false
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
				Addresses: []string{"10.244.1.1"}, NodeName: new("node1"),
				Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			},
			{
				Addresses: []string{"10.244.2.1"}, NodeName: new("node2"),
				Conditions: discoveryv1.EndpointConditions{Ready: &not, Serving: &not},
			},
		},
	}
	web.Spec.Selector, api.Spec.Selector = map[string]string{"app": "web"}, map[string]string{"tier": "back"}
	pod := func(name, owner, ownerName string, labels ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{}}}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: ownerName}}
		for i := 0; i < len(labels); i += 2 {
			p.Labels[labels[i]] = labels[i+1]
		}
		return p
	}
	return &snapshot.Cluster{
		Pods: []*corev1.Pod{
			pod("web-7d4f-x2x2x", "ReplicaSet", "web-7d4f", "app", "web", "pod-template-hash", "7d4f"),
			pod("both-1", "DaemonSet", "both", "app", "web", "tier", "back"),
			pod("lonely", "Job", "lonely", "app", "lonely"),
		},
		Services: []*corev1.Service{
			web, api, lb, lb2, dns, alias, service("infra", "web", "10.96.0.5", port("", 80, "TCP", 0)),
		},
		EndpointSlices: []*discoveryv1.EndpointSlice{slice},
		Nodes:          []*corev1.Node{node("node1", "172.16.0.1"), node("node2", "172.16.0.2")},
	}
}

// describe says what a target is: service, ports, address, NodePort, node.
func describe(t *Target) string {
	var ports []string
	for i := range t.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", t.Ports[i].Port, t.Ports[i].Protocol))
	}
	s := t.Name().String() + " [" + strings.Join(ports, " ") + "]"
	if t.Address.IsValid() {
		s += " at " + t.Address.String()
	}
	if t.NodePort != 0 {
		s += fmt.Sprintf(" NodePort %d on %q", t.NodePort, t.Node)
	}
	return s
}

func TestFind(t *testing.T) {
	tests := []struct{ in, want string }{
		{"web", "shop/web []"},
		{"web:80", "shop/web [80/TCP]"},
		{"web:https", "shop/web [443/TCP]"},
		{"alias", "shop/alias []"},
		{"10.96.0.1", "shop/web [] at 10.96.0.1"},
		{"10.96.0.1:http", "shop/web [80/TCP] at 10.96.0.1"},
		{"fd00:0::1", "shop/web [] at fd00::1"},
		{"[fd00::1]:443", "shop/web [443/TCP] at fd00::1"},
		{"10.96.0.10:53", "kube-system/dns [53/UDP 53/TCP] at 10.96.0.10"},
		{"10.96.0.10:53/udp", "kube-system/dns [53/UDP] at 10.96.0.10"},
		{"192.0.2.1:443", "shop/web [443/TCP] at 192.0.2.1"}, // two own it, the port tells
		{"192.0.2.1:8443", "shop/api [8443/TCP] at 192.0.2.1"},
		{"172.16.0.2:30080", `shop/web [80/TCP] at 172.16.0.2 NodePort 30080 on "node2"`},
		{"127.0.0.1:30443", `shop/api [8443/TCP] at 127.0.0.1 NodePort 30443 on ""`},
		{"infra/web", "infra/web []"},
		{"service/infra/web:80", "infra/web [80/TCP]"},
		{"web.infra.svc.cluster.local:80", "infra/web [80/TCP]"},
		{"https://web.shop/path", "shop/web [443/TCP]"},
		{"lb.example.test:80", "infra/lb [80/TCP]"},
		{"node2:30080", `shop/web [80/TCP] NodePort 30080 on "node2"`},
		{"node/node2:30080/tcp", `shop/web [80/TCP] NodePort 30080 on "node2"`},
		{"NODE2.example.test:30080", `shop/web [80/TCP] NodePort 30080 on "node2"`},
		{"30080", `shop/web [80/TCP] NodePort 30080 on ""`},
		{":30080", `shop/web [80/TCP] NodePort 30080 on ""`},
		{"10.244.1.1", "shop/web [80/TCP]"},
		{"10.244.1.1:8080", "shop/web [80/TCP]"},
		{"10-244-1-1.shop.pod.cluster.local", "shop/web [80/TCP]"},
		{"endpointslice.discovery.k8s.io/web-1", "shop/web []"},
		{"pod/web-7d4f-x2x2x", "shop/web []"},
		{"pod/web-7d4f-x2x2x:https", "shop/web [443/TCP]"},
		{"deployment.apps/web", "shop/web []"},
		{"rs/web-7d4f", "shop/web []"},
		{kubeproxy.ChainNames("shop/web:https", "TCP").External, "shop/web [443/TCP]"},
		{kubeproxy.EndpointChain("shop/web:http", "TCP", netip.MustParseAddrPort("10.244.1.1:8080")), "shop/web [80/TCP]"},
		{
			kubeproxy.NFTChainNames(types.NamespacedName{Namespace: "shop", Name: "web"}, "http", "TCP").Cluster,
			"shop/web [80/TCP]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			ref, err := ParseReference(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Find(shop(), "shop", ref)
			if err != nil {
				t.Fatal(err)
			}
			if s := describe(&got); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}
}

func TestFindErrors(t *testing.T) {
	tests := []struct{ in, want string }{
		{"wbe", `service "wbe" not found in namespace "shop"; did you mean web?`},
		{"website", `service "website" not found in namespace "shop"; did you mean web?`},
		{"lb", `service "lb" not found in namespace "shop"; there is one in namespace infra: add -n infra`},
		{"zzzzzz", `service "zzzzzz" not found in namespace "shop", which has alias, api, web`},
		{"web:81", "service shop/web has no port 81: it has http 80/TCP (NodePort 30080), https 443/TCP"},
		{"web:80/udp", "service shop/web has no port 80/UDP: it has http 80/TCP (NodePort 30080), https 443/TCP"},
		{"alias:80", "service shop/alias has no ports at all: give it without :80"},
		{"10.96.0.1:81", "service shop/web has no port 81: it has http 80/TCP (NodePort 30080), https 443/TCP"},
		{
			"192.0.2.1",
			"192.0.2.1 belongs to several Services (shop/web as ExternalIP, shop/api as ExternalIP): give one of them by its " +
				"name",
		},
		{
			"192.0.2.1:99",
			"192.0.2.1 is an address of shop/web as ExternalIP, shop/api as ExternalIP, of which none has port 99",
		},
		{
			"203.0.113.1:80",
			"203.0.113.1:80 belongs to several Services (infra/lb as LoadBalancerIP, infra/lb2 as LoadBalancerIP): give one " +
				"of them by its name",
		},
		{"10.244.1.1:9", "10.244.1.1 is an endpoint, and not with port 9: it has 8080 of service/shop/web"},
		{
			"172.16.0.1",
			"172.16.0.1 is an address of node node1: give it with a NodePort, as 172.16.0.1:30080; --node node1 traces a " +
				"Service there",
		},
		{
			"node1", "node1 is a node: give it with a NodePort, as node1:30080; --node node1 traces a Service there",
		},
		{"node1:31000", "node1 is a node, and no Service has NodePort 31000"},
		{"node/nod1:30080", `there is no node "nod1": there is node1, node2; did you mean node1?`},
		{":31000", "no Service has NodePort 31000"},
		{
			"web:htpp",
			"service shop/web has no port htpp: it has http 80/TCP (NodePort 30080), https 443/TCP; did you mean http?",
		},
		{
			"web:8080",
			"service shop/web has no port 8080: it has http 80/TCP (NodePort 30080), https 443/TCP; 8080 is the target port " +
				"of port 80",
		},
		{
			"web:30080",
			"service shop/web has no port 30080: it has http 80/TCP (NodePort 30080), https 443/TCP; 30080 is the NodePort " +
				"of port 80",
		},
		{
			"web.shpo",
			`service "web" not found in namespace "shpo"; there is one in each of the namespaces infra, shop: add -n`,
		},
		{"a.b.c.d", `"a.b.c.d" is not the name of a Service, of a node or of a load balancer of a Service`},
		{"pod/nope", "there is no pod/nope in namespace shop"},
		{"pod/web-7d4f-x2x2", "there is no pod/web-7d4f-x2x2 in namespace shop; did you mean web-7d4f-x2x2x?"},
		{"pod/lonely", "no Service selects pod/lonely in namespace shop: its labels are app=lonely"},
		{"deploy/nope", "there is no pod of deployment/nope in namespace shop: give the Service's name"},
		{"infra/deploy/web", "there is no deployment/web in namespace infra, but one in namespace shop: add -n shop"},
		{"endpointslice/web-2", "there is no endpointslice/web-2 in namespace shop; did you mean web-1?"},
		{
			"KUBE-SVC-AAAAAAAAAAAAAAAA",
			"KUBE-SVC-AAAAAAAAAAAAAAAA is not a chain of any current Service or endpoint: it may be stale (verify -A lists " +
				"stale chains)",
		},
		{"ds/both", "ds/both leads to several Services (shop/web, shop/api): give one of them"},
		{"172.16.0.1:31000", "172.16.0.1 is an address of node node1, and no Service has NodePort 31000"},
		{
			"198.51.100.1:80",
			"no Service has the address 198.51.100.1 as cluster IP, external IP or load-balancer IP, and no node and no " +
				"endpoint has it; if connections to it are answered, it may be the address of a deleted Service, whose rules " +
				"verify -A finds",
		},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			ref, err := ParseReference(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Find(shop(), "shop", ref)
			if err == nil {
				t.Fatalf("got %s, want an error", describe(&got))
			}
			if err.Error() != tt.want {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

func TestSelects(t *testing.T) {
	front := func(kind expect.FrontendKind, addr string, number uint16, portName string) expect.Frontend {
		f := expect.Frontend{
			PortName: portName, Kind: kind, Address: netip.MustParseAddr(addr), Port: number, Protocol: "TCP",
		}
		f.Service.Namespace, f.Service.Name = "shop", "web"
		return f
	}
	cluster4, cluster6 := front(expect.ClusterIP, "10.96.0.1", 80, "http"), front(expect.ClusterIP, "fd00::1", 80, "http")
	https := front(expect.ClusterIP, "10.96.0.1", 443, "https")
	node1 := front(expect.NodePort, "172.16.0.1", 30080, "http")
	node2 := front(expect.NodePort, "172.16.0.2", 30080, "http")
	loop := front(expect.NodePort, "127.0.0.1", 30080, "http")
	tests := []struct {
		ref, node string
		frontend  expect.Frontend
		want      bool
	}{
		{"web", "node1", cluster4, true},
		{"web", "node1", node1, true},
		{"web:80", "node1", https, false},
		{"web:80", "node1", node1, true}, // the NodePort of that port
		{"10.96.0.1", "node1", cluster4, true},
		{"10.96.0.1", "node1", cluster6, false},
		{"10.96.0.1", "node1", node1, false},
		{"172.16.0.1:30080", "node1", node1, true},
		{"172.16.0.1:30080", "node1", loop, false},
		{"172.16.0.1:30080", "node1", cluster4, false},
		{"172.16.0.1:30080", "node2", node2, true}, // the same NodePort at another node's address
		{"127.0.0.1:30080", "node1", loop, true},
		{"127.0.0.1:30080", "node1", node1, false},
	}
	for _, tt := range tests {
		ref, err := ParseReference(tt.ref)
		if err != nil {
			t.Fatal(err)
		}
		target, err := Find(shop(), "shop", ref)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.Selects(&tt.frontend, tt.node); got != tt.want {
			t.Errorf("%s on %s selects %s %s: %v, want %v", tt.ref, tt.node, tt.frontend.Kind, tt.frontend.Address, got, tt.want)
		}
	}
	other := cluster4
	other.Service.Name = "api"
	if target := (Target{Service: shop().Services[0]}); target.Selects(&other, "node1") {
		t.Error("a frontend of another Service was selected")
	}
}

func TestNotFoundElsewhere(t *testing.T) {
	objects := shop()
	for _, tt := range []struct{ namespace, name, want string }{
		{
			"kube-system", "web",
			`service "web" not found in namespace "kube-system"; there is one in each of the namespaces infra, shop: add -n`,
		},
		{
			"empty", "zzz",
			`service "zzz" not found in namespace "empty", which has no Service at all: is the namespace right (-n)?`,
		},
	} {
		if err := notFound(objects, tt.namespace, Reference{Name: tt.name}); err.Error() != tt.want {
			t.Errorf("got  %s\nwant %s", err, tt.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"web", "web", 0}, {"web", "wbe", 1}, {"web", "wab", 1}, {"web", "webs", 1}, {"", "web", 3}, {"kitten", "sitting", 3},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
