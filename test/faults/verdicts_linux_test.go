// SPDX-License-Identifier: Apache-2.0

package faults

// verdictFaults are rules that choose among packets by other means than their addresses: in turn, at random, by maps,
// sets, hours and options; and settings that keep hosts from being asked.
func verdictFaults() []fault {
	rule := func(text string) string { return "hook f inet forward 0 '" + text + "'; " }
	chain := func(family, where, text string) string {
		return "nft add table " + family + " fault_f; nft add chain " + family + " fault_f c \"{ type filter hook " + where +
			" priority 0; }\"; nft add rule " + family + " fault_f c " + text
	}
	return []fault{
		{
			name: "one in three packets is dropped, in turn", fails: some, named: `FORWARD`, mismatch: true,
			make: "iptables -t mangle -A FORWARD -m statistic --mode nth --every 3 --packet 0 -j DROP",
		},
		{name: "nftables drops packets in turn", make: rule("numgen inc mod 3 0 drop"), fails: some, named: `fault_f`},
		{
			name: "nftables drops packets at random", make: rule("meta random <= 2000000000 drop"), fails: some,
			named: `fault_f`,
		},
		{
			name: "a map of verdicts, by address and port", fails: some, named: `fault_f`, mismatch: true,
			make: rule("ip daddr . tcp dport vmap { '$R' . 8080 : drop, '$L' . 8081 : drop }"),
		},
		{
			name: "a map of verdicts, by ranges of ports", fails: all, named: `fault_f`, mismatch: true,
			make: rule("tcp dport vmap { 1-1023 : accept, 8000-8999 : drop }"),
		},
		{
			name: "a map of verdicts, by interfaces", fails: some, named: `fault_f`, mismatch: true,
			make: rule(`iifname . oifname vmap { "cni0" . "eth0" : drop }`),
		},
		{
			name: "ingress of several devices", fails: some, named: `fault_f`, mismatch: true,
			make: chain("netdev", "ingress devices = { eth0, lo }", "tcp sport 8080 drop"),
		},
		{
			name: "ingress of several devices, one of which takes the clients' ports", fails: some, named: `fault_f`,
			make: chain("netdev", "ingress devices = { eth0, $CV }", "tcp sport 8080 drop"),
		},
		{
			name: "egress of the client's port, by the port that answers have there", fails: all, named: `fault_f`,
			make: chain("netdev", "egress device $CV", "tcp sport 80 drop"), mismatch: true,
		},
		{
			name: "egress of the client's port, by the port that answers had before", fails: none,
			make: chain("netdev", "egress device $CV", "tcp sport 8080 drop"),
		},
		{
			name: "ingress of a device, in a table for all families", fails: some, named: `fault_f`, mismatch: true,
			make: chain("inet", "ingress device eth0", "tcp sport 8080 drop"),
		},
		{
			name: "ingress rejects", fails: all, named: `fault_f`, mismatch: true,
			make: chain("netdev", "ingress device $CV", "ip daddr $S reject"),
		},
		{name: "an option that all connections have", make: rule("tcp option sack-perm exists drop"), fails: all, named: `fault_f`},
		{name: "an option that nobody sends", make: rule("tcp option 253 exists drop"), fails: none, unknownToo: true},
		{name: "a rule for all hours but the last", make: rule(`meta hour "00:00"-"23:58" drop`), fails: all, named: `fault_f`},
		{name: "a rule for the MTU of the route", make: rule("rt mtu < 1500 drop"), fails: all, named: `fault_f`},
		{
			name: "the MTU of the route makes segments small", fails: none,
			make: rule("tcp flags syn tcp option maxseg size set rt mtu"),
		},
		{name: "what is said of packets, and counted", make: rule(`log prefix "x" counter`), fails: none},
		{name: "packets for all hosts are dropped", make: rule("meta pkttype broadcast drop"), fails: none},
		{
			name: "copies go to another node", make: "iptables -t mangle -A FORWARD -j TEE --gateway $QNODE", fails: none,
			unknownToo: true,
		},
		{
			name: "another rule translates as kube-proxy's do", fails: none, unknownToo: true, named: `Shadowed`,
			make: `nft add table ip x; nft 'add chain ip x c { type nat hook prerouting priority -110; }'
				nft "add rule ip x c ip daddr $S tcp dport 80 dnat ip to numgen random mod 3 map \
					{ 0 : $L . 8080, 1 : $R . 8080, 2 : 10.245.2.4 . 8080 }"`,
		},
		{
			name: "IPsec refuses by default what is forwarded", fails: some, varies: true,
			named: `default policy: fwd block`, make: "ip xfrm policy setdefault fwd block",
		},
		{
			name: "IPsec refuses by default what is forwarded, IPv6", fails: some, varies: true, v6: true,
			named: `default policy: fwd block`, make: "ip xfrm policy setdefault fwd block",
		},
		{
			name: "IPsec refuses by default what leaves", fails: all, named: `default policy: out block`,
			make: "ip xfrm policy setdefault out block",
		},
		{
			name: "IPsec refuses by default what comes to the node", fails: all, from: "node",
			named: `default policy: in block`, make: "ip xfrm policy setdefault in block",
		},
		{
			name: "IPsec accepts by default again", fails: none,
			make: "ip xfrm policy setdefault out block; ip xfrm policy setdefault out accept",
		},
		{
			name: "a policy of IPsec refuses what is forwarded", fails: some, named: `xfrm`,
			make: "for d in fwd out; do ip xfrm policy add src 10.245.1.0/24 dst $RCIDR dir $d action block; done",
		},
		{
			name: "a policy of IPsec refuses what is forwarded to the frontend", fails: some, named: `xfrm`,
			make: "ip xfrm policy add src $C dst $S dir fwd action block",
		},
		{
			name: "a policy of IPsec is for the endpoint, and packets came to the frontend", fails: none,
			make: "ip xfrm policy add src $C dst $R dir fwd action block",
		},
		{
			name: "a policy of IPsec refuses the answer, as it comes to the node's address", fails: some, named: `xfrm`,
			make: "ip xfrm policy add src $R dst 10.79.0.11 dir fwd action block",
		},
		{
			name: "a policy of IPsec is for answers to the client, which come to the node's address", fails: none,
			make: "ip xfrm policy add src $R dst $C dir fwd action block",
		},
		{
			name: "a policy of IPsec is for answers of the frontend, which come from the endpoint", fails: none,
			make: "ip xfrm policy add src $S dst $C dir fwd action block",
		},
		{
			name: "a policy of IPsec refuses what the node sends to the frontend", fails: all, named: `xfrm`, from: "node",
			make: "ip xfrm policy add src 0.0.0.0/0 dst $S dir out action block",
		},
		{
			name: "a policy of IPsec refuses what the node sends to an endpoint", fails: some, named: `xfrm`, from: "node",
			make: "ip xfrm policy add src 0.0.0.0/0 dst $R dir out action block",
		},
		{
			name: "a policy of IPsec refuses answers to the node", fails: some, named: `xfrm`, from: "node",
			make: "ip xfrm policy add src $R dst 0.0.0.0/0 dir in action block",
		},
		{
			name: "a set of sets", fails: some, named: `FORWARD`, mismatch: true,
			make: "ipset create n hash:net; ipset add n $RCIDR; ipset create l list:set; ipset add l n; " +
				"iptables -A FORWARD -m set --match-set l dst -j DROP",
		},
		{
			name: "a set of ports", fails: all, named: `FORWARD`, mismatch: true,
			make: "ipset create n bitmap:port range 8000-9000; ipset add n 8080; " +
				"iptables -A FORWARD -p tcp -m set --match-set n dst -j DROP",
		},
		{
			name: "a set with exceptions", fails: some, named: `FORWARD`, mismatch: true,
			make: "ipset create n hash:net; ipset add n 10.245.0.0/16; ipset add n $RCIDR nomatch; ipset add n $L nomatch; " +
				"iptables -A FORWARD -m set --match-set n dst -j DROP",
		},
		{name: "the port of an endpoint alone is isolated", make: "bridge link set dev $LV isolated on", fails: none},
		{
			name: "the ports of a client and of an endpoint are isolated", fails: some, named: `isolated`, mismatch: true,
			make: "for p in $LV $CV; do bridge link set dev $p isolated on; done",
		},
		{name: "the uplink takes no multicasts", make: "forget; ip link set eth0 multicast off", v6: true, fails: none},
		{
			name: "nobody is asked for a neighbour", fails: some, named: `neigh|mcast_solicit`,
			make: "forget; sysctl -qw net.ipv4.neigh.eth0.mcast_solicit=0",
		},
		{
			name: "nobody is asked for a neighbour, IPv6", v6: true, fails: some, named: `neigh|mcast_solicit`,
			make: "forget; sysctl -qw net.ipv6.neigh.eth0.mcast_solicit=0",
		},
	}
}
