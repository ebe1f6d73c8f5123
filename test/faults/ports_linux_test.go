// SPDX-License-Identifier: Apache-2.0

package faults

// portFaults are translations of the source to few ports (net/netfilter/nf_nat_core.c), and those that look like it.
func portFaults() []fault {
	const rule = `iptables-nft -t nat -I POSTROUTING -s $C -p tcp --dport 8080 `
	return []fault{
		{
			name:  "a masquerade to one port",
			make:  rule + `-j MASQUERADE --to-ports 40000`,
			fails: some, named: `(?s)FewSourcePorts.*to-ports 40000`,
		},
		{
			name:  "a masquerade to one port, at random",
			make:  rule + `-j MASQUERADE --to-ports 40000 --random-fully`,
			fails: some, named: `(?s)FewSourcePorts.*to-ports 40000`,
		},
		{
			name:  "a masquerade to three ports",
			make:  rule + `-j MASQUERADE --to-ports 40000-40002`,
			fails: some, named: `(?s)FewSourcePorts.*to-ports 40000-40002`,
		},
		{
			name:  "a translation to one port of the node's address",
			make:  rule + `-j SNAT --to-source 10.79.0.11:40000`,
			fails: some, named: `(?s)FewSourcePorts.*10\.79\.0\.11:40000`,
		},
		{
			name:  "a translation to two ports of the node's address",
			make:  rule + `-j SNAT --to-source 10.79.0.11:40000-40001`,
			fails: some, named: `(?s)FewSourcePorts.*10\.79\.0\.11:40000-40001`,
		},
		{
			name: "a masquerade of nftables to one port",
			make: `nft 'add table ip m; add chain ip m c { type nat hook postrouting priority 90; }
				add rule ip m c ip saddr '$C' tcp dport 8080 masquerade to :40000'`,
			fails: some, named: `(?s)FewSourcePorts.*40000`,
		},
		{
			name: "a masquerade of nftables to three ports, at random",
			make: `nft 'add table ip m; add chain ip m c { type nat hook postrouting priority 90; }
				add rule ip m c ip saddr '$C' tcp dport 8080 masquerade to :40000-40002 fully-random'`,
			fails: some, named: `(?s)FewSourcePorts.*40000-40002`,
		},
		{
			name: "a translation of nftables to one port, by a map",
			make: `nft 'add table ip m; add chain ip m c { type nat hook postrouting priority 90; }
				add rule ip m c tcp dport 8080 snat to ip saddr map { '$C' : 10.79.0.11 . 40000 }'`,
			fails: some, named: `(?s)FewSourcePorts.*40000`,
		},
		{
			name: "a translation of the node's own packets to one port", from: "node",
			make:  `iptables-nft -t nat -I POSTROUTING -o eth0 -p tcp --dport 8080 -j SNAT --to-source 10.79.0.11:40000`,
			fails: some, named: `(?s)FewSourcePorts.*10\.79\.0\.11:40000`,
		},
		{
			name: "a masquerade of IPv6 to one port", v6: true,
			make:  `ip6tables-nft -t nat -I POSTROUTING -s $C6 -p tcp --dport 8080 -j MASQUERADE --to-ports 40000`,
			fails: some, named: `(?s)FewSourcePorts.*to-ports 40000`,
		},
		{
			name:  "a masquerade at random",
			make:  rule + `-j MASQUERADE --random-fully`,
			fails: none,
		},
		{
			name:  "a masquerade to all ports but those of servers",
			make:  rule + `-j MASQUERADE --to-ports 1024-65535`,
			fails: none,
		},
		{
			name:  "a translation to some hundred ports",
			make:  rule + `-j SNAT --to-source 10.79.0.11:40000-40255 --random-fully`,
			fails: none,
		},
		{
			name:  "a masquerade to more ports than there are connections",
			make:  rule + `-j MASQUERADE --to-ports 40000-40063`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a masquerade to one port, of another protocol",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -p udp -j MASQUERADE --to-ports 40000`,
			fails: none,
		},
		{
			name:  "a masquerade to one port, of another port's packets",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -p tcp --dport 8081 -j MASQUERADE --to-ports 40000`,
			fails: none,
		},
		{
			name: "a masquerade to one port, of another namespace's address",
			make: `nft 'add table ip m; add chain ip m c { type nat hook postrouting priority 90; }
				add rule ip m c ip saddr 10.245.1.99 tcp dport 8080 masquerade to :40000'`,
			fails: none,
		},
	}
}
