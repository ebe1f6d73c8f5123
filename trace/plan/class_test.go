// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
)

// someFacts are those of a cluster with a node at 192.0.2.10 (and fd00:1::10), and another at 192.0.2.11.
func someFacts() *Facts {
	addrs := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	return &Facts{
		Own: addrs("127.0.0.1", "::1", "192.0.2.10", "fd00:1::10", "10.244.1.1"), OwnKnown: true,
		Bound: addrs("10.96.0.99"), Broadcasts: addrs("192.0.2.255"), Gateways: addrs("192.0.2.1"),
		Resolvers: addrs("192.0.2.53"),
		Ports: []Socket{
			{netip.MustParseAddrPort("[::]:10250"), "TCP"},
			{netip.MustParseAddrPort("0.0.0.0:30022"), "TCP"},
			{netip.MustParseAddrPort("127.0.0.1:30023"), "TCP"},
		},
		ByPod: func(at netip.AddrPort, _ string) bool { return at.Port() == 9100 },
		Nodes: addrs("192.0.2.10", "192.0.2.11", "fd00:1::10"),
		APIServer: []netip.AddrPort{
			netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("192.0.2.11:6443"),
			netip.MustParseAddrPort("203.0.113.250:443"),
		},
		PodNetworks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
		AllPods:     addrs("172.20.0.7"),
		ClusterIPs:  addrs("10.96.0.1", "10.96.0.53"),
		External:    []Socket{{netip.MustParseAddrPort("198.51.100.9:80"), "TCP"}},
		Pods:        addrs("10.244.1.5", "10.244.2.5", "fd00:244::5"),
		HostPods:    addrs("192.0.2.10", "192.0.2.11"),
	}
}

