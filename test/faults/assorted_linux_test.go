// SPDX-License-Identifier: Apache-2.0

package faults

// assortedFaults are of all kinds: rules, routes, links and settings that decide over connections to a ClusterIP or a
// NodePort from a pod, from the node and from outside.
func assortedFaults() []fault {
	return []fault{
		{
			name: "a chain of somebody's in a table of iptables has its own hook, and passes all", fails: none,
			make: `nft add chain ip filter X '{ type filter hook forward priority 5; }'`,
		},
		{
			name: "a chain of somebody's in a table of iptables has its own hook, and drops", fails: some, named: `filter X`,
			make: `nft add chain ip filter X '{ type filter hook forward priority 5; }'; nft add rule ip filter X ip daddr $R drop`,
		},
		{name: "a rule before the local table for others", fails: none, make: `ip rule add pref 0 from 192.0.2.1 blackhole`},
		{
			name: "a rule before that of the local table has routes to the networks of the node's addresses", fails: all,
			named: `10\.79\.0\.11|4: from`,
			make:  `ip rule del pref 0; ip rule add pref 5 lookup local; ip rule add pref 4 lookup main`,
		},
		{
			name: "a rule before that of the local table has no route for the node", fails: all, from: "node", named: `4: from`,
			make: `ip rule del pref 0; ip rule add pref 5 lookup local; ip rule add pref 4 blackhole`,
		},
		{
			name: "the local table comes behind a route to the node's address, NodePort from outside", from: "outside",
			nodePort: true, fails: all, named: `4: from|table 44`,
			make: `ip rule del pref 0; ip rule add pref 5 lookup local; ip rule add pref 4 iif eth0 lookup 44
				ip route add blackhole default table 44`,
		},
		{
			name: "the node's NodePort address is given to another interface, and kept", from: "outside", nodePort: true,
			fails: none, make: `ip link add d5 type dummy || ip link add d5 type veth peer name d6
				ip addr add 10.79.0.11/32 dev d5; ip link set d5 up`,
		},
		{
			name: "packets from outside come to a NodePort by a route with another source", from: "outside", nodePort: true,
			make: `ip route add 10.79.0.1/32 dev eth0 src 10.245.1.1`, fails: none,
		},
		{
			name: "a NodePort from outside, and rp_filter with a route back by a pod", from: "outside", nodePort: true,
			make:  `sysctl -qw net.ipv4.conf.eth0.rp_filter=1; ip route add 10.79.0.1/32 dev cni0`,
			fails: all, named: `rp_filter|ReversePath`,
		},
		{
			name: "a NodePort from outside, and answers leave by a blackhole", from: "outside", nodePort: true,
			make: `ip route add blackhole 10.79.0.1/32`, fails: all, named: `blackhole`,
		},
		{
			name: "INPUT drops NodePorts, which are translated before", from: "outside", nodePort: true, fails: none,
			make: `iptables-nft -I INPUT -p tcp --dport 30358 -j DROP`,
		},
		{
			name: "raw drops a NodePort", from: "outside", nodePort: true, fails: all, named: `PREROUTING`, mismatch: true,
			make: `iptables-nft -t raw -I PREROUTING -p tcp --dport 30358 -j DROP`,
		},
		{
			name: "FORWARD rejects a NodePort by the port that was asked for", from: "outside", nodePort: true, fails: all,
			named: `FORWARD`, make: `iptables-nft -I FORWARD -m conntrack --ctorigdstport 30358 -j REJECT`,
		},
		{
			name: "FORWARD drops what was translated", fails: all, named: `FORWARD`, mismatch: true,
			make: `iptables-nft -I FORWARD -m conntrack --ctstate DNAT -j DROP`,
		},
		{
			name: "FORWARD drops what was not translated", fails: none,
			make: `iptables-nft -I FORWARD -m conntrack ! --ctstate DNAT -j DROP`,
		},
		{
			name: "FORWARD drops by the direction of answers", fails: all, named: `FORWARD`, mismatch: true,
			make: `iptables-nft -I FORWARD -m conntrack --ctdir REPLY -d $C -j DROP`,
		},
		{
			name: "OUTPUT drops by the destination behind translation, from the node", from: "node", fails: some,
			named: `OUTPUT`, mismatch: true, make: `iptables-nft -A OUTPUT -d $R -p tcp -j DROP`,
		},
		{
			name: "OUTPUT of mangle drops what is to the frontend, from the node", from: "node", fails: all, named: `OUTPUT`,
			mismatch: true, make: `iptables-nft -t mangle -A OUTPUT -d $S -j DROP`,
		},
		{
			name: "mangle marks answers for a table without a route", fails: some, named: `77`,
			make: `iptables-nft -t mangle -A PREROUTING -i eth0 -s $R -j MARK --set-mark 0x77
				ip rule add pref 77 fwmark 0x77 lookup 77; ip route add unreachable default table 77`,
		},
		{
			name: "a connection's mark leads answers to a blackhole", fails: some, named: `78`,
			make: `iptables-nft -t mangle -A FORWARD -d $R -j CONNMARK --set-mark 0x78
				iptables-nft -t mangle -A PREROUTING -i eth0 -j CONNMARK --restore-mark
				ip rule add pref 78 fwmark 0x78 blackhole`,
		},
		{
			name: "the default route is gone, which nothing needs", fails: none, make: `ip route del default`,
		},
		{
			name: "a route to the Service network by the uplink, which requests do not take", fails: none,
			make: `ip route add 10.97.0.0/16 via 10.79.0.1`,
		},
		{
			name: "the Service network is unreachable, from the node", from: "node", fails: all, named: `unreachable 10\.97`,
			make: `ip route add unreachable 10.97.0.0/16`,
		},
		{
			name: "the Service network is unreachable, from a pod", fails: none,
			make: `ip route add unreachable 10.97.0.0/16`,
		},
		{
			name: "the Service network is unreachable, from a pod, IPv6", v6: true, fails: none,
			make: `ip -6 route add unreachable fd00:10:97::/64`,
		},
		{
			name: "the Service network is unreachable, from the node, IPv6", v6: true, from: "node", fails: all,
			named: `unreachable fd00:10:97`, make: `ip -6 route add unreachable fd00:10:97::/64`,
		},
		{
			name: "an address of the Service is on the node, from a pod", fails: none,
			make: `ip addr add $S/32 dev lo`,
		},
		{
			name: "an address of the Service is on the node, from the node", from: "node", fails: none, unknownToo: true,
			make: `ip addr add $S/32 dev lo`,
		},
		{
			name: "UDP: FORWARD drops datagrams from the endpoint's port", udp: true, fails: all, named: `FORWARD`,
			make: `iptables-nft -I FORWARD -p udp --sport 8080 -j DROP`,
		},
		{
			name: "UDP: FORWARD drops TCP", udp: true, fails: none, make: `iptables-nft -I FORWARD -p tcp -j DROP`,
		},
		{
			name: "UDP: FORWARD drops what is new", udp: true, fails: all, named: `FORWARD`, mismatch: true,
			make: `iptables-nft -I FORWARD -m conntrack --ctstate NEW -p udp -j DROP`,
		},
		{
			name: "UDP: a rule of routing is for datagrams to the endpoints' port", udp: true, fails: some, varies: true,
			named: `ip rule 70|70: from`, make: `ip rule add pref 70 ipproto udp dport 8080 iif cni0 blackhole`,
		},
		{
			name: "answers of an endpoint by another source port are dropped before connection tracking", fails: none,
			make: `iptables-nft -t raw -A PREROUTING -i eth0 -p tcp --sport 80 -j DROP`,
		},
		{
			name: "SNAT of the client to an address of the bridge", fails: some, varies: true, named: `SNAT|10\.245\.1\.1`,
			make: `iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 10.245.1.1`, unknownToo: true,
		},
		{
			name: "NETMAP of the endpoint before kube-proxy", fails: all, named: `PREROUTING`,
			make: `iptables-nft -t nat -I PREROUTING -d $S -j NETMAP --to 10.97.200.0/24`,
		},
		{
			name: "REDIRECT of the Service to the node", fails: all, named: `PREROUTING`, mismatch: true,
			make: `iptables-nft -t nat -I PREROUTING -d $S -p tcp -j REDIRECT --to-ports 81`,
		},
		{
			name: "REDIRECT of another Service's port", fails: none,
			make: `iptables-nft -t nat -I PREROUTING -d $S -p tcp --dport 81 -j REDIRECT --to-ports 82`,
		},
		{
			name: "the endpoint's neighbour entry is another's, IPv6", v6: true, fails: some, named: `fd00:79::12`,
			make: `ip -6 neigh replace $RNODE6 lladdr $QMAC dev eth0 nud permanent`,
		},
		{
			name: "a port of a physical interface is asked for, of packets that are routed", fails: none,
			make: `iptables-nft -I FORWARD -m physdev --physdev-in eth0 -j DROP`,
		},
		{
			name: "a port of a bridge is asked for in OUTPUT, from the node", from: "node", fails: none,
			make: `iptables-nft -I OUTPUT -m physdev --physdev-is-bridged -j DROP`,
		},
		{
			name: "a port of an endpoint is asked for, of the client's packets", fails: some, unknownToo: true, varies: true,
			named: `physdev`, make: `touch_all; iptables-nft -I FORWARD -m physdev --physdev-in $LV -i cni0 -o eth0 -j DROP`,
		},
	}
}
