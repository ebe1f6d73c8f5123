// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// routingFaults are those of rules and routes. The kernel's side: fib_rules_lookup (net/core/fib_rules.c), fib_lookup
// and ip_route_input_slow (net/ipv4/route.c), ip6_route_input (net/ipv6/route.c). A pod's packet is routed after DNAT,
// the node's own before it, and again after it.
func routingFaults() []matrixFault {
	return []matrixFault{
		{
			name:  "a rule leads what comes from a pod to a blackhole",
			make:  `route blackhole default table 100; rule pref 100 from $C lookup 100`,
			fails: all, named: `rule 100|table 100|blackhole`, ci: true,
		},
		{
			name:  "a rule leads what comes in by the bridge to a blackhole",
			make:  `route blackhole default table 101; rule pref 101 iif cni0 lookup 101`,
			fails: all, named: `rule 101|table 101|blackhole`,
		},
		{
			name: "a mark of mangle leads to a blackhole",
			make: `route blackhole default table 102; rule pref 102 fwmark 0x100/0x100 lookup 102
				ipt mangle PREROUTING -s $C -d $S -p tcp -j MARK --set-xmark 0x100/0x100`,
			fails: all, named: `rule 102|table 102|blackhole`, ci: true,
		},
		{
			name: "a rule makes an endpoint unreachable for the node",
			make: `rule pref 103 to $R unreachable`, from: "node",
			fails: some, named: `rule 103|unreachable`,
		},
		{
			name:  "a rule prohibits an endpoint to a pod",
			make:  `rule pref 104 from $C to $R prohibit`,
			fails: some, named: `rule 104|prohibit`,
		},
		{
			name: "a rule for the frontend: the node's own packets are routed before DNAT",
			make: `rule pref 105 to $S blackhole`, from: "node",
			fails: all, named: `rule 105|blackhole`,
		},
		{
			name:  "a rule for the frontend: a pod's packets are routed after DNAT",
			make:  `rule pref 105 to $S blackhole`,
			fails: none,
		},
		{
			name:  "an unreachable route to an endpoint",
			make:  `route unreachable $R`,
			fails: some, named: `unreachable`,
		},
		{
			name: "a prohibit route to the endpoint of the node", from: "node",
			make:  `route prohibit $L`,
			fails: some, named: `prohibit`,
		},
		{
			name:  "a table that throws goes on to the next rule",
			make:  `route throw default table 106; rule pref 106 from $C lookup 106`,
			fails: none,
		},
		{
			name: "a rule that suppresses default routes passes a table with a dead gateway",
			make: `route default via 10.79.0.99 table 107
				rule pref 107 from $C lookup 107 suppress_prefixlength 0`,
			fails: none, ci: true,
		},
		{
			name: "a rule that suppresses default routes does not suppress a blackhole",
			make: `route blackhole default table 107
				rule pref 107 from $C lookup 107 suppress_prefixlength 0`,
			fails: all, named: `rule 107|table 107|blackhole`,
		},
		{
			name: "a goto past a blackhole",
			make: `rule pref 108 from $C goto 120; rule pref 120 nop; rule pref 109 from $C blackhole`,
			// the target goes first when it is undone, and the goto is then one that leads nowhere
			fails: none,
		},
		{
			name:  "a goto without a target does not pass a blackhole",
			make:  `rule pref 108 from $C goto 119; rule pref 109 from $C blackhole`,
			fails: all, named: `rule 109|blackhole`,
		},
		{
			name:  "a rule for the endpoints' port",
			make:  `rule pref 110 from $C ipproto tcp dport 8080 blackhole`,
			fails: all, named: `rule 110|blackhole`,
		},
		{
			name:  "a rule for the frontend's port, which a pod's packets no longer have",
			make:  `rule pref 110 from $C ipproto tcp dport 80 blackhole`,
			fails: none,
		},
		{
			name:  "a rule for the answers of an endpoint, by port and interface",
			make:  `rule pref 111 iif eth0 to $C ipproto tcp sport 8080 blackhole`,
			fails: some, named: `rule 111|blackhole`,
		},
		{
			name:  "a rule for the answers of an endpoint, by address",
			make:  `rule pref 112 from $R to $C prohibit`,
			fails: some, named: `rule 112|prohibit`,
		},
		{
			name:  "a rule for another type of service",
			make:  `rule pref 113 from $C tos 0x10 blackhole`,
			fails: none,
		},
		{
			name: "a rule for the user who connects", from: "node",
			make:  `rule pref 114 to $S uidrange 0-0 blackhole`,
			fails: all, named: `rule 114|uidrange|blackhole`,
		},
		{
			name: "a rule for another user", from: "node",
			make:  `rule pref 114 to $S uidrange 54321-54322 blackhole`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a rule that is inverted and matches nothing",
			make:  `rule pref 116 not from all blackhole`,
			fails: none,
		},
		{
			name:  "a rule for VRF devices where there are none",
			make:  `rule pref 117 l3mdev`,
			fails: none,
		},
		{
			name:  "a rule for an outgoing interface, which forwarded packets do not have",
			make:  `rule pref 118 oif eth0 blackhole`,
			fails: none,
		},
		{
			name:  "a blackhole with a worse metric",
			make:  `route blackhole $RCIDR metric 4096`,
			fails: none,
		},
		{
			name:  "a next hop that is nobody",
			make:  `once ip route replace $RCIDR via 10.79.0.99`,
			undo:  `ip route replace $RCIDR via $RNODE; ip neigh flush to 10.79.0.99`,
			fails: some, named: `10\.79\.0\.99`, ci: true,
		},
		{
			// The node on the way sees no answers: where its rules drop what is INVALID, the client's second packet is.
			name:  "a detour by another node",
			make:  `once ip route replace $RCIDR via $QNODE`,
			undo:  `ip route replace $RCIDR via $RNODE`,
			fails: some, named: `is on node`, varies: true, unknownToo: true,
		},
		{
			name: "half of the next hops are nobody",
			make: `tune net.ipv4.fib_multipath_hash_policy 1
				once ip route replace $RCIDR nexthop via $RNODE nexthop via 10.79.0.99`,
			undo:  `ip route replace $RCIDR via $RNODE; ip neigh flush to 10.79.0.99`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name:  "a next hop object that is a blackhole",
			make:  `once ip nexthop add id 98 blackhole; once ip route replace $RCIDR nhid 98`,
			undo:  `ip route replace $RCIDR via $RNODE; ip nexthop del id 98`,
			fails: some, named: `blackhole|nhid 98|nexthop`,
		},
		{
			name: "a group of next hop objects that picks among its members by a table of its own, one of which is nobody",
			make: `tune net.ipv4.fib_multipath_hash_policy 1
				once ip nexthop add id 96 via $RNODE dev eth0; once ip nexthop add id 97 via 10.79.0.99 dev eth0
				once ip nexthop add id 98 group 96/97 type resilient buckets 16; once ip route replace $RCIDR nhid 98`,
			undo: `ip route replace $RCIDR via $RNODE; ip nexthop del id 98; ip nexthop del id 97; ip nexthop del id 96
				ip neigh flush to 10.79.0.99`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name: "a next hop object that is nobody, of which the route does not tell",
			make: `tune net.ipv4.nexthop_compat_mode 0
				once ip nexthop add id 97 via 10.79.0.99 dev eth0; once ip route replace $RCIDR nhid 97`,
			undo:  `ip route replace $RCIDR via $RNODE; ip nexthop del id 97; ip neigh flush to 10.79.0.99`,
			fails: some, named: `nhid 97|10\.79\.0\.99`, live: `EndpointTimeout|EndpointUnreachable|PacketDropped`,
		},
		{
			name:  "an endpoint's address is made the node's own",
			make:  `route local $R dev lo table local`,
			fails: some, named: `local`,
		},
		{
			name:  "an endpoint of another node is routed to the bridge",
			make:  `route $R dev cni0`,
			undo:  `ip neigh flush to $R`,
			fails: some, named: `cni0`,
		},
		{
			name: "the node's own source address is a strange one, and masqueraded", from: "node",
			make:  `once ip addr add 192.0.2.7/32 dev lo; once ip route add $S via 10.79.0.1 src 192.0.2.7`,
			undo:  `ip route del $S via 10.79.0.1 src 192.0.2.7; ip addr del 192.0.2.7/32 dev lo`,
			fails: none,
		},
		{
			name:  "the bridge has lost its address",
			make:  `once ip addr del ${CIDR%.0/24}.1/24 dev cni0`,
			undo:  `ip addr add ${CIDR%.0/24}.1/24 brd + dev cni0`,
			fails: all, named: `cni0|route`,
		},
		{
			name:  "a rule leads what comes from a pod to a blackhole, IPv6",
			make:  `route6 blackhole default table 100; rule6 pref 100 from $C6 lookup 100`,
			v6:    true,
			fails: all, named: `rule 100|table 100|blackhole`,
		},
		{
			name: "an unreachable route to an endpoint, IPv6", from: "node",
			make:  `route6 unreachable $R6`,
			v6:    true,
			fails: some, named: `unreachable`,
		},
		{
			name: "a rule leads what comes from outside to a blackhole", from: "outside",
			make:  `route blackhole default table 100; rule pref 100 from 10.79.0.1 to 10.245.0.0/16 lookup 100`,
			fails: all, named: `rule 100|table 100|blackhole`,
		},
	}
}

