// SPDX-License-Identifier: Apache-2.0

package faults

// socketFaults are those of rules that ask for the node's sockets (xt_socket.c, nft_socket.c, xt_TPROXY.c,
// nft_tproxy.c).
func socketFaults() []fault {
	return []fault{
		{
			name:  "packets that no socket of the node takes are dropped",
			make:  `iptables-nft -t mangle -A PREROUTING -i cni0 -p tcp -m socket --transparent -j DROP`,
			fails: none,
		},
		{
			name: "packets without a socket are dropped",
			make: `iptables-nft -t mangle -A PREROUTING -i cni0 -p tcp -m socket ! --transparent -j DROP 2>/dev/null ||
				nft 'add table ip f; add chain ip f c { type filter hook prerouting priority -150; }; add rule ip f c iifname cni0 tcp dport 80 socket wildcard 0 drop'`,
			fails: none,
		},
		{
			name:  "TPROXY without a socket drops",
			make:  `iptables-nft -t mangle -A PREROUTING -i cni0 -d $S -p tcp --dport 80 -j TPROXY --on-port 5999`,
			fails: all, named: `TPROXY`,
		},
		{
			name:  "tproxy of nftables without a socket goes on",
			make:  `hook t ip prerouting -150 "ip daddr $S tcp dport 80 tproxy to :5999"`,
			fails: none, unknownToo: true,
		},
		{
			name:  "tproxy of nftables without a socket goes on to a rule that drops",
			make:  `hook t ip prerouting -150 "ip daddr $S tcp dport 80 tproxy to :5999" "ip daddr $S tcp dport 80 drop"`,
			fails: all, named: `fault_t`,
		},
	}
}

