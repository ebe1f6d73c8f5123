// SPDX-License-Identifier: Apache-2.0

package faults

// returnFaults are those of the source that packets leave with: whether other hosts send answers to it to the node,
// and get an answer where they ask who has it.
func returnFaults() []fault {
	const (
		// The node knows its neighbours, and they do not know the node: they ask.
		othersAsk = `
			in_remote ip neigh flush all; in_third ip neigh flush all
			in_remote ip -6 neigh flush all; in_third ip -6 neigh flush all
			ip neigh replace $RNODE lladdr $RMAC dev eth0 nud permanent
			ip neigh replace $QNODE lladdr $QMAC dev eth0 nud permanent
			ip neigh replace $RNODE6 lladdr $RMAC dev eth0 nud permanent
			ip neigh replace $QNODE6 lladdr $QMAC dev eth0 nud permanent
			`
		unnumbered4 = `ip addr flush dev eth0 scope global; ip route add $RCIDR via $RNODE dev eth0 onlink
			ip route add 10.245.2.0/24 via $QNODE dev eth0 onlink
			`
		unnumbered6 = `ip -6 addr del fd00:79::11/64 dev eth0; ip -6 route add fd00:79::/64 dev eth0
			ip -6 route replace $RCIDR6 via $RNODE6; ip -6 route replace fd00:10:245:2::/64 via $QNODE6
			ip -6 route replace default via $RNODE6
			`
	)
	return []fault{
		{
			name:  "the source is one of a range that others have or nobody has",
			make:  `iptables -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 192.0.2.1-192.0.2.9`,
			fails: some, named: `SNAT`,
		},
		{
			name:  "the source is the node's address or another node's",
			make:  `iptables -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 10.79.0.11-10.79.0.12`,
			fails: some, named: `SNAT`,
		},
		{
			name:  "the source is one of a range in the bridge's subnet",
			make:  `iptables -t nat -I POSTROUTING -d $L -j SNAT --to-source 10.245.1.80-10.245.1.90`,
			fails: some, named: `SNAT`,
		},
		{
			name: "the source is one of a range, from the node", from: "node",
			make:  `iptables -t nat -I POSTROUTING -d $R -j SNAT --to-source 10.79.0.50-10.79.0.51`,
			fails: some, named: `SNAT`,
		},
		{
			name: "the source is one of a range, from an endpoint", from: "endpoint",
			make:  `iptables -t nat -I POSTROUTING -s $L -o eth0 -j SNAT --to-source 10.79.0.11-10.79.0.12`,
			fails: some, named: `SNAT`,
		},
		{
			name: "the source is one of a range, IPv6", v6: true,
			make:  `ip6tables -t nat -I POSTROUTING -s $C6 -o eth0 -j SNAT --to-source fd00:79::70-fd00:79::79`,
			fails: some, named: `SNAT`,
		},
		{
			name: "the source is one of a range of nftables",
			make: `nft add table inet f; nft add chain inet f c '{ type nat hook postrouting priority 99; }'
				nft add rule inet f c oifname eth0 ip saddr $C snat ip to 10.79.0.60-10.79.0.69`,
			fails: some, named: `snat`,
		},
		{
			name: "the source is one of two addresses of the node",
			make: `ip addr add 10.79.0.10/24 dev eth0
				iptables -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 10.79.0.10-10.79.0.11`,
			fails: none,
		},
		{
			name: "the uplink has its address on lo, IPv6", v6: true,
			make:  unnumbered6 + `ip -6 addr add fd00:79::11/128 dev lo; forget`,
			fails: some, named: `fd00:79::11`,
		},
		{
			name: "the uplink has its address on lo, from the node, IPv6", from: "node", v6: true,
			make:  unnumbered6 + `ip -6 addr add fd00:79::11/128 dev lo; forget`,
			fails: some, named: `fd00:79::11`,
		},
		{
			name: "the uplink has its address on the bridge, IPv6", v6: true,
			make:  unnumbered6 + `ip -6 addr add fd00:79::11/128 dev cni0 nodad`,
			fails: some, named: `fd00:79::11`,
		},
		{
			name: "the source is an address on lo, in the uplink's subnet, IPv6", v6: true,
			make: `ip -6 addr add fd00:79::77/128 dev lo
				ip6tables -t nat -I POSTROUTING -o eth0 -s $C6 -j SNAT --to-source fd00:79::77; forget`,
			fails: some, named: `fd00:79::77`,
		},
		{
			name: "the node's source is an address on lo, in the uplink's subnet, IPv6", from: "node", v6: true,
			make: `ip -6 addr add fd00:79::77/128 dev lo
				ip6tables -t nat -I POSTROUTING -o eth0 -d $R6 -j SNAT --to-source fd00:79::77; forget`,
			fails: some, named: `fd00:79::77`,
		},
		{
			name: "the uplink has its address on lo, and answers for it as a proxy, IPv6", v6: true,
			make: unnumbered6 + `ip -6 addr add fd00:79::11/128 dev lo; sysctl -qw net.ipv6.conf.eth0.proxy_ndp=1
				ip -6 neigh add proxy fd00:79::11 dev eth0; forget`,
			fails: none, unknownToo: true,
		},
		{
			name: "the uplink has its address on lo, and a proxy's entry that does not count, IPv6", v6: true,
			make: unnumbered6 + `ip -6 addr add fd00:79::11/128 dev lo
				ip -6 neigh add proxy fd00:79::11 dev eth0; forget`,
			fails: some, named: `proxy_ndp=0`,
		},
		{
			name:  "the uplink has its address on lo, and answers for its own alone",
			make:  unnumbered4 + `ip addr add 10.79.0.11/32 dev lo; sysctl -qw net.ipv4.conf.all.arp_ignore=1` + othersAsk,
			fails: some, named: `arp_ignore`,
		},
		{
			name:  "the uplink has its address on lo, and answers for all",
			make:  unnumbered4 + `ip addr add 10.79.0.11/32 dev lo` + othersAsk,
			fails: none,
		},
		{
			name: "the source is an address on lo, and the uplink answers for its own alone",
			make: `ip addr add 10.79.0.77/32 dev lo
				iptables -t nat -I POSTROUTING -o eth0 -s $C -j SNAT --to-source 10.79.0.77
				sysctl -qw net.ipv4.conf.all.arp_ignore=1` + othersAsk,
			fails: some, named: `arp_ignore|10\.79\.0\.77`,
		},
		{
			name:  "the uplink is without ARP, and its neighbours are set by hand",
			make:  `ip link set eth0 arp off` + othersAsk,
			fails: some, named: `NOARP`,
		},
		{
			name: "the uplink is without ARP, and its neighbours are set by hand, IPv6", v6: true,
			make:  `ip link set eth0 arp off` + othersAsk,
			fails: some, named: `NOARP`,
		},
		{
			name: "the uplink is without ARP, and all have set the others by hand",
			make: `M=$(ip -br link show dev eth0 | awk '{print $3}'); for h in in_remote in_third
				do $h ip neigh replace 10.79.0.11 lladdr $M dev eth0 nud permanent; done
				ip link set eth0 arp off; ip neigh replace $RNODE lladdr $RMAC dev eth0 nud permanent
				ip neigh replace $QNODE lladdr $QMAC dev eth0 nud permanent`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a virtual address is the uplink's first, and gateways are said to be on the link",
			make:  unnumbered4 + `ip addr add 192.0.2.5/32 dev eth0; ip addr add 10.79.0.11/32 dev eth0`,
			fails: some, named: `192\.0\.2\.5`,
		},
		{
			name: "a virtual address is the uplink's first, from the node", from: "node",
			make: unnumbered4 + `ip route add default via $RNODE dev eth0 onlink; ip addr add 192.0.2.5/32 dev eth0
				ip addr add 10.79.0.11/32 dev eth0`,
			fails: some, named: `192\.0\.2\.5`,
		},
		{
			name:  "a virtual address is the uplink's second, and gateways are said to be on the link",
			make:  unnumbered4 + `ip addr add 10.79.0.11/32 dev eth0; ip addr add 192.0.2.5/32 dev eth0`,
			fails: none,
		},
		{
			name: "the source is a virtual address of the uplink that others have no route to",
			make: `ip addr add 192.0.2.5/32 dev eth0
				iptables -t nat -I POSTROUTING -o eth0 -s $C -j SNAT --to-source 192.0.2.5`,
			fails: some, named: `192\.0\.2\.5`,
		},
		{
			name: "the source is in a second subnet of the uplink that others have no route to",
			make: `ip addr add 192.0.2.5/24 dev eth0
				iptables -t nat -I POSTROUTING -o eth0 -s $C -j SNAT --to-source 192.0.2.5`,
			fails: some, named: `192\.0\.2\.5`,
		},
		{
			name: "the source is a virtual address of the uplink, IPv6", v6: true,
			make: `ip -6 addr add fd99::5/128 dev eth0 nodad
				ip6tables -t nat -I POSTROUTING -o eth0 -s $C6 -j SNAT --to-source fd99::5`,
			fails: some, named: `fd99::5`,
		},
		{
			name: "an address of the uplink is nearer to the endpoints, and is the source, IPv6", v6: true,
			make:  `ip -6 addr add fd00:10:245:ffff::1/128 dev eth0 nodad`,
			fails: some, named: `ffff::1`,
		},
		{
			name: "an address of the uplink is nearer to the endpoints, and is the node's source, IPv6", from: "node", v6: true,
			make:  `ip -6 addr add fd00:10:245:ffff::1/128 dev eth0 nodad`,
			fails: some, named: `ffff::1`,
		},
		{
			name: "a route without a gateway, and a virtual address is the uplink's first",
			make: `ip addr flush dev eth0 scope global; ip addr add 192.0.2.5/32 dev eth0
				ip addr add 10.79.0.11/24 dev eth0; ip route add $RCIDR dev eth0
				ip route add 10.245.2.0/24 via $QNODE`,
			fails: some, named: `192\.0\.2\.5`,
		},
		{
			name: "routers are reached by their addresses of the link, and the node has its address on lo, IPv6", v6: true,
			make: `gateway=$(in_remote ip -6 -br addr show dev eth0 scope link | awk '{print $3}'); gateway=${gateway%/*}
				third=$(in_third ip -6 -br addr show dev eth0 scope link | awk '{print $3}'); third=${third%/*}
				own=$(ip -6 -br addr show dev eth0 scope link | awk '{print $3}'); own=${own%/*}
				ip -6 addr del fd00:79::11/64 dev eth0; ip -6 addr add fd00:79::11/128 dev lo
				ip -6 route replace $RCIDR6 via $gateway dev eth0
				ip -6 route replace fd00:10:245:2::/64 via $third dev eth0
				ip -6 route replace default via $gateway dev eth0
				for host in in_remote in_third; do
					$host ip -6 route replace fd00:79::11/128 via $own dev eth0
					$host ip -6 route replace fd00:10:245:1::/64 via $own dev eth0
				done; forget`,
			fails: none,
		},
	}
}
