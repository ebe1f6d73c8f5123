// SPDX-License-Identifier: Apache-2.0

package faults

// neighbourFaults are entries of the neighbour table that are wrong until the kernel asks again, and what hosts answer.
func neighbourFaults() []fault {
	return []fault{
		{
			name: "an entry of another node is wrong, and reachable", from: "node",
			make:  `ip neigh replace $RNODE dev eth0 lladdr 02:00:00:00:00:99 nud reachable`,
			fails: some, named: `02:00:00:00:00:99`,
		},
		{
			name:  "an entry of another node is wrong, and stale",
			make:  `ip neigh replace $RNODE dev eth0 lladdr 02:00:00:00:00:99 nud stale`,
			fails: some, named: `02:00:00:00:00:99`,
		},
		{
			name:  "an entry of an endpoint of the node is wrong, and stale",
			make:  `touch_all; ip neigh replace $L dev cni0 lladdr 02:00:00:00:00:99 nud stale`,
			fails: some, named: `02:00:00:00:00:99`,
		},
		{
			name:  "an entry of an endpoint of the node is that of another pod, and reachable",
			make:  `touch_all; ip neigh replace $L dev cni0 lladdr $CMAC nud reachable`,
			fails: some, named: `neigh`,
		},
		{
			name:  "an entry of the client is wrong, and reachable",
			make:  `touch_all; ip neigh replace $C dev cni0 lladdr 02:00:00:00:00:99 nud reachable`,
			fails: some, named: `02:00:00:00:00:99`,
		},
		{
			name:  "an entry of another node is that of a third",
			make:  `ip neigh replace $QNODE dev eth0 lladdr $QMAC nud stale; ip neigh replace $RNODE dev eth0 lladdr $QMAC nud reachable`,
			fails: some, named: `OtherNeighbour`,
		},
		{
			name:  "an entry of another node is that of a third, of which nothing else is known",
			make:  `ip neigh replace $RNODE dev eth0 lladdr $QMAC nud reachable`,
			fails: some, named: `OtherNeighbour`,
		},
		{
			name: "IPv6: an entry of another node is that of a third", v6: true,
			make: `ip -6 neigh replace $QNODE6 dev eth0 lladdr $QMAC nud stale
				ip -6 neigh replace $RNODE6 dev eth0 lladdr $QMAC nud reachable`,
			fails: some, named: `OtherNeighbour`,
		},
		{
			name:  "an entry that nobody needs is that of a third",
			make:  `ip neigh replace 10.79.0.99 dev eth0 lladdr $QMAC nud reachable`,
			fails: none,
		},
		{
			name:  "entries are right, and stale",
			make:  `touch_all; for n in "$L cni0 $LMAC" "$RNODE eth0 $RMAC"; do set -- $n; ip neigh replace $1 dev $2 lladdr $3 nud stale; done`,
			fails: none,
		},
	}
}

// policyFaults are those of rules that ask for ports and protocols.
func policyFaults() []fault {
	return []fault{
		{
			name:  "a rule for the ports that clients choose",
			make:  `ip rule add pref 100 from $C ipproto tcp sport 32768-60999 blackhole`,
			fails: all, named: `sport`,
		},
		{
			name: "a rule for the ports that the node's clients choose", from: "node",
			make:  `ip rule add pref 100 ipproto tcp sport 1024-65534 to $R blackhole`,
			fails: some, named: `sport`,
		},
		{
			name:  "a rule for some of the ports that clients choose",
			make:  `ip rule add pref 100 from $C ipproto tcp sport 32768-46000 blackhole`,
			fails: none, named: `sport`, unknownToo: true, varies: true, // the ports for one destination are near each other
		},
		{
			name:  "a rule for ports that clients do not choose",
			make:  `ip rule add pref 100 from $C ipproto tcp sport 1-1023 blackhole`,
			fails: none,
		},
		{
			name:  "a rule for another protocol",
			make:  `ip rule add pref 100 from $C ipproto udp blackhole`,
			fails: none,
		},
		{
			name:  "a rule for another port",
			make:  `ip rule add pref 100 from $C ipproto tcp dport 8081 blackhole`,
			fails: none,
		},
		{
			name:  "a rule for a range of ports",
			make:  `ip rule add pref 100 from $C ipproto tcp dport 8000-8100 blackhole`,
			fails: all, named: `dport`, mismatch: true,
		},
		{
			name: "the node's packets are routed behind the translation, too: a rule for the endpoints' port", from: "node",
			make:  `ip rule add pref 100 ipproto tcp dport 8080 blackhole`,
			fails: all, named: `dport`, mismatch: true,
		},
		{
			name: "a rule for the frontend's port", from: "node",
			make:  `ip rule add pref 100 ipproto tcp dport 80 to $S blackhole`,
			fails: all, named: `dport`, mismatch: true,
		},
		{
			name:  "a rule for the answers' port",
			make:  `ip rule add pref 100 to $C ipproto tcp sport 8080 blackhole`,
			fails: some, named: `sport`, mismatch: true,
		},
	}
}

