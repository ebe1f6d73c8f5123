// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestParseReference(t *testing.T) {
	addr := netip.MustParseAddr
	tests := []struct {
		in   string
		want Reference
	}{
		{"web", Reference{Name: "web", Host: "web"}},
		{" web ", Reference{Name: "web", Host: "web"}},
		{"svc/web", Reference{Kind: KindService, Name: "web"}},
		{"Service/web", Reference{Kind: KindService, Name: "web"}},
		{"endpoints/web", Reference{Kind: KindService, Name: "web"}},
		{"web:80", Reference{Name: "web", Host: "web", Port: "80"}},
		{"web:080", Reference{Name: "web", Host: "web", Port: "80"}},
		{"web:80/", Reference{Name: "web", Host: "web", Port: "80"}},
		{"svc/web:http", Reference{Kind: KindService, Name: "web", Port: "http"}},
		{"dns:53/udp", Reference{Name: "dns", Host: "dns", Port: "53", Protocol: "UDP"}},
		{"svc/dns:53/TCP", Reference{Kind: KindService, Name: "dns", Port: "53", Protocol: "TCP"}},
		{"7seven", Reference{Name: "7seven", Host: "7seven"}},
		{"30080", Reference{Name: "30080", Host: "30080"}},
		{":30080", Reference{Port: "30080"}},
		{"shop/web", Reference{Namespace: "shop", Name: "web"}},
		{"shop/web:80", Reference{Namespace: "shop", Name: "web", Port: "80"}},
		{"service/shop/web", Reference{Kind: KindService, Namespace: "shop", Name: "web"}},
		{"shop/service/web", Reference{Kind: KindService, Namespace: "shop", Name: "web"}},
		{"/api/v1/namespaces/shop/services/web", Reference{Kind: KindService, Namespace: "shop", Name: "web"}},
		{"deployment.apps/web", Reference{Kind: KindDeployment, Name: "web"}},
		{"pod/web-0", Reference{Kind: KindPod, Name: "web-0"}},
		{"pods/shop/web-0:80", Reference{Kind: KindPod, Namespace: "shop", Name: "web-0", Port: "80"}},
		{"endpointslice.discovery.k8s.io/web-x7k2p", Reference{Kind: KindEndpointSlice, Name: "web-x7k2p"}},
		{"node/worker-2:30080", Reference{Kind: KindNode, Host: "worker-2", Port: "30080"}},
		{"web.shop", Reference{Name: "web", Namespace: "shop", Host: "web.shop"}},
		{"Web.Shop.", Reference{Name: "web", Namespace: "shop", Host: "web.shop"}},
		{"web.shop.svc", Reference{Name: "web", Namespace: "shop"}},
		{"web.shop.svc.cluster.local:80", Reference{Name: "web", Namespace: "shop", Port: "80"}},
		{"web.shop.svc.example.test.", Reference{Name: "web", Namespace: "shop"}},
		{"svc/web.shop", Reference{Kind: KindService, Name: "web", Namespace: "shop"}},
		{"web-0.web.shop.svc.cluster.local", Reference{Name: "web", Namespace: "shop", Pod: "web-0"}},
		{"_http._tcp.web.shop.svc.cluster.local", Reference{Name: "web", Namespace: "shop", Port: "http", Protocol: "TCP"}},
		{"10-244-1-15.shop.pod.cluster.local", Reference{Address: addr("10.244.1.15")}},
		{"fd00--1.shop.pod.cluster.local:80", Reference{Address: addr("fd00::1"), Port: "80"}},
		{"ip-10-0-0-1.example.test:30080", Reference{Host: "ip-10-0-0-1.example.test", Port: "30080"}},
		{"http://web", Reference{Name: "web", Host: "web", Port: "80", Protocol: "TCP", Scheme: "http"}},
		{
			"https://web.shop/login?next=/",
			Reference{Name: "web", Namespace: "shop", Host: "web.shop", Port: "443", Protocol: "TCP", Scheme: "https"},
		},
		{
			"http://web.shop:8080/path",
			Reference{Name: "web", Namespace: "shop", Host: "web.shop", Port: "8080", Protocol: "TCP"},
		},
		{"postgres://db.shop", Reference{Name: "db", Namespace: "shop", Host: "db.shop", Protocol: "TCP"}},
		{"mongodb+srv://db.shop", Reference{Name: "db", Namespace: "shop", Host: "db.shop", Protocol: "TCP"}},
		{"jdbc:mysql://db.shop/x", Reference{Name: "db", Namespace: "shop", Host: "db.shop", Protocol: "TCP"}},
		{"unknown://db.shop", Reference{Name: "db", Namespace: "shop", Host: "db.shop"}},
		{"http://10.96.0.1:8080/", Reference{Address: addr("10.96.0.1"), Port: "8080", Protocol: "TCP"}},
		{"udp://10.96.0.10:53", Reference{Address: addr("10.96.0.10"), Port: "53", Protocol: "UDP"}},
		{"udp6://[fd00::1]:53", Reference{Address: addr("fd00::1"), Port: "53", Protocol: "UDP"}},
		{"SCTP://10.96.0.10", Reference{Address: addr("10.96.0.10"), Protocol: "SCTP"}},
		{"quic://web.shop:443", Reference{Name: "web", Namespace: "shop", Host: "web.shop", Port: "443", Protocol: "UDP"}},
		{"kube-svc-67nzlrhbndsawjro", Reference{Chain: "KUBE-SVC-67NZLRHBNDSAWJRO"}},
		{"service-ulmva6xw-shop/web/tcp/http", Reference{Chain: "service-ULMVA6XW-shop/web/tcp/http"}},
		{"service-ulmva6xw", Reference{Name: "service-ulmva6xw", Host: "service-ulmva6xw"}},
		{"localhost", Reference{Address: addr("127.0.0.1")}},
		{"http://[fd00::1]/", Reference{Address: addr("fd00::1"), Port: "80", Protocol: "TCP", Scheme: "http"}},
		{"localhost:30080", Reference{Address: addr("127.0.0.1"), Port: "30080"}},
		{"KUBE-SVC-67NZLRHBNDSAWJRO", Reference{Chain: "KUBE-SVC-67NZLRHBNDSAWJRO"}},
		{"service-ULMVA6XW-shop/web/tcp/http", Reference{Chain: "service-ULMVA6XW-shop/web/tcp/http"}},
		{"10.96.0.1", Reference{Address: addr("10.96.0.1")}},
		{"10.96.0.1:443", Reference{Address: addr("10.96.0.1"), Port: "443"}},
		{"10.96.0.1:https", Reference{Address: addr("10.96.0.1"), Port: "https"}},
		{"10.96.0.10:53/udp", Reference{Address: addr("10.96.0.10"), Port: "53", Protocol: "UDP"}},
		{"::ffff:10.96.0.1", Reference{Address: addr("10.96.0.1")}},
		{"fd00::1", Reference{Address: addr("fd00::1")}},
		{"fd00::1:80", Reference{Address: addr("fd00::1:80")}},
		{"[fd00::1]", Reference{Address: addr("fd00::1")}},
		{"[fd00::1]:80", Reference{Address: addr("fd00::1"), Port: "80"}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseReference(tt.in)
			tt.want.Input = got.Input
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseReferenceErrors(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "names no Service: give a Service as NAME"},
		{"svc/", "names no Service"},
		{":http", "names no Service"},
		{"a/b/c", "a kind may be service, node, endpointslice, pod, deployment"},
		{"a/b/c/d", "is not a Service"},
		{"ingress.networking.k8s.io/web", "is not a kind that leads to a Service"},
		{"deploy/", "names no Service"},
		{"pod/Web", "names are written in lower case, pod/web"},
		{"node/-", "is not a valid name of a node"},
		{"Shop/web", "names are written in lower case, shop/web"},
		{"web:80:30080/TCP", "give the port, 80, or the NodePort alone"},
		{"KUBE-SERVICES", "belongs to no single Service"},
		{"10.96.0.1/24", "is a range of addresses"},
		{"web:", "ends in a colon"},
		{"web:0", "has port 0: a port is a number from 1 to 65535"},
		{"web:65536", "has port 65536"},
		{"web:-1", "has port -1"},
		{"web:80:80", `has port "80:80"`},
		{"Web:HTTP", "names are written in lower case, web:http"},
		{"KUBE-SVC-", "belongs to no single Service"},
		{"web:80/icmp", "may be followed by /tcp, /udp or /sctp"},
		{"web:80/healthz", "leave out a path"},
		{"Web", "names are written in lower case, web"},
		{"we_b", "is not a Service name"},
		{"a.b.web.shop.svc", "is not a Service name"},
		{"a_b.shop", "is not a Service name"},
		{"10.96.0.256", "is not a Service name"},
		{"10.96.0.1:99999", "has port 99999"},
		{"fe80::1%eth0", "has a zone"},
		{"dial udp 10.96.0.10:53: i/o timeout", "is more than one name or address: give a Service as NAME"},
		{"nc -zvu 10.96.0.10 53", "is more than one name or address: give a Service as NAME"},
		{"64 bytes from 10.96.0.10: icmp_seq=1", "is more than one name or address: give a Service as NAME"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseReference(tt.in)
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `"`+tt.in+`"`) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q and the input", err, tt.want)
			}
		})
	}
}

// A URL may hold a password, which no message repeats.
func TestURLWithPassword(t *testing.T) {
	for _, in := range []string{
		"http://me:secret@web.shop/", "http://me:secret@we b/", "http://me:secret@/", "x://me:secret@WEB_/",
	} {
		ref, err := ParseReference(in)
		if text := fmt.Sprint(ref, err); strings.Contains(text, "secret") {
			t.Errorf("%s: got %s", in, text)
		}
	}
}