// deviceFaults are those of queues and settings of interfaces.
func deviceFaults() []fault {
	// Who does not get answers to ARP has the addresses of the other nodes nevertheless.
	const static = `ip neigh replace $RNODE dev eth0 lladdr $RMAC nud permanent
		ip neigh replace $QNODE dev eth0 lladdr $QMAC nud permanent
		`
	return []fault{
		{
			name:  "a queue that takes packets of their size",
			make:  `tc qdisc add dev eth0 root tbf rate 100mbit burst 32kb limit 300000`,
			fails: none,
		},
		{
			name:  "a queue that takes none, of an interface that is not on the path",
			make:  `ip link add d0 type veth peer name d1; ip link set d0 up; tc qdisc add dev d0 root tbf rate 8bit burst 10 limit 10`,
			fails: none,
		},
		{
			name:  "a queue of the port of an endpoint takes no packet",
			make:  `tc qdisc add dev $LV root tbf rate 8bit burst 10 limit 10`,
			fails: some, named: `qdisc`,
		},
		{
			name:  "a queue that takes no packet of their size",
			make:  `tc qdisc add dev eth0 root tbf rate 8bit burst 10 limit 10`,
			fails: some, named: `qdisc`,
		},
		{
			name:  "a queue of filters without a filter",
			make:  `tc qdisc add dev eth0 clsact`,
			fails: none,
		},
		{
			name:  "the bridge answers nobody",
			make:  `sysctl -qw net.ipv4.conf.cni0.arp_ignore=8; forget`,
			fails: all, named: `arp_ignore`,
		},
		{
			name:  "the uplink answers nobody",
			make:  `sysctl -qw net.ipv4.conf.eth0.arp_ignore=8; forget`,
			fails: some, named: `arp_ignore`, varies: true, unknownToo: true, // they learn it as the node asks
		},
		{
			name:  "the bridge filters by the route, which is by another interface",
			make:  `sysctl -qw net.ipv4.conf.cni0.arp_filter=1; ip rule add pref 50 to $C lookup 50; ip route add default via 10.79.0.1 table 50; ip rule add pref 49 fwmark 1 lookup main; forget`,
			fails: all, named: `arp_filter|table 50|rule 50`,
		},
		{
			name:  "gratuitous ARP is dropped, which nobody needs",
			make:  `sysctl -qw net.ipv4.conf.all.drop_gratuitous_arp=1; forget`,
			fails: none,
		},
		{
			name:  "requests come from another address",
			make:  `ip addr add 192.0.2.5/32 dev eth0; sysctl -qw net.ipv4.conf.all.arp_announce=2; forget`,
			fails: none,
		},
		{
			name:  "proxy_arp on the bridge answers for endpoints that the client takes for neighbours",
			make:  `sysctl -qw net.ipv4.conf.cni0.proxy_arp=1; forget`,
			fails: none,
		},
		{
			name:  "the uplink is down",
			make:  `ip link set eth0 down`,
			fails: some, named: `eth0|route`,
		},
		{
			name:  "the uplink has no carrier",
			make:  `in_lan ip link set node down; wait_for 'state (LOWERLAYER)?DOWN' ip -o link show eth0`,
			fails: some, named: `eth0|NO-CARRIER`,
		},
		{
			name:  "the uplink is dormant, as one that waits for 802.1X",
			make:  `ip link set eth0 mode dormant state dormant`,
			fails: none,
		},
		{
			name: "a macvlan takes all that comes in by the uplink, and filters it",
			make: static + `sysctl -qw net.ipv4.conf.default.rp_filter=1
				ip link add link eth0 name mv0 type macvlan mode passthru; ip link set mv0 up`,
			fails: some, named: `mv0`,
		},
		{
			name:  "a macvlan that is down takes all that comes in by the uplink",
			make:  static + `ip link add link eth0 name mv0 type macvlan mode passthru nopromisc`,
			fails: some, named: `mv0`,
		},
		{
			name: "a macvlan takes what another node sends, and filters it",
			make: static + `sysctl -qw net.ipv4.conf.default.rp_filter=1
				ip link add link eth0 name mv0 type macvlan mode source nodst
				ip link set mv0 type macvlan macaddr add $RMAC; ip link set mv0 up`,
			fails: some, named: `mv0`,
		},
		{
			name: "a macvlan takes what nobody sends", fails: none, unknownToo: true,
			make: static + `ip link add link eth0 name mv0 type macvlan mode source nodst
				ip link set mv0 type macvlan macaddr add 02:00:00:00:00:99; ip link set mv0 up`,
		},
		{
			name: "a macvlan beside the uplink", fails: none,
			make: `ip link add link eth0 name mv0 type macvlan mode private; ip link set mv0 up`,
		},
		{
			name: "the uplink is a macvlan that takes all that comes in by another interface", fails: none,
			make: `ip link add link eth0 name mv0 type macvlan mode passthru; ip link set mv0 up
				for f in -4 -6; do ip $f addr flush dev eth0 scope global; ip $f route flush dev eth0; done
				ip addr add 10.79.0.11/24 dev mv0; ip route add default via 10.79.0.1
				ip route add 10.245.0.0/24 via 10.79.0.12; ip route add 10.245.2.0/24 via 10.79.0.13`,
		},
		{
			name: "a macvlan takes copies of what another node sends", fails: none, unknownToo: true,
			make: static + `ip link add link eth0 name mv0 type macvlan mode source
				ip link set mv0 type macvlan macaddr add $RMAC; ip link set mv0 up`,
		},
		{
			name:  "the bridge is down",
			make:  `ip link set cni0 down`,
			fails: all, named: `cni0|route`,
		},
		{
			name:  "the uplink has another address",
			make:  `ip link set eth0 address 02:00:00:00:00:77; forget`,
			fails: none,
		},
		{
			name:  "the pod's port has no carrier",
			make:  `in_local ip link set eth0 down; wait_for 'state (LOWERLAYER)?DOWN' ip -o link show $LV`,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "an MTU that is smaller than any packet of IPv6", v6: true,
			make:  `ip link set eth0 mtu 1200`,
			fails: some, named: `eth0|route|mtu`,
		},
		{
			name: "IPv6 is disabled on the uplink", v6: true,
			make:  `sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1`,
			fails: some, named: `route|eth0|disable_ipv6`,
		},
		{
			name: "IPv6 is disabled on the bridge", v6: true,
			make:  `sysctl -qw net.ipv6.conf.cni0.disable_ipv6=1`,
			fails: all, named: `route|cni0|disable_ipv6`,
		},
		{
			name:  "the bridge ages its entries at once",
			make:  `ip link set cni0 type bridge ageing_time 0`,
			fails: none,
		},
		{
			name:  "a port of the bridge does not learn and is not flooded",
			make:  `ip link set $LV type bridge_slave learning off flood off mcast_flood off bcast_flood off; bridge fdb flush dev $LV 2>/dev/null || bridge fdb del $LMAC dev $LV master 2>/dev/null || true; forget`,
			fails: some, named: `only what it knows`,
		},
		{
			name:  "neighbours are suppressed at a port",
			make:  `ip link set $LV type bridge_slave neigh_suppress on; forget`,
			fails: none, unknownToo: true,
		},
	}
}

