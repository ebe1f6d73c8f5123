// SPDX-License-Identifier: Apache-2.0

package faults

// fieldFaults are those of rules that ask for routes, zones of connection tracking, and kinds of interfaces
// (nft_fib_ipv4.c, nft_ct.c, nft_meta.c).
func fieldFaults() []fault {
	rule := func(text string) string { return "hook f inet forward 0 '" + text + " drop'" }
	return []fault{
		{
			name: "what is routed to the uplink is dropped, by name",
			make: rule(`fib daddr oifname "eth0"`), fails: some, named: `fault_f`, mismatch: true,
		},
		{
			name: "what is routed to the uplink is dropped, by number",
			make: rule(`fib daddr oif eth0`), fails: some, named: `fault_f`, mismatch: true,
		},
		{name: "what is routed to lo is dropped", make: rule(`fib saddr oifname "lo"`), fails: none},
		{
			name: "connections of the default zone are dropped",
			make: rule(`ct zone 0`), fails: all, named: `fault_f`, mismatch: true,
		},
		{name: "connections of another zone are dropped", make: rule(`ct zone 5`), fails: none},
		{
			name: "answers of the default zone are dropped",
			make: rule(`ct reply zone 0`), fails: all, named: `fault_f`, mismatch: true,
		},
		{
			name: "connections of a zone that they are given are dropped",
			make: `hook z ip prerouting -300 "ct zone set 5"; hook zz ip output -300 "ct zone set 5"; ` +
				rule(`ct original zone 5`),
			fails: all, named: `fault_f`, mismatch: true,
		},
		{
			name: "what comes in by a bridge is dropped",
			make: rule(`meta iifkind "bridge"`), fails: all, named: `fault_f`, mismatch: true,
		},
		{
			name: "what leaves by a veth is dropped",
			make: rule(`meta oifkind "veth"`), fails: some, named: `fault_f`, mismatch: true,
		},
		{name: "what comes in by a tunnel is dropped", make: rule(`meta iifkind "tun"`), fails: none},
	}
}
