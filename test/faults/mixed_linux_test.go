// SPDX-License-Identifier: Apache-2.0

package faults

// mixedFaults are of rules that nft has written into tables of iptables: iptables-save prints them as others.
func mixedFaults() []fault {
	return []fault{
		{
			name: "nft drops by a set in a chain of iptables", fails: some, named: `FORWARD`,
			make: `nft insert rule ip filter FORWARD ip daddr "{ $R, 10.245.2.4 }" drop`,
		},
		{
			name: "nft accepts by a set in a chain of iptables, before a drop", fails: none,
			make: `iptables -I FORWARD -d $R -j DROP
nft insert rule ip filter FORWARD ip daddr . tcp dport "{ $R . 8080 }" accept`,
		},
		{
			name: "nft drops others by a set in a table of iptables", fails: none,
			make: `nft add set ip filter s '{ type ipv4_addr; elements = { 192.0.2.7 }; }'
nft insert rule ip filter FORWARD ip daddr @s drop`,
		},
		{
			name: "nft accepts others by a set in a chain of iptables, before a drop", fails: some, named: `FORWARD`,
			make: `iptables -I FORWARD -d $R -j DROP
nft insert rule ip filter FORWARD ip daddr "{ 192.0.2.7, 192.0.2.8 }" accept`,
		},
		{
			name: "nft accepts other ports by a set in a chain of iptables, before a policy", fails: all, named: `FORWARD`,
			make: `iptables -F FORWARD; iptables -P FORWARD DROP; nft insert rule ip filter FORWARD tcp dport '{ 81, 443 }' accept`,
		},
		{
			name: "nft accepts others by a set before kube-proxy's rules", fails: none,
			make: `nft insert rule ip nat PREROUTING ip daddr "{ 192.0.2.7, 192.0.2.8 }" accept`,
		},
		{
			name: "nft drops others by a map of verdicts in a chain of iptables", fails: none,
			make: `nft insert rule ip filter FORWARD ip daddr vmap "{ 192.0.2.7 : drop }"`,
		},
		{
			name: "nft drops by a map of verdicts that leads to a chain of iptables", fails: some, named: `away`,
			make: `iptables -N away; iptables -A away -j DROP
nft insert rule ip filter FORWARD ip daddr vmap "{ $R : goto away }"`,
		},
	}
}