// Every class of a frontend's address, and what is none.
func TestClassesOfFrontends(t *testing.T) {
	const nodePort, external = expect.NodePort, expect.ExternalIP
	for _, tt := range []struct {
		name, at string
		kind     expect.FrontendKind
		want     []Class
	}{
		{"a cluster IP", "10.96.0.10:80", expect.ClusterIP, nil},
		{"an external IP", "198.51.100.20:80", external, nil},
		{"a load balancer's in the node's own network", "192.0.2.77:80", expect.LoadBalancerIP, nil},
		{"an external IP that another Service has, too, at another port", "198.51.100.9:81", external, nil},
		{"class E, which some clouds give to Pods", "240.0.0.5:80", external, nil},
		{"the node", "192.0.2.10:443", external, []Class{OfNode}},
		{"the node, by NAT64", "[64:ff9b::c000:20a]:443", external, []Class{OfNode}},
		{"the node, by 6to4", "[2002:c000:20a::1]:443", external, []Class{OfNode}},
		{"another node", "192.0.2.11:22", external, []Class{OfNode, APIServer}},
		{"the node as a cluster IP", "192.0.2.10:443", expect.ClusterIP, []Class{OfNode}},
		{"the API server's cluster IP", "10.96.0.1:443", external, []Class{APIServer, OfService}},
		{"the API server's balancer", "203.0.113.250:443", external, []Class{APIServer}},
		{"a Pod", "10.244.2.9:80", external, []Class{OfPod}},
		{"a Pod, IPv6", "[fd00:244::9]:80", external, []Class{OfPod}},
		{"a Pod outside of the Pod networks", "172.20.0.7:80", external, []Class{OfPod}},
		{"a Pod, as a cluster IP", "10.244.2.9:80", expect.ClusterIP, []Class{OfPod}},
		{"another Service's cluster IP", "10.96.0.53:9153", external, []Class{OfService}},
		{"another Service's external IP and port", "198.51.100.9:80", external, []Class{OfService}},
		{"a public resolver", "8.8.8.8:53", external, []Class{Resolver}},
		{"a public resolver, IPv6", "[2606:4700:4700::1111]:853", external, []Class{Resolver}},
		{"a public resolver, by NAT64", "[64:ff9b::808:808]:53", external, []Class{Resolver}},
		{"the node's resolver", "192.0.2.53:53", external, []Class{Resolver}},
		{"the node's router", "192.0.2.1:53", external, []Class{Gateway}},
		{"metadata", "169.254.169.254:80", external, []Class{LinkLocal}},
		{"metadata, by NAT64", "[64:ff9b::a9fe:a9fe]:80", external, []Class{LinkLocal}},
		{"metadata, by a local NAT64", "[64:ff9b:1::a9fe:a9fe]:80", external, []Class{LinkLocal}},
		{"metadata of EC2", "[fd00:ec2::254]:80", external, []Class{Metadata}},
		{"metadata of Azure", "168.63.129.16:80", external, []Class{Metadata}},
		{"link-local", "[fe80::1]:80", external, []Class{LinkLocal}},
		{"link-local with a zone", "[fe80::1%eth0]:80", external, []Class{LinkLocal}},
		{"site-local", "[fec0::1]:80", external, []Class{LinkLocal}},
		{"loopback", "127.0.0.53:53", external, []Class{Loopback}},
		{"loopback, IPv6", "[::1]:80", external, []Class{Loopback}},
		{"loopback, mapped", "[::ffff:127.0.0.1]:80", external, []Class{Loopback, Mapped}},
		{"loopback, by NAT64", "[64:ff9b::7f00:1]:80", external, []Class{Loopback}},
		{"the node, mapped", "[::ffff:192.0.2.10]:80", external, []Class{Mapped, OfNode}},
		{"IPv4-compatible", "[::192.0.2.10]:80", external, []Class{Mapped}},
		{"IPv4-translated", "[::ffff:0:192.0.2.10]:80", external, []Class{Mapped}},
		{"unspecified", "0.0.0.0:80", external, []Class{Unspecified}},
		{"this network", "0.1.2.3:80", external, []Class{Unspecified}},
		{"unspecified, IPv6", "[::]:80", external, []Class{Unspecified}},
		{"multicast", "224.0.0.251:5353", external, []Class{Multicast}},
		{"multicast, IPv6", "[ff02::fb]:5353", external, []Class{Multicast}},
		{"broadcast", "255.255.255.255:67", external, []Class{Broadcast}},
		{"the broadcast address of the node's network", "192.0.2.255:9", external, []Class{Broadcast}},

		{"a NodePort", "192.0.2.10:30080", nodePort, nil},
		{"a NodePort at 127.0.0.1", "127.0.0.1:30080", nodePort, nil},
		{"a NodePort at the bridge of the Pods", "10.244.1.1:30080", nodePort, nil},
		{"a NodePort at another loopback address", "127.0.0.2:30080", nodePort, []Class{Elsewhere, Loopback}},
		{"a NodePort at ::1", "[::1]:30080", nodePort, []Class{Elsewhere, Loopback}},
		{"what is said to be a NodePort", "203.0.113.5:443", nodePort, []Class{Elsewhere}},
		{"another Service, said to be a NodePort", "10.96.0.53:53", nodePort, []Class{Elsewhere, OfService}},
		{"a Service bound for IPVS, said to be a NodePort", "10.96.0.99:80", nodePort, []Class{Elsewhere}},
		{"a NodePort where the kubelet listens", "192.0.2.10:10250", nodePort, []Class{Listener}},
		{"a NodePort where sshd listens", "192.0.2.10:30022", nodePort, []Class{Listener}},
		{"a NodePort where someone listens at another address", "192.0.2.10:30023", nodePort, nil},
		{"a NodePort of IPv6 where someone listens for IPv4", "[fd00:1::10]:30022", nodePort, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &Plan{Frontends: []Frontend{{Kind: tt.kind, Address: netip.MustParseAddrPort(tt.at), Protocol: "TCP"}}}
			compareClasses(t, p.Exposed(someFacts()), tt.want)
		})
	}
}

