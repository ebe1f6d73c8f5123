// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

func TestDetector(t *testing.T) {
	pod := func(iface string) Origin {
		return Origin{Kind: FromPod, Address: netip.MustParseAddr("10.244.1.5"), Iface: iface}
	}
	elsewhere := Origin{Kind: FromExternal, Address: netip.MustParseAddr("10.244.2.5"), Iface: "eth0"}
	bridge := kubeproxy.Config{DetectLocalMode: "BridgeInterface", BridgeInterface: "cni0"}
	prefix := kubeproxy.Config{DetectLocalMode: "InterfaceNamePrefix", InterfaceNamePrefix: "veth"}
	for _, c := range []struct {
		name        string
		config      kubeproxy.Config
		o           Origin
		implemented truth
		local       truth
	}{
		{"cluster CIDR, pod", testConfig(), pod("?"), yes, yes},
		{"cluster CIDR, pod of another node", testConfig(), elsewhere, yes, yes},
		{"cluster CIDR, node", testConfig(), aNode, yes, no},
		{"cluster CIDR missing", kubeproxy.Config{}, pod("?"), no, no},
		{"node CIDR, pod", kubeproxy.Config{DetectLocalMode: "NodeCIDR"}, pod("?"), yes, yes},
		{"node CIDR, pod of another node", kubeproxy.Config{DetectLocalMode: "NodeCIDR"}, elsewhere, yes, no},
		{"bridge", bridge, pod("cni0"), yes, yes},
		{"other bridge", bridge, pod("cni1"), yes, no},
		{"unknown interface", bridge, pod("?"), yes, notKnown},
		{"no interface", bridge, aNode, yes, no},
		{"prefix", prefix, pod("veth12"), yes, yes},
		{"other prefix", prefix, pod("eth0"), yes, no},
		{"unknown", kubeproxy.DefaultConfig(), pod("cni0"), notKnown, notKnown},
	} {
		in := testInputs(testService())
		in.Config = c.config
		d := detectorOf(&in, 0)
		if d.implemented != c.implemented || d.local(&c.o) != c.local {
			t.Errorf("%s: got implemented %d, local %d", c.name, d.implemented, d.local(&c.o))
		}
	}
}