// answerFaults are those of the answer's way and of connection tracking: xt_CT.c, nf_conntrack_core.c
// (resolve_normal_ct, with the zone of the direction), nf_tproxy_ipv4.c.
func answerFaults() []matrixFault {
	return []matrixFault{
		{
			name:  "the answers of an endpoint are dropped in FORWARD",
			make:  `ipt filter FORWARD -s $R -p tcp --sport 8080 -j DROP`,
			fails: some, named: `FORWARD`, ci: true,
		},
		{
			name:  "answers are dropped in FORWARD by the direction of the connection",
			make:  `ipt filter FORWARD -d $C -m conntrack --ctdir REPLY -j DROP`,
			fails: all, named: `ctdir|FORWARD`,
		},
		{
			name:  "answers are dropped in FORWARD by the state of the connection",
			make:  `ipt filter FORWARD -d $C -m conntrack --ctstate ESTABLISHED -j DROP`,
			fails: all, named: `ESTABLISHED|FORWARD`,
		},
		{
			name:  "later packets of the client are dropped in FORWARD",
			make:  `ipt filter FORWARD -s $C -d $R -m conntrack --ctstate ESTABLISHED -j DROP`,
			fails: some, named: `ESTABLISHED|FORWARD`,
		},
		{
			name:  "a rule for another state of the connection",
			make:  `ipt filter FORWARD -d $C -m conntrack --ctstate RELATED -p tcp -j DROP`,
			fails: none,
		},
		{
			name: "the answers of an endpoint are dropped in INPUT", from: "node",
			make:  `ipt filter INPUT -s $R -p tcp --sport 8080 -j DROP`,
			fails: some, named: `INPUT`,
		},
		{
			name: "later packets of the node are dropped in OUTPUT", from: "node",
			make:  `ipt filter OUTPUT -d $R -p tcp -m conntrack --ctstate ESTABLISHED -j DROP`,
			fails: some, named: `ESTABLISHED|OUTPUT`,
		},
		{
			name: "answers are dropped by a mark that the request gave the connection",
			make: `ipt mangle PREROUTING -s $C -p tcp -d $S -j CONNMARK --set-mark 0x77
				ipt filter FORWARD -d $C -m connmark --mark 0x77 -m conntrack --ctdir REPLY -j DROP`,
			fails: all, named: `connmark|FORWARD`,
		},
		{
			name:  "answers longer than those of the handshake are dropped",
			make:  `ipt filter FORWARD -d $C -p tcp --sport 8080 -m length --length 61:65535 -j DROP`,
			fails: all, named: `length|FORWARD`,
		},
		{
			name:  "requests are not tracked",
			make:  `ipt raw PREROUTING -s $C -d $S -p tcp -j CT --notrack`,
			fails: all, named: `raw|notrack`,
		},
		{
			name:  "the answers of an endpoint are not tracked",
			make:  `ipt raw PREROUTING -s $R -p tcp --sport 8080 -j CT --notrack`,
			fails: some, named: `raw|notrack`,
		},
		{
			name:  "requests are tracked in a zone, and answers are not",
			make:  `ipt raw PREROUTING -s $C -d $S -p tcp -j CT --zone 5`,
			fails: all, named: `zone`,
		},
		{
			name:  "the zone of answers is one that they are not looked up in",
			make:  `ipt raw PREROUTING -s $C -d $S -p tcp -j CT --zone-reply 5`,
			fails: some, named: `zone`,
		},
		{
			name:  "the zone of requests is of that direction alone",
			make:  `ipt raw PREROUTING -s $C -p tcp -j CT --zone-orig 5`,
			fails: none,
		},
		{
			name:  "another frontend is not tracked",
			make:  `ipt raw PREROUTING -s $C -d $U -j CT --notrack`,
			fails: none,
		},
		{
			name:  "TPROXY without a socket that listens",
			make:  `ipt mangle PREROUTING -s $C -d $S -p tcp --dport 80 -j TPROXY --on-port 5999`,
			fails: all, named: `TPROXY`,
		},
		{
			name:  "tproxy of nftables without a socket that listens goes on",
			make:  `hook tproxy ip prerouting -150 "ip saddr $C ip daddr $S tcp dport 80 tproxy to :5999"`,
			fails: none, unknownToo: true,
		},
		{
			// Where rules of both backends translate the source, the first of them counts.
			name:  "a source address of another's choice that nothing answers to",
			make:  `ipt nat POSTROUTING -s $C -d $R -p tcp --dport 8080 -j SNAT --to-source 192.0.2.1`,
			fails: some, named: `SNAT|192\.0\.2\.1`, varies: true, unknownToo: true,
		},
		{
			// Not what goes to an endpoint on the same bridge: after DNAT that is bridged, and never forwarded
			// (br_nf_pre_routing_finish, net/bridge/br_netfilter_hooks.c).
			name:  "a time to live that ends on the node",
			make:  `ipt mangle PREROUTING -s $C -d $S -j TTL --ttl-set 1`,
			fails: some, named: `ttl`,
		},
	}
}
