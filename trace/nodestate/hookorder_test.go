// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

const hooksText = `family ip {
	hook input {
		-0000000150 iptable_mangle_hook [iptable_mangle]
		 0000000000 chain inet firewall in [nf_tables]
		 0000000000 iptable_filter_hook [iptable_filter]
		 0000000000 chain ip filter INPUT [nf_tables]
		+0000000100 nf_nat_ipv4_local_in [nf_nat]
	}
}
family bridge {
	hook prerouting {
		 0000000000 chain bridge b c [nf_tables]
	}
}
`

func TestHookOrder(t *testing.T) {
	o, err := parseHooks([]byte(hooksText))
	if err != nil {
		t.Fatal(err)
	}
	const four, both, native = netfilter.IPv4, netfilter.Inet, netfilter.BackendNative
	for _, c := range []struct {
		table netfilter.Table
		name  string
		hook  netfilter.Hook
		want  int // -1: not known
	}{
		{netfilter.Table{Family: both, Backend: native, Name: "firewall"}, "in", netfilter.Input, 1},
		{netfilter.Table{Family: four, Backend: netfilter.BackendLegacy, Name: "filter"}, "INPUT", netfilter.Input, 2},
		{netfilter.Table{Family: four, Backend: netfilter.BackendNFT, Name: "filter"}, "INPUT", netfilter.Input, 3},
		{netfilter.Table{Backend: native, Name: "bridge b"}, "c", netfilter.BridgePrerouting, 0},
		{netfilter.Table{Family: four, Backend: native, Name: "other"}, "in", netfilter.Input, -1},
		{netfilter.Table{Family: four, Backend: native, Name: "firewall"}, "in", netfilter.Forward, -1},
	} {
		chain := &netfilter.Chain{Table: &c.table, Name: c.name, Base: &netfilter.Base{Hook: c.hook}}
		at, known := o.rank(netfilter.IPv4, chain)
		if known != (c.want >= 0) || known && at != c.want {
			t.Errorf("%s %s at %s: %d, %v, want %d", c.table.Name, c.name, c.hook, at, known, c.want)
		}
	}
	for _, bad := range []string{"", "nft: unknown command\n", "family ip {\n\t0 x\n}\n"} {
		if _, err := parseHooks([]byte(bad)); err == nil {
			t.Errorf("%q is read without an error", bad)
		}
	}
}