// routeFaults are those of next hops.
func routeFaults() []fault {
	return []fault{
		{
			name:  "a gateway that nobody has, said to be on the link",
			make:  `ip route replace $RCIDR via 192.0.2.9 dev eth0 onlink`,
			fails: some, named: `192\.0\.2\.9`,
		},
		{
			name:  "a gateway that is another name of the node, said to be on the link",
			make:  `in_remote ip addr add 192.0.2.9/32 dev eth0; ip route replace $RCIDR via 192.0.2.9 dev eth0 onlink`,
			fails: none, unknownToo: true,
		},
		{
			name: "one of two next hops is down, and its share is lost",
			make: `ip link add d0 type veth peer name d1; ip link set d0 up; ip addr add 10.80.0.1/24 dev d0
				sysctl -qw net.ipv4.fib_multipath_hash_policy=1
				ip link set d1 up; ip route replace $RCIDR nexthop via $RNODE nexthop via 10.80.0.2; ip link set d1 down`,
			fails: some, named: `10\.80\.0\.2|d0`,
		},
		{
			name: "one of two next hops is down, and is not used",
			make: `ip link add d0 type veth peer name d1; ip link set d0 up; ip addr add 10.80.0.1/24 dev d0
				sysctl -qw net.ipv4.fib_multipath_hash_policy=1 net.ipv4.conf.d0.ignore_routes_with_linkdown=1
				ip link set d1 up; ip route replace $RCIDR nexthop via $RNODE nexthop via 10.80.0.2; ip link set d1 down`,
			fails: none,
		},
		{
			name: "a group of next hop objects, one of which nobody has",
			make: `sysctl -qw net.ipv4.fib_multipath_hash_policy=1
				ip nexthop add id 1 via $RNODE dev eth0; ip nexthop add id 2 via 10.79.0.99 dev eth0
				ip nexthop add id 10 group 1/2; ip route replace $RCIDR nhid 10`,
			fails: none, named: `10\.79\.0\.99`, varies: true, unknownToo: true, // the first packet is lost
		},
		{
			name:  "a group of next hop objects of one",
			make:  `ip nexthop add id 1 via $RNODE dev eth0; ip nexthop add id 10 group 1; ip route replace $RCIDR nhid 10`,
			fails: none,
		},
		{
			name:  "a next hop object of the other family",
			make:  `ip nexthop add id 1 via fe80::99 dev eth0; ip route replace $RCIDR nhid 1`,
			fails: some, named: `fe80::99`,
		},
		{
			name:  "a next hop of the other family",
			make:  `ll=$(in_remote ip -6 -br addr show dev eth0 scope link | awk '{print $3}'); ip route replace $RCIDR via inet6 ${ll%/*} dev eth0`,
			fails: none,
		},
		{
			name: "IPv6: one of two next hops is nobody", v6: true,
			make: `sysctl -qw net.ipv6.fib_multipath_hash_policy=1
				ip -6 route replace $RCIDR6 nexthop via $RNODE6 nexthop via fd00:79::99`,
			fails: some, named: `fd00:79::99`,
		},
		{
			name:  "a route whose MTU is too small for nothing",
			make:  `ip route replace $RCIDR via $RNODE mtu 600`,
			fails: none,
		},
		{
			name:  "a route with a metric that is worse and a dead gateway",
			make:  `ip route add $RCIDR via 10.79.0.99 metric 500`,
			fails: none,
		},
		{
			name:  "a longer route with a dead gateway",
			make:  `ip route add $R via 10.79.0.99`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name:  "the route to another node's pods is gone",
			make:  `ip route del $RCIDR`,
			fails: some, named: `RouteMissing`,
		},
		{
			name: "the route to another node's pods is gone, of IPv6", v6: true,
			make:  `ip -6 route del $RCIDR6`,
			fails: some, named: `RouteMissing`,
		},
		{
			name: "the default gateway routes to all other nodes' pods",
			make: `ip route del $RCIDR; ip route del 10.245.2.0/24; in_lan sysctl -qw net.ipv4.ip_forward=1
				in_lan ip route add $RCIDR via $RNODE; in_lan ip route add 10.245.2.0/24 via $QNODE`,
			fails: none,
		},
		{
			name:  "a route that asks for a larger segment than the link takes",
			make:  `ip route replace $RCIDR via $RNODE advmss 65000 mtu 1500`,
			fails: none,
		},
		{
			name:  "a route with a source that is another host's",
			make:  `ip addr add 192.0.2.55/32 dev lo; ip route replace $RCIDR via $RNODE src 192.0.2.55`,
			fails: none,
		},
		{
			name: "a route with a source that nobody answers to, of the node's own packets", from: "node",
			make:  `ip addr add 192.0.2.55/32 dev lo; ip route replace $S via 10.79.0.1 src 192.0.2.55; iptables-nft -t nat -I POSTROUTING -s 192.0.2.55 -p tcp --dport 8080 -j ACCEPT`,
			fails: some, named: `POSTROUTING`,
		},
		{
			name:  "a route whose congestion control and window are set",
			make:  `ip route replace $RCIDR via $RNODE initcwnd 1 window 1000 rto_min 200ms`,
			fails: none,
		},
		{
			name:  "a throw route in main",
			make:  `ip route add throw $R`,
			fails: some, named: `throw|no route|table`,
		},
		{
			name:  "a host route to the client by another interface",
			make:  `ip route add $C dev eth0`,
			fails: some, named: `eth0`,
		},
		{
			name: "a route to the frontend that the node's own packets need", from: "node",
			make:  `ip route del default; ip rule add pref 100 to 10.97.0.0/16 unreachable`,
			fails: all, named: `unreachable`, mismatch: true,
		},
		{
			name:  "no default route, which pods' packets to the frontend do not need",
			make:  `ip route del default`,
			fails: none,
		},
		{
			name: "no default route, which the node's own packets need", from: "node",
			make:  `ip route del default`,
			fails: all, named: `no route|route`, mismatch: true,
		},
	}
}
