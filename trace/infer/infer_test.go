// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"net/netip"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
)

// TestAgree: one that deviates is a fault as long as the others are several; of few nothing can be said.
func TestAgree(t *testing.T) {
	for _, tt := range []struct {
		votes, all int
		want       bool
	}{
		{0, 0, false},
		{1, 1, true},
		{1, 2, false},
		{2, 3, false},
		{3, 4, true},
		{3, 5, false},
		{8, 10, false},
		{18, 20, true},
		{59, 60, true},
		{30, 60, false},
	} {
		if got := agree(tt.votes, tt.all); got != tt.want {
			t.Errorf("%d of %d: got %v", tt.votes, tt.all, got)
		}
	}
}

// TestTogether: an interface counts for both families, a range for its own.
func TestTogether(t *testing.T) {
	v4 := local{cidr: netip.MustParsePrefix("10.0.0.0/8")}
	v6 := local{cidr: netip.MustParsePrefix("fd00::/8")}
	bridge, veth := local{iface: "cni0"}, local{iface: "veth", wild: true}
	for _, tt := range []struct {
		v4, v6 local
		want   string // "": kube-proxy has no such configuration
	}{
		{v4, v6, "ClusterCIDR 10.0.0.0/8,fd00::/8"},
		{v4, local{}, "ClusterCIDR 10.0.0.0/8"},
		{local{}, v6, "ClusterCIDR fd00::/8"},
		{local{}, local{}, "ClusterCIDR none"},
		{bridge, bridge, "BridgeInterface cni0"},
		{veth, veth, "InterfaceNamePrefix veth"},
		{bridge, veth, ""},
		{bridge, local{}, ""},
		{v4, bridge, ""},
	} {
		c, ok := together(tt.v4, tt.v6)
		if got := c.Text(kubeproxy.DetectLocal); ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%v and %v: got %q, %v", tt.v4, tt.v6, got, ok)
		}
	}
}

// TestChoice: a rule that asks for more is taken for a configuration only if several do, or if it can be nothing else.
func TestChoice(t *testing.T) {
	set := func(c *kubeproxy.Config, v bool) { c.MasqueradeAll = v }
	for _, tt := range []struct {
		name  string
		votes counts[bool]
		sure  bool
		known bool
		first bool
		count int
	}{
		{"nothing shows it", counts[bool]{}, false, false, false, 0},
		{"a single no", counts[bool]{false: 1}, false, true, false, 1},
		{"two yes", counts[bool]{true: 2}, false, false, true, 2},
		{"three yes", counts[bool]{true: 3}, false, true, true, 1},
		{"an explicit yes", counts[bool]{true: 1}, true, true, true, 1},
		{"one yes of many", counts[bool]{true: 1, false: 20}, false, true, false, 1},
		{"half and half", counts[bool]{true: 10, false: 10}, false, false, false, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := choice(kubeproxy.MasqueradeAll, tt.votes, tt.sure, set, "rules")
			if f.Known != tt.known || len(f.Allowed) != tt.count {
				t.Fatalf("%+v", f)
			}
			if tt.count > 0 && f.Allowed[0].MasqueradeAll != tt.first {
				t.Errorf("%v first", f.Allowed[0].MasqueradeAll)
			}
		})
	}
}
