// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Differences between nftables mode and iptables mode (pkg/proxy/nftables/proxier.go).
func TestNFTablesMode(t *testing.T) {
	both := testSlice("web-1", "10.244.1.11 node1", "10.244.2.12 node2")
	remote := testSlice("web-1", "10.244.2.12 node2", "10.244.3.13 node3")
	none := testSlice("web-1")
	ranges := func(list ...string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = list }
	}
	alsoExternal := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} }
	addresses := func(list ...string) func(*Inputs) {
		return func(in *Inputs) { in.Config.NodePortAddresses = list }
	}
	version := func(v string) func(*Inputs) { return func(in *Inputs) { in.Config.Version = v } }
	remotePod := Origin{Kind: FromExternal, Address: netip.MustParseAddr("10.244.2.12"), Iface: "eth0"}
	loopback := frontend(NodePort, "127.0.0.1", 30080)
	secondary := frontend(NodePort, "10.244.1.1", 30080)
	for _, c := range []struct {
		name          string
		mods          []func(*corev1.Service)
		slice         *discoveryv1.EndpointSlice
		config        func(*Inputs)
		f             Frontend
		o             Origin
		iptables, nft string // action, endpoints, masquerade or reason
	}{
		{
			name: "a cluster IP", slice: both, f: clusterFrontend, o: aPod, iptables: "DNAT 11 12 Hairpin",
			nft: "DNAT 11 12 Hairpin",
		},
		{
			name: "a NodePort at the primary address", mods: []func(*corev1.Service){loadBalancer}, slice: both, f: nodeFrontend,
			o: outsider, iptables: "DNAT 11 12 Always", nft: "DNAT 11 12 Always",
		},
		{
			name: "a NodePort at another address", mods: []func(*corev1.Service){loadBalancer}, slice: both, f: secondary,
			o: aPod, iptables: "DNAT 11 12 Always", nft: "None  NodePortAddress",
		},
		{
			name: "a NodePort at another address, where all are asked for", mods: []func(*corev1.Service){loadBalancer},
			slice: both, f: secondary, o: aPod,
			config: addresses("0.0.0.0/0"), iptables: "DNAT 11 12 Always", nft: "DNAT 11 12 Always",
		},
		{
			name: "a NodePort at the loopback address", mods: []func(*corev1.Service){loadBalancer}, slice: both, f: loopback,
			o: aNode, iptables: "DNAT 11 12 Always", nft: "None  NodePortAddress",
		},
		{
			name: "a NodePort at the loopback address, asked for", mods: []func(*corev1.Service){loadBalancer}, slice: both,
			f: loopback, o: aNode,
			config: addresses("127.0.0.0/8"), iptables: "DNAT 11 12 Always", nft: "None  NodePortAddress",
		},
		{
			name: "a NodePort left out, without endpoints", mods: []func(*corev1.Service){loadBalancer}, slice: none,
			f: nodeFrontend, o: outsider,
			config: addresses("10.0.0.0/8"), iptables: "Reject  NoEndpoints", nft: "None  NodePortAddress",
		},
		{
			name: "a NodePort left out, without local endpoints", mods: []func(*corev1.Service){loadBalancer, etpLocal},
			slice: remote, f: nodeFrontend, o: outsider,
			config: addresses("10.0.0.0/8"), iptables: "Drop  NoLocalEndpoints", nft: "None  NodePortAddress",
		},
		{
			name: "no endpoints, from the node to an external IP", mods: []func(*corev1.Service){loadBalancer}, slice: none,
			f: externalFrontend, o: aNode, iptables: "None  NoEndpoints", nft: "Reject  NoEndpoints",
		},
		{
			name: "no endpoints, at a cluster IP that is bound on the node", slice: none, f: clusterFrontend, o: aPod,
			config:   func(in *Inputs) { in.Addresses = append(in.Addresses, clusterFrontend.Address) },
			iptables: "None  NoEndpoints", nft: "Reject  NoEndpoints",
		},
		{
			name: "no endpoints, outside of the ranges", mods: []func(*corev1.Service){loadBalancer, ranges("10.0.0.0/8")},
			slice: none, f: vipFrontend, o: outsider, iptables: "Reject  NoEndpoints", nft: "Drop  SourceRange",
		},
		{
			name: "no endpoints, within the ranges", mods: []func(*corev1.Service){loadBalancer, ranges("192.0.2.0/24")},
			slice: none, f: vipFrontend, o: outsider, iptables: "Reject  NoEndpoints", nft: "Reject  NoEndpoints",
		},
		{
			name: "outside of the ranges, at an address that is an external IP, too",
			mods: []func(*corev1.Service){loadBalancer, ranges("10.0.0.0/8"), alsoExternal}, slice: both,
			f: vipFrontend, o: outsider,
			iptables: "DNAT 11 12 Always", nft: "Drop  SourceRange",
		},
		{
			name: "a pod of another node that reaches itself", slice: both, f: clusterFrontend, o: remotePod,
			iptables: "DNAT 11 12 Hairpin", nft: "DNAT 11 12 Never",
		},
		{
			name: "a pod of another node that reaches itself, before the set of hairpin connections", slice: both,
			f: clusterFrontend, o: remotePod,
			config: version("v1.35.4"), iptables: "DNAT 11 12 Hairpin", nft: "DNAT 11 12 Hairpin",
		},
		{
			name: "a policy Local without local endpoints, from the node", mods: []func(*corev1.Service){loadBalancer, etpLocal},
			slice: remote, f: externalFrontend, o: aNode, iptables: "DNAT 12 13 Always", nft: "DNAT 12 13 Always",
		},
		{
			name: "a policy Local without local endpoints, from the node, when filter-output came first",
			mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: remote, f: externalFrontend, o: aNode,
			config: version("v1.32.0"), iptables: "DNAT 12 13 Always", nft: "Drop  NoLocalEndpoints",
		},
		{
			name: "a NodePort with policy Local without local endpoints, from the node, when filter-output came first",
			mods: []func(*corev1.Service){loadBalancer, etpLocal}, slice: remote, f: nodeFrontend, o: aNode,
			config: version("v1.32.0"), iptables: "DNAT 12 13 Always", nft: "DNAT 12 13 Always",
		},
		{
			name: "no endpoints, outside of the ranges, from the node, when filter-output came first",
			mods: []func(*corev1.Service){loadBalancer, ranges("10.0.0.0/8")}, slice: none, f: vipFrontend, o: aNode,
			config: version("v1.32.0"), iptables: "None  NoEndpoints", nft: "Reject  NoEndpoints",
		},
	} {
		for mode, want := range map[string]string{"iptables": c.iptables, kubeproxy.NFTables: c.nft} {
			in := testInputs(testService(c.mods...), c.slice)
			in.Config.Mode = mode
			if c.config != nil {
				c.config(&in)
			}
			p := New(in).Path(c.f, c.o)
			got := string(p.Action) + " " + last(p.Endpoints) + " " + p.Reason
			if p.Action == DNAT {
				got += string(p.Masquerade)
			}
			if got != want || p.Action != DNAT && p.Why == "" {
				t.Errorf("%s, %s mode: got %q, want %q; why %q", c.name, mode, got, want, p.Why)
			}
		}
	}
}

// nodePortAddresses that is not set is "primary" in nftables mode.
func TestNFTablesNodePortFrontends(t *testing.T) {
	svc := testService(loadBalancer)
	for mode, want := range map[string]string{"iptables": "127.0.0.1 192.168.0.1", kubeproxy.NFTables: "192.168.0.1"} {
		in := testInputs(svc, testSlice("web-1", "10.244.1.11 node1"))
		in.Config.Mode = mode
		var got []string
		for _, f := range New(in).Frontends(svc) {
			if f.Kind == NodePort {
				got = append(got, f.Address.String())
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s mode: NodePorts at %v, want %s", mode, got, want)
		}
	}
}
