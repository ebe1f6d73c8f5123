// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// What the rules show goes before the version's number: 1.33.13 has the base chains of 1.34, and ipvs mode of some
// patch releases of 1.28 and 1.29 a rule that others lack.
func TestLayoutGoesBeforeVersion(t *testing.T) {
	both := testSlice("web-1", "10.244.1.11 node1", "10.244.2.12 node2")
	remote := testSlice("web-1", "10.244.2.12 node2", "10.244.3.13 node3")
	local := []func(*corev1.Service){loadBalancer, etpLocal}
	ranges := []func(*corev1.Service){loadBalancer, func(s *corev1.Service) {
		s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
	}}
	remotePod := Origin{Kind: FromExternal, Address: netip.MustParseAddr("10.244.2.12"), Iface: "eth0"}
	for _, c := range []struct {
		name, version, mode string
		shown               kubeproxy.Layout
		mods                []func(*corev1.Service)
		slice               *discoveryv1.EndpointSlice
		f                   Frontend
		o                   Origin
		want                string // action, masquerade, reason
	}{
		{
			name: "the base chains of 1.33.0", version: "v1.33.0", mode: kubeproxy.NFTables,
			shown: kubeproxy.Layout{NFTFilter: kubeproxy.NFTFilterPreDNAT}, mods: local, slice: remote, f: externalFrontend,
			o: aNode, want: "Drop  NoLocalEndpoints",
		},
		{
			name: "the base chains of 1.33.13", version: "v1.33.13", mode: kubeproxy.NFTables,
			shown: kubeproxy.Layout{NFTFilter: kubeproxy.NFTFilterPostDNAT}, mods: local, slice: remote, f: externalFrontend,
			o: aNode, want: "DNAT Always ",
		},
		{
			name: "the number is wrong", version: "v1.31.0", mode: kubeproxy.NFTables,
			shown: kubeproxy.Layout{NFTFilter: kubeproxy.NFTFilterPostDNAT}, mods: local, slice: remote, f: externalFrontend,
			o: aNode, want: "DNAT Always ",
		},
		{
			name: "the set of hairpin connections before 1.36", version: "v1.35.9", mode: kubeproxy.NFTables,
			shown: kubeproxy.Layout{NFTHairpin: kubeproxy.NFTHairpinSet}, slice: both, f: clusterFrontend, o: remotePod,
			want: "DNAT Never ",
		},
		{
			name: "rules for hairpin connections, no version", mode: kubeproxy.NFTables,
			shown: kubeproxy.Layout{NFTHairpin: kubeproxy.NFTHairpinRules}, slice: both, f: clusterFrontend, o: remotePod,
			want: "DNAT Hairpin ",
		},
		{
			name: "source ranges in 1.29", version: "v1.29.15", mode: kubeproxy.NFTables, mods: ranges, slice: both,
			f: vipFrontend, o: outsider, want: "DNAT Always KubeProxyBug",
		},
		{
			name: "source ranges in 1.29, from the node", version: "v1.29.15", mode: kubeproxy.NFTables, mods: ranges,
			slice: both, f: vipFrontend, o: aNode, want: "Drop  SourceRange",
		},
		{
			name: "a NodePort without local endpoints in 1.29, from the node", version: "v1.29.15", mode: kubeproxy.NFTables,
			mods: local, slice: remote, f: nodeFrontend, o: aNode, want: "Drop  NoLocalEndpoints",
		},
		{
			name: "an external IP in ipvs mode of 1.28.0", version: "v1.28.0", mode: kubeproxy.IPVS,
			shown: kubeproxy.Layout{IPVSExternalIPs: kubeproxy.IPVSExternalIPsRefused}, mods: local, slice: both,
			f: externalFrontend, o: outsider, want: "Reject  KubeProxyBug",
		},
		{
			name: "the same from the node", version: "v1.28.0", mode: kubeproxy.IPVS,
			shown: kubeproxy.Layout{IPVSExternalIPs: kubeproxy.IPVSExternalIPsRefused}, mods: local, slice: both,
			f: externalFrontend, o: aNode, want: "DNAT Hairpin ",
		},
		{
			name: "the same of a later patch release", version: "v1.28.15", mode: kubeproxy.IPVS,
			shown: kubeproxy.Layout{IPVSExternalIPs: kubeproxy.IPVSExternalIPsPass}, mods: local, slice: both,
			f: externalFrontend, o: outsider, want: "DNAT Hairpin ",
		},
		{
			name: "the rule was deleted", version: "v1.30.0", mode: kubeproxy.IPVS,
			shown: kubeproxy.Layout{IPVSExternalIPs: kubeproxy.IPVSExternalIPsRefused}, mods: local, slice: both,
			f: externalFrontend, o: outsider, want: "DNAT Hairpin ",
		},
		{
			name: "the node keeps an external IP as its source in ipvs mode", version: "v1.37.0", mode: kubeproxy.IPVS,
			mods: local, slice: remote, f: externalFrontend, o: Origin{Kind: FromNode, Address: externalFrontend.Address},
			want: "DNAT Hairpin NoLocalEndpoints",
		},
		{
			name: "the source of packets to a NodePort in ipvs mode is the node's own", version: "v1.37.0", mode: kubeproxy.IPVS,
			mods: local, slice: remote, f: nodeFrontend, o: Origin{Kind: FromNode, Address: nodeFrontend.Address},
			want: "DNAT Hairpin ",
		},
		{
			name: "a version to come", version: "v1.38.0", mode: kubeproxy.NFTables,
			shown: kubeproxy.Layout{NFTFilter: kubeproxy.NFTFilterPreDNAT}, mods: local, slice: remote, f: externalFrontend,
			o: aNode, want: "Drop  NoLocalEndpoints",
		},
	} {
		in := testInputs(testService(c.mods...), c.slice)
		in.Config.Mode, in.Config.Version, in.Layout = c.mode, c.version, c.shown
		p := New(in).Path(c.f, c.o)
		if got := string(p.Action) + " " + string(p.Masquerade) + " " + p.Reason; got != c.want {
			t.Errorf("%s: got %q, want %q; why %q", c.name, got, c.want, p.Why)
		}
	}
}