// Every class of an endpoint's address, and what is none.
func TestClassesOfEndpoints(t *testing.T) {
	for _, tt := range []struct {
		name, at string
		want     []Class
	}{
		{"a Pod", "10.244.1.5:8080", nil},
		{"a Pod, IPv6", "[fd00:244::5]:8080", nil},
		{"a Pod of another namespace", "10.244.1.6:8080", []Class{NoPod}},
		{"a Pod, by NAT64", "[64:ff9b::af4:105]:8080", []Class{NoPod}},
		{"a database outside", "203.0.113.5:5432", []Class{NoPod}},
		{"a Pod in this node's network", "192.0.2.10:9100", nil},
		{"this node's kubelet, behind such a Pod", "192.0.2.10:10250", []Class{OfNode}},
		{"a Pod in another node's network", "192.0.2.11:9100", nil},
		{"the API server on another node", "192.0.2.11:6443", []Class{APIServer}},
		{"a node's address without such a Pod", "[fd00:1::10]:9100", []Class{OfNode}},
		{"the bridge of the Pods", "10.244.1.1:53", []Class{OfNode}},
		{"the API server's cluster IP", "10.96.0.1:443", []Class{APIServer, OfService, NoPod}},
		{"another Service", "10.96.0.53:53", []Class{OfService, NoPod}},
		{"another Service's external IP, at any port", "198.51.100.9:443", []Class{OfService, NoPod}},
		{"what is bound for IPVS", "10.96.0.99:80", []Class{OfService, NoPod}},
		{"the Service itself", "10.96.0.10:80", []Class{OfService, NoPod}},
		{"metadata", "169.254.169.254:80", []Class{LinkLocal, NoPod}},
		{"metadata, by NAT64", "[64:ff9b::a9fe:a9fe]:80", []Class{LinkLocal, NoPod}},
		{"metadata of Google, IPv6", "[fd20:ce::254]:80", []Class{Metadata, NoPod}},
		{"loopback", "127.0.0.1:10248", []Class{Loopback, NoPod}},
		{"loopback, mapped", "[::ffff:127.0.0.1]:80", []Class{Loopback, Mapped, NoPod}},
		{"loopback, by 6to4", "[2002:7f00:1::]:80", []Class{Loopback, NoPod}},
		{"this network", "0.0.0.1:80", []Class{Unspecified, NoPod}},
		{"unspecified", "[::]:80", []Class{Unspecified, NoPod}},
		{"link-local", "[fe80::5]:80", []Class{LinkLocal, NoPod}},
		{"multicast", "239.1.2.3:80", []Class{Multicast, NoPod}},
		{"broadcast", "192.0.2.255:80", []Class{Broadcast, NoPod}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := netip.MustParseAddrPort(tt.at)
			front := Frontend{
				Kind: expect.ClusterIP, Address: netip.MustParseAddrPort("10.96.0.10:80"), Protocol: "TCP",
				ForOthers: Destination{Endpoints: []netip.AddrPort{at}},
			}
			// Wherever it stands.
			for _, to := range []func(*Frontend){
				func(*Frontend) {},
				func(f *Frontend) { f.ForNode, f.ForOthers = f.ForOthers, f.ForNode },
				func(f *Frontend) {
					f.ForPods, f.ForOthers = &Destination{Endpoints: f.ForOthers.Endpoints}, Destination{}
				},
			} {
				f := front
				to(&f)
				compareClasses(t, (&Plan{Frontends: []Frontend{f}}).Exposed(someFacts()), tt.want)
			}
		})
	}
}

func compareClasses(t *testing.T, got []Exposed, want []Class) {
	t.Helper()
	var classes []Class
	for _, e := range got {
		classes = append(classes, e.Class)
	}
	slices.Sort(classes)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(classes, want) {
		t.Errorf("got %q, want %q", classes, want)
	}
}

