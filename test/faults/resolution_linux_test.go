// SPDX-License-Identifier: Apache-2.0

package faults

// resolutionFaults drop the packets by which link-layer addresses are found (net/ipv4/arp.c, net/ipv6/ndisc.c). An
// entry that there is works until the kernel asks again.
func resolutionFaults() []fault {
	return []fault{
		{
			name: "advertisements are dropped in INPUT", v6: true,
			make:  `ip6tables-nft -A INPUT -p icmpv6 --icmpv6-type 136 -j DROP; forget`,
			fails: all, named: `icmpv6|INPUT`, mismatch: true,
		},
		{
			name: "solicitations are dropped in OUTPUT", v6: true, from: "node",
			make:  `ip6tables-nft -A OUTPUT -p icmpv6 --icmpv6-type neighbour-solicitation -j DROP; forget`,
			fails: all, named: `icmpv6|OUTPUT`, mismatch: true,
		},
		{
			name: "all of ICMPv6 is dropped in INPUT", v6: true,
			make:  `ip6tables-nft -A INPUT -p icmpv6 -j DROP; forget`,
			fails: all, named: `icmpv6|INPUT`, mismatch: true,
		},
		{
			name: "echo requests are dropped in INPUT", v6: true,
			make:  `ip6tables-nft -A INPUT -p icmpv6 --icmpv6-type echo-request -j DROP; forget`,
			fails: none,
		},
		{
			name: "a policy drops neighbour discovery, and established connections pass", v6: true, from: "node",
			make: `ip6tables-nft -I INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
				ip6tables-nft -I INPUT -i lo -j ACCEPT; ip6tables-nft -P INPUT DROP; forget`,
			fails: all, named: `INPUT`, mismatch: true,
		},
		{
			name: "a policy drops what is not untracked", v6: true, from: "node",
			make: `ip6tables-nft -I INPUT -m conntrack --ctstate RELATED,ESTABLISHED,UNTRACKED -j ACCEPT
				ip6tables-nft -I INPUT -i lo -j ACCEPT; ip6tables-nft -P INPUT DROP; forget`,
			fails: none,
		},
		{
			name: "a policy drops all but neighbour discovery with its hop limit", v6: true, from: "node",
			make: `ip6tables-nft -I INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
				ip6tables-nft -I INPUT -i lo -j ACCEPT
				ip6tables-nft -A INPUT -p icmpv6 --icmpv6-type 135 -m hl --hl-eq 255 -j ACCEPT
				ip6tables-nft -A INPUT -p icmpv6 --icmpv6-type 136 -m hl --hl-eq 255 -j ACCEPT
				ip6tables-nft -P INPUT DROP; forget`,
			fails: none,
		},
		{
			name: "advertisements are dropped in raw, of one interface", v6: true,
			make:  `ip6tables-nft -t raw -A PREROUTING -i eth0 -p icmpv6 --icmpv6-type 136 -j DROP; forget`,
			fails: some, named: `raw|PREROUTING`, mismatch: true,
		},
		{
			name: "advertisements are dropped in mangle's POSTROUTING, where the node's own are", v6: true,
			make:  `ip6tables-nft -t mangle -A POSTROUTING -p icmpv6 --icmpv6-type 135 -j DROP; forget`,
			fails: all, named: `mangle|POSTROUTING`, mismatch: true,
		},
		{
			name: "neighbour discovery is dropped by nft", v6: true,
			make: `hook nd ip6 input 0 "icmpv6 type { nd-neighbor-advert, nd-neighbor-solicit } iifname eth0 drop"
				forget`,
			fails: some, named: `fault_nd`, mismatch: true,
		},
		{
			name: "neighbour discovery is dropped at ingress", v6: true,
			make:  `hook nd netdev "ingress device eth0" 0 "meta protocol ip6 icmpv6 type nd-neighbor-advert drop"; forget`,
			fails: some, named: `fault_nd`, mismatch: true,
		},
		{
			name: "neighbour discovery is dropped by a bridge", v6: true,
			make: `hook nd bridge input 0 "ether type ip6 icmpv6 type nd-neighbor-advert drop"
				forget`,
			fails: some, named: `fault_nd`,
		},
		{
			name: "neighbour discovery is dropped, and entries are set by hand", v6: true,
			make: `ip6tables-nft -A INPUT -p icmpv6 --icmpv6-type 136 -j DROP; forget
				ip -6 neigh replace $L6 dev cni0 lladdr $LMAC nud permanent
				ip -6 neigh replace $C6 dev cni0 lladdr $CMAC nud permanent
				ip -6 neigh replace $RNODE6 dev eth0 lladdr $RMAC nud permanent
				ip -6 neigh replace $QNODE6 dev eth0 lladdr $QMAC nud permanent`,
			fails: none, unknownToo: true,
		},
		{
			name:  "replies are dropped by a table of arp",
			make:  `hook resolve arp input 0 "arp operation reply drop"; forget`,
			fails: all, named: `fault_`, mismatch: true,
		},
		{
			name: "requests are dropped by a table of arp", from: "node",
			make:  `hook resolve arp output 0 "arp operation request oifname eth0 drop"; forget`,
			fails: some, named: `fault_`, mismatch: true,
		},
		{
			name: "replies of one node are dropped by a table of arp", from: "node",
			make:  `hook resolve arp input 0 "arp saddr ip $RNODE drop"; forget`,
			fails: some, named: `fault_`, mismatch: true,
		},
		{
			name: "replies of another address are dropped by a table of arp", from: "node",
			make:  `hook resolve arp input 0 "arp saddr ip 10.79.0.99 drop"; forget`,
			fails: none,
		},
		{
			name:  "ARP is dropped at ingress",
			make:  `hook arp netdev "ingress device eth0" 0 "meta protocol arp drop"; forget`,
			fails: some, named: `fault_`, mismatch: true,
		},
		{
			name:  "ARP is dropped at egress",
			make:  `hook arp netdev "egress device eth0" 0 "meta protocol arp drop"; forget`,
			fails: some, named: `fault_`, mismatch: true,
		},
		{
			name:  "ARP is dropped by a bridge",
			make:  `hook arp bridge output 0 "ether type arp drop"; forget`,
			fails: all, named: `fault_`,
		},
		{
			name:  "ARP between pods is dropped by a bridge: an endpoint answers a client as its neighbour",
			make:  `hook arp bridge forward 0 "ether type arp drop"; forget`,
			fails: some, named: `fault_`,
		},
		{
			name: "ARP between pods is dropped by a bridge, which the node's connections do not need", from: "node",
			make:  `hook arp bridge forward 0 "ether type arp drop"; forget`,
			fails: none,
		},
		{
			name: "neighbour discovery between pods is dropped in FORWARD", v6: true,
			make:  `ip6tables-nft -I FORWARD -p icmpv6 -j DROP; forget`,
			fails: some, named: `FORWARD`,
		},
		{
			name: "neighbour discovery between pods is dropped in FORWARD, and bridges do not ask for it", v6: true,
			make: `ip6tables-nft -I FORWARD -p icmpv6 -j DROP; forget
				sysctl -qw net.bridge.bridge-nf-call-ip6tables=0`,
			fails: some, named: `bridge-nf-call-ip6tables`, mismatch: true,
		},
		{
			name: "neighbour discovery between pods is dropped in FORWARD, which the node's connections do not need", v6: true,
			from:  "node",
			make:  `ip6tables-nft -I FORWARD -p icmpv6 -j DROP; forget`,
			fails: none,
		},
		{
			name:  "ARP is dropped by arptables-nft",
			make:  `arptables-nft -A INPUT -i eth0 --opcode Reply -j DROP; forget`,
			fails: some, named: `arp`, mismatch: true,
		},
		{
			name:  "requests of pods are dropped",
			make:  `hook resolve arp input 0 "arp operation request iifname cni0 drop"; forget`,
			fails: all, named: `fault_`,
		},
		{
			name: "requests of others are dropped, which the node's connections do not need", from: "node",
			make:  `hook resolve arp input 0 "arp operation request iifname eth0 drop"; forget`,
			fails: none, unknownToo: true,
		},
		{
			name:  "what is not IP is dropped at ingress",
			make:  `hook arp netdev "ingress device eth0" 0 "meta protocol != { ip, ip6 } drop"; forget`,
			fails: some, named: `fault_`, mismatch: true,
		},
		{
			name:  "entries are there, and ARP is dropped from now on",
			make:  `touch_all; hook resolve arp input 0 "arp operation reply drop"`,
			fails: none, unknownToo: true,
		},
	}
}