// When nftables mode serves NodePorts at the node's own IPs alone.
func TestNFTablesNodePortAddressesByVersion(t *testing.T) {
	for _, c := range []struct {
		version string
		list    []string
		want    [2]bool // all addresses of a family
	}{
		{"v1.29.15", nil, [2]bool{true, true}},
		{"v1.30.0", nil, [2]bool{false, false}},
		{"v1.30.0", []string{"192.168.0.0/16"}, [2]bool{false, false}},
		{"v1.31.0", nil, [2]bool{false, false}},
		{"v1.31.0", []string{"192.168.0.0/16"}, [2]bool{false, true}},
	} {
		in := testInputs(testService())
		in.Config.Mode, in.Config.Version, in.Config.NodePortAddresses = kubeproxy.NFTables, c.version, c.list
		n := New(in)
		if got := [2]bool{n.nodePorts[0].all, n.nodePorts[1].all}; got != c.want {
			t.Errorf("%s, %v: got %v, want %v", c.version, c.list, got, c.want)
		}
	}
}

// The history of the feature gates is that of kube-proxy's own lists, with which test/oracle compares it.
func TestFeatureGatesOfAVersion(t *testing.T) {
	states := func(version string) map[string]FeatureGate {
		out := map[string]FeatureGate{}
		for _, g := range FeatureGates(version) {
			out[g.Name] = g
		}
		return out
	}
	if _, ok := states("v1.35.8")["AllowServiceExternalIPs"]; ok {
		t.Error("1.35 has AllowServiceExternalIPs")
	}
	if g := states("v1.36.0")["AllowServiceExternalIPs"]; !g.On || g.Locked {
		t.Errorf("1.36 has %+v", g)
	}
	if g := states("v1.32.0")["LoadBalancerIPMode"]; !g.On || !g.Locked {
		t.Errorf("1.32 has %+v", g)
	}
	if !Newer("v1.38.1") || Newer("v1.37.9") || Newer("") {
		t.Error("1.37 is the newest")
	}
}