// The API server's own Service is what it is; its address for another Service is not.
func TestTheAPIServersOwnService(t *testing.T) {
	p := &Plan{Frontends: []Frontend{{
		Kind: expect.ClusterIP, Address: netip.MustParseAddrPort("10.96.0.1:443"), Protocol: "TCP",
		ForOthers: Destination{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.11:6443")}},
	}}}
	f := someFacts()
	f.ClusterIPs = f.ClusterIPs[1:]
	compareClasses(t, p.Exposed(f), []Class{APIServer, APIServer})
	f.IsAPI = true
	compareClasses(t, p.Exposed(f), nil)
	p.Frontends[0].ForOthers.Endpoints[0] = netip.MustParseAddrPort("192.0.2.10:10250")
	compareClasses(t, p.Exposed(f), []Class{OfNode})
}

// A refusal names each address, its class and the flag that allows it; what no flag allows is refused with any.
func TestExposeNamesClassAndFlag(t *testing.T) {
	p := &Plan{Frontends: []Frontend{
		{
			Kind: expect.ExternalIP, Address: netip.MustParseAddrPort("8.8.8.8:53"), Protocol: "UDP",
			ForOthers: Destination{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.5:53")}},
		},
	}}
	err := p.Expose(someFacts(), []string{"node"})
	want := "ExternalIP 8.8.8.8:53/UDP is the address of a DNS resolver that the node or the public uses " +
		"(class resolver); the endpoint 203.0.113.5:53 of ExternalIP 8.8.8.8:53 is not an address of a Pod of the " +
		"Service's namespace (class no-pod); if that is meant, add --allow resolver,no-pod"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := p.Expose(someFacts(), []string{"no-pod", "resolver"}); err != nil {
		t.Error(err)
	}
	p.Frontends[0].ForOthers.Endpoints[0] = netip.MustParseAddrPort("169.254.169.254:80")
	err = p.Expose(someFacts(), Askable())
	want = "the endpoint 169.254.169.254:80 of ExternalIP 8.8.8.8:53 is a link-local address, as that of a cloud's " +
		"metadata service is (class link-local): that is never programmed"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for range 3 * exposedLines {
		at := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.7"), uint16(1000+len(p.Frontends)))
		p.Frontends = append(p.Frontends, Frontend{
			Kind: expect.ExternalIP, Address: netip.MustParseAddrPort("198.51.100.1:1"), Protocol: "TCP",
			ForOthers: Destination{Endpoints: []netip.AddrPort{at}},
		})
	}
	err = p.Expose(someFacts(), nil)
	if err == nil || !strings.Contains(err.Error(), "; and ") || len(err.Error()) > 1200 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
}

// The listing of the sockets costs as much as the rest of the check: it is left out only where no class goes by it.
func TestSocketsAreAskedForWhereAClassGoesByThem(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("fd00::10")}
	to := func(endpoint string) func(*Plan) {
		return func(p *Plan) { p.Frontends[0].ForNode.Endpoints = []netip.AddrPort{netip.MustParseAddrPort(endpoint)} }
	}
	for name, tt := range map[string]struct {
		change func(*Plan)
		want   bool
	}{
		"cluster IP":                     {func(*Plan) {}, false},
		"NodePort":                       {func(p *Plan) { p.Frontends[0].Kind = "NodePort" }, true},
		"endpoint with a node's address": {to("192.0.2.10:80"), true},
		"of IPv6":                        {to("[fd00::10]:80"), true},
		"an address that stands for it":  {to("[::ffff:192.0.2.10]:80"), true},
		"by NAT64":                       {to("[64:ff9b::c000:20a]:80"), true},
		"another node's":                 {to("192.0.2.11:80"), false},
	} {
		p := good()
		p.Frontends[0].ForNode.Endpoints = nil
		p.Frontends[0].ForPods, p.Frontends[0].ForOthers = &p.Frontends[0].ForNode, p.Frontends[0].ForNode
		tt.change(p)
		if got := p.AsksForSockets(own); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