// stateFaults are those of limits and of what the node remembers.
func stateFaults() []fault {
	return []fault{
		{
			name:  "a blackhole for the pods' network in a table that local packets alone ask",
			make:  `ip route add blackhole default table 60; ip rule add pref 60 iif lo lookup 60`,
			fails: none,
		},
		{
			name: "the same, from the node", from: "node",
			make:  `ip route add blackhole default table 60; ip rule add pref 60 iif lo lookup 60`,
			fails: all, named: `rule 60|table 60`, mismatch: true,
		},
		{
			name:  "the rule for the table main is gone",
			make:  `ip rule del pref 32766`,
			fails: all, named: `rule|route`,
		},
		{
			name:  "the rule for the table local is behind another",
			make:  `ip rule add pref 10 lookup local; ip rule del pref 0; ip rule add pref 5 to 10.79.0.0/24 unreachable`,
			fails: none, unknownToo: true, // the node answers no questions by ARP then, and its neighbours know it already
		},
		{
			name: "the rule for the table local is behind another, from the node", from: "node",
			make:  `ip rule add pref 10 lookup local; ip rule del pref 0; ip rule add pref 5 to 10.245.1.0/24 unreachable`,
			fails: some, named: `rule 5`,
		},
		{
			name: "answers of the local endpoint go to a table by a mark of theirs",
			make: `ip route add blackhole default table 61; ip rule add pref 61 fwmark 0x61 lookup 61
				iptables-nft -t mangle -A PREROUTING -i eth0 -p tcp --sport 8080 -j MARK --set-mark 0x61`,
			fails: some, named: `rule 61|table 61`,
		},
		{
			name: "the mark of a connection is given to answers, and leads to a blackhole",
			make: `ip route add blackhole default table 62; ip rule add pref 62 fwmark 0x62 lookup 62
				iptables-nft -t mangle -A PREROUTING -i cni0 -s $C -d $S -j CONNMARK --set-mark 0x62
				iptables-nft -t mangle -A PREROUTING -i eth0 -j CONNMARK --restore-mark`,
			fails: some, named: `rule 62|table 62`,
		},
		{
			name:  "a rule for a type of service that nobody sets",
			make:  `ip rule add pref 63 from $C tos 0x10 blackhole`,
			fails: none,
		},
		{
			name: "packets are marked by an nft set of addresses, and prohibited",
			make: `ip rule add pref 64 fwmark 0x64 prohibit
				nft add table ip m; nft add set ip m s '{ type ipv4_addr; flags interval; elements = { 10.245.1.0/28 }; }'
				nft add chain ip m c '{ type filter hook prerouting priority mangle; }'; nft add rule ip m c ip saddr @s meta mark set 0x64`,
			fails: all, named: `rule 64`,
		},
		{
			name:  "an address of the cluster's Services on an interface of the node",
			make:  `ip link add d0 type veth peer name d1; ip link set d0 up; ip addr add $S/32 dev d0`,
			fails: none,
		},
		{
			name: "the same, from the node", from: "node",
			make:  `ip link add d0 type veth peer name d1; ip link set d0 up; ip addr add $S/32 dev d0`,
			fails: none,
		},
		{
			name:  "the network of another node is on the link",
			make:  `ip route replace $RCIDR dev eth0`,
			fails: none, // the other node answers for its endpoint's address
		},
		{
			name: "an unreachable default in the table of a source", from: "node",
			make:  `ip rule add pref 65 from 10.79.0.11 lookup 65; ip route add unreachable default table 65`,
			fails: all, named: `rule 65|table 65`,
		},
		{
			name:  "packets of the connection are invalid to be dropped: liberal is off",
			make:  `iptables-nft -I FORWARD -m conntrack --ctstate INVALID -j DROP`,
			fails: none,
		},
	}
}
