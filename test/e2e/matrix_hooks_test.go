// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// hookFaults are those of rules in every family, and of matches that depend on what no file tells. The order of hooks:
// netdev ingress, inet ingress, bridge, ip; a table that accepts ends its own chain only, one that drops ends all
// (nf_hook_slow, net/netfilter/core.c).
func hookFaults() []matrixFault {
	return []matrixFault{
		{
			name:  "netdev ingress drops what a pod sends",
			make:  `hook in netdev "ingress device \"$CV\"" 0 "ip daddr $S drop"`,
			fails: all, named: `netdev|fault_in`, ci: true,
		},
		{
			name:  "netdev ingress drops another protocol",
			make:  `hook in netdev "ingress device \"$CV\"" 0 "udp dport 9 drop"`,
			fails: none,
		},
		{
			name:  "netdev egress drops what goes to an endpoint",
			make:  `hook out netdev "egress device \"eth0\"" 0 "ip daddr $R tcp dport 8080 drop"`,
			fails: some, named: `netdev|fault_out`,
		},
		{
			name:  "netdev egress drops the answers to a pod",
			make:  `hook out netdev "egress device \"$CV\"" 0 "ip saddr $S tcp sport 80 drop"`,
			fails: all, named: `netdev|fault_out`,
		},
		{
			name:  "inet ingress drops the answers of an endpoint",
			make:  `hook in inet "ingress device \"eth0\"" 0 "ip saddr $R tcp sport 8080 drop"`,
			fails: some, named: `ingress|fault_in`,
		},
		{
			name:  "inet ingress drops on another interface",
			make:  `hook in inet "ingress device \"$LV\"" 0 "ip saddr $C drop"`,
			fails: none,
		},
		{
			name:  "a bridge's prerouting drops what a pod sends",
			make:  `hook pre bridge prerouting -300 "ip saddr $C ip daddr $S drop"`,
			fails: all, named: `bridge|fault_pre`,
		},
		{
			name:  "a bridge's forward drops the answers of the endpoint of the node",
			make:  `hook fwd bridge forward 0 "ip saddr $L ip daddr $C drop"`,
			fails: some, named: `bridge|fault_fwd`,
		},
		{
			name: "a bridge's output drops what goes to the endpoint of the node", from: "node",
			make:  `hook out bridge output 0 "ip daddr $L tcp dport 8080 drop"`,
			fails: some, named: `bridge|fault_out`,
		},
		{
			// br_nf_pre_routing_finish hands what has got an address on the same bridge back to the bridge: it is forwarded
			// there, and not sent by the node.
			name:  "a bridge's output drops what goes to an endpoint, which a pod's packets do not pass",
			make:  `hook out bridge output 0 "ip daddr $L tcp dport 8080 drop"`,
			fails: none,
		},
		{
			name:  "a bridge's forward drops what goes to the endpoint of the node",
			make:  `hook fwd bridge forward 0 "ip daddr $L tcp dport 8080 drop"`,
			fails: some, named: `bridge|fault_fwd`,
		},
		{
			name: "a bridge's input drops what endpoints answer the node", from: "node",
			make:  `hook in bridge input 0 "ip saddr $L tcp sport 8080 drop"`,
			fails: some, named: `bridge|fault_in`,
		},
		{
			name:  "a bridge drops what goes to an endpoint of another node, which is not bridged",
			make:  `hook fwd bridge forward 0 "ip daddr $R drop"`,
			fails: none,
		},
		{
			name: "arp drops what another node asks and answers", from: "node",
			make:  `hook in arp input 0 "arp saddr ip $RNODE drop"`,
			more:  `ip neigh flush to $RNODE; ip neigh del $RNODE dev eth0 2>/dev/null || true`,
			undo:  `ip neigh flush to $RNODE`,
			fails: some, named: `arp|neigh|` + `10\.79\.0\.1\d`,
		},
		{
			name:  "another table drops in forward, whatever this one accepts",
			make:  `hook fwd inet forward 10 "ip saddr $C ip daddr $R drop"`,
			fails: some, named: `fault_fwd`,
		},
		{
			name: "two chains of one priority whose order does not matter",
			make: `hook one inet forward 0 "ip saddr $C ip daddr $R accept"
				hook two inet forward 0 "ip saddr $C ip daddr 198.51.100.9 drop"`,
			fails: none,
		},
		{
			name: "two chains of one priority: the mark is set before it is asked for",
			make: `hook two inet prerouting -160 "meta mark & 0x200 == 0x200 ip saddr $C drop"
				hook one inet prerouting -160 "ip saddr $C ip daddr $S meta mark set meta mark | 0x200"`,
			fails: all, named: `fault_two|priority|order`,
		},
		{
			name: "two chains of one priority: the mark is set after it is asked for",
			make: `hook one inet prerouting -160 "ip saddr $C ip daddr $S meta mark set meta mark | 0x200"
				hook two inet prerouting -160 "meta mark & 0x200 == 0x200 ip saddr $C drop"`,
			fails: none, unknownToo: true,
		},
		{
			name: "two chains of one priority, and one drops in any order",
			make: `hook one inet forward 0 "ip saddr $C ip daddr $R accept"
				hook two inet forward 0 "ip saddr $C ip daddr $R drop"`,
			fails: some, named: `fault_two`,
		},
		{
			name:  "the client's connections get one source port for all",
			make:  `ipt nat POSTROUTING -s $C -p tcp --dport 8080 -j MASQUERADE --to-ports 40000`,
			fails: some, named: `FewSourcePorts`, aside: true, ci: true,
		},
		{
			name:  "the client's connections get one of very many source ports",
			make:  `ipt nat POSTROUTING -s $C -p tcp --dport 8080 -j MASQUERADE --to-ports 1024-65535`,
			fails: none,
		},
		{
			name:  "a rule drops for another interface",
			make:  `ipt filter FORWARD -i eth9 -d $R -j DROP`,
			fails: none,
		},
		{
			name: "a set of addresses has an endpoint",
			make: `once ipset create fault hash:ip; once ipset add fault $R
				ipt filter FORWARD -s $C -m set --match-set fault dst -j DROP
				[ -z "$undo" ] || ipset destroy fault`,
			fails: some, named: `FORWARD|fault`,
		},
		{
			name:  "a list of xt_recent has the pod",
			make:  `ipt filter FORWARD -m recent --name fault --rcheck -j DROP`,
			more:  `echo "+$C" >/proc/net/xt_recent/fault`,
			fails: all, named: `recent`,
		},
		{
			name:  "a list of xt_recent has others",
			make:  `ipt filter FORWARD -m recent --name fault --rcheck -j DROP`,
			more:  `echo "+198.51.100.9" >/proc/net/xt_recent/fault`,
			fails: none, unknownToo: true,
		},
		{
			name:  "more connections than a rule allows",
			make:  `ipt filter FORWARD -s $C -p tcp --syn -m connlimit --connlimit-above 2 -j DROP`,
			fails: some, named: `connlimit`,
		},
		{
			name: "more packets than a rule allows",
			make: `ipt filter FORWARD -s $C -p tcp --syn -m hashlimit --hashlimit-name fault --hashlimit-mode srcip ` +
				`--hashlimit-above 1/minute --hashlimit-burst 2 -j DROP`,
			fails: some, named: `hashlimit`,
		},
		{
			name:  "a quota that is used up",
			make:  `ipt filter FORWARD -s $C -d $R -p tcp -j DROP; ipt filter FORWARD -s $C -d $R -p tcp -m quota --quota 100 -j ACCEPT`,
			fails: some, named: `quota|FORWARD`,
		},
		{
			name:  "a queue that nobody reads",
			make:  `ipt filter FORWARD -s $C -p tcp -j NFQUEUE --queue-num 77`,
			fails: all, named: `queue`,
		},
		{
			name:  "a queue that nobody reads and that may be passed by",
			make:  `ipt filter FORWARD -s $C -p tcp -j NFQUEUE --queue-num 77 --queue-bypass`,
			fails: none, unknownToo: true,
		},
		{
			name:  "some packets are dropped at random",
			make:  `ipt filter FORWARD -s $C -p tcp -m statistic --mode random --probability 0.5 -j DROP`,
			fails: some, named: `FORWARD`,
		},
		{
			name:  "the segment size is made smaller",
			make:  `ipt mangle FORWARD -p tcp --syn -j TCPMSS --set-mss 1000`,
			fails: none,
		},
		{
			name: "what comes from outside is dropped on its way to an endpoint of another node", from: "outside",
			make:  `ipt filter FORWARD -i eth0 -o eth0 -p tcp --dport 8080 -j DROP`,
			fails: some, named: `FORWARD`,
		},
		{
			name:  "IPv6 alone is dropped in FORWARD",
			make:  `ip6t filter FORWARD -s $C6 -p tcp -j DROP`,
			v6:    true,
			fails: all, named: `FORWARD`,
		},
		{
			name:  "neighbour discovery is dropped",
			make:  `hook nd ip6 input 0 "icmpv6 type { nd-neighbor-advert, nd-neighbor-solicit } iifname eth0 drop"`,
			more:  `ip -6 neigh flush dev eth0; ip -6 neigh del $RNODE6 dev eth0 2>/dev/null || true`,
			undo:  `ip -6 neigh flush dev eth0`,
			v6:    true,
			fails: some, named: `neigh|icmpv6|fault_nd`,
		},
	}
}
