// SPDX-License-Identifier: Apache-2.0

package faults

// combinedFaults are those of routing rules together with marks, tables and settings.
func combinedFaults() []fault {
	return []fault{
		{
			name: "the mark of a connection, set in FORWARD, is given to its other packets, and leads to a blackhole",
			make: `ip rule add pref 70 fwmark 0x70 blackhole
				iptables-nft -t mangle -A FORWARD -s $C -d $R -j CONNMARK --set-mark 0x70
				iptables-nft -t mangle -A PREROUTING -m connmark --mark 0x70 -j CONNMARK --restore-mark`,
			fails: some, named: `rule 70`, mismatch: true,
		},
		{
			name: "the mark of a connection leads its other packets where they go anyway",
			make: `ip rule add pref 70 fwmark 0x70 lookup 70; ip route add $C dev cni0 table 70; ip route add $RCIDR via $RNODE table 70
				iptables-nft -t mangle -A FORWARD -s $C -d $R -j CONNMARK --set-mark 0x70
				iptables-nft -t mangle -A PREROUTING -m connmark --mark 0x70 -j CONNMARK --restore-mark`,
			fails: none,
		},
		{
			name: "later packets alone are marked, and lead to a blackhole",
			make: `ip rule add pref 71 fwmark 0x71 iif cni0 blackhole
				iptables-nft -t mangle -A PREROUTING -i cni0 -s $C -m conntrack --ctstate ESTABLISHED -j MARK --set-mark 0x71`,
			fails: all, named: `rule 71`, mismatch: true,
		},
		{
			name:  "a rule for packets without the mark of masquerading",
			make:  `ip rule add pref 72 not fwmark 0x4000/0x4000 from $C blackhole`,
			fails: all, named: `rule 72`, mismatch: true,
		},
		{
			name: "an inverted rule of two conditions, of the node's packets", from: "node",
			make:  `ip rule add pref 72 not from 10.245.0.0/16 to $R blackhole`,
			fails: all, named: `rule 72`, mismatch: true,
		},
		{
			name:  "an inverted rule of two conditions: what goes elsewhere is lost",
			make:  `ip rule add pref 72 not from 10.245.0.0/16 to $R blackhole`,
			fails: all, mismatch: true, named: `rule 72`,
		},
		{
			name: "default routes of main are suppressed, and the next table's gateway is nobody", from: "node",
			make: `ip rule add pref 73 lookup main suppress_prefixlength 0; ip rule add pref 74 lookup 74
				ip route add default via 10.79.0.99 table 74`,
			fails: none,
		},
		{
			name:  "routes of main that are no longer than the pods' networks are suppressed",
			make:  `ip rule add pref 73 lookup main suppress_prefixlength 24; ip rule add pref 74 to 10.245.0.0/16 prohibit`,
			fails: all, named: `rule 74`, mismatch: true,
		},
		{
			name:  "routes by the uplink's group are suppressed",
			make:  `ip link set eth0 group 7; ip rule add pref 75 lookup main suppress_ifgroup 7; ip rule add pref 76 iif cni0 blackhole`,
			fails: some, named: `rule 76`, mismatch: true,
		},
		{
			name:  "routes by another group are suppressed",
			make:  `ip link set eth0 group 7; ip rule add pref 75 lookup main suppress_ifgroup 8; ip rule add pref 76 iif cni0 blackhole`,
			fails: none,
		},
		{
			name:  "a goto to a rule that prohibits",
			make:  `ip rule add pref 177 from all iif cni0 to $R prohibit; ip rule add pref 77 from $C goto 177; ip rule add pref 78 lookup main`,
			fails: some, named: `rule 177`, mismatch: true,
		},
		{
			name:  "an endpoint is unreachable in the table local",
			make:  `ip route add unreachable $R table local`,
			fails: some, named: `unreachable`, mismatch: true,
		},
		{
			name:  "an endpoint of the node is a blackhole in the table local",
			make:  `ip route add blackhole $L table local`,
			fails: some, named: `blackhole`,
		},
		{
			name:  "an endpoint is a broadcast address in the table local",
			make:  `ip route add broadcast $R dev eth0 table local`,
			fails: some, named: `broadcast`,
		},
		{
			name:  "a type of service that a rule of mangle sets leads to a blackhole",
			make:  `iptables-nft -t mangle -A PREROUTING -s $C -j TOS --set-tos 0x10/0x3f; ip rule add pref 79 tos 0x10 blackhole`,
			fails: all, named: `79: from`,
		},
		{
			name:  "a route for a type of service that a rule of mangle sets",
			make:  `iptables-nft -t mangle -A PREROUTING -s $C -j TOS --set-tos 0x10/0x3f; ip route add $R tos 0x10 via 10.79.0.99`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name:  "a route for a type of service that nobody sets",
			make:  `ip route add $R tos 0x10 via 10.79.0.99`,
			fails: none,
		},
		{
			name: "nftables marks the node's packets for a blackhole, in a chain of routing", from: "node",
			make: `ip rule add pref 80 fwmark 0x80 blackhole; nft 'add table ip m; add chain ip m c { type route hook output priority -150; }'
				nft add rule ip m c ip daddr $S meta mark set 0x80`,
			fails: all, named: `rule 80`, mismatch: true,
		},
		{
			name: "nftables marks the node's packets for a blackhole, in a chain before they are translated", from: "node",
			make:  `ip rule add pref 80 fwmark 0x80 blackhole; hook m ip output -150 "ip daddr $S meta mark set 0x80"`,
			fails: all, named: `rule 80`, mismatch: true,
		},
		{
			name: "nftables marks the node's packets for a blackhole, in a chain of routing behind the translation",
			from: "node",
			make: `ip rule add pref 80 fwmark 0x80 blackhole; nft 'add table ip m; add chain ip m c { type route hook output priority 10; }'
				nft add rule ip m c ip daddr $R meta mark set 0x80`,
			fails: some, named: `rule 80`, mismatch: true,
		},
		{
			name: "nftables marks the node's packets for a blackhole, IPv6", from: "node", v6: true,
			make: `ip -6 rule add pref 80 fwmark 0x80 blackhole; nft 'add table ip6 m; add chain ip6 m c { type route hook output priority -150; }'
				nft add rule ip6 m c ip6 daddr $S6 meta mark set 0x80`,
			fails: all, named: `rule 80`, mismatch: true,
		},
		{
			name:  "a mark that leads to a blackhole is set in POSTROUTING",
			make:  `ip rule add pref 80 fwmark 0x80 blackhole; hook m ip postrouting 0 "ip daddr { $R, $C } meta mark set 0x80"`,
			fails: none,
		},
		{
			name:  "answers leave the node by the right interface, to a gateway that does not forward",
			make:  `ip route add $C via $L dev cni0`,
			fails: some, named: `10\.245\.1\.5|via`,
		},
		{
			name:  "answers leave the node by the right interface, to a gateway that is nobody",
			make:  `ip route add $C via 10.245.1.77 dev cni0 table 81; ip rule add pref 81 iif eth0 to $C lookup 81`,
			fails: some, named: `10\.245\.1\.77`,
		},
		{
			name:  "answers leave the node where nobody is, and the reverse path filter is loose",
			make:  `sysctl -qw net.ipv4.conf.all.rp_filter=2; ip route add $C via 10.79.0.99 dev eth0 table 81; ip rule add pref 81 iif eth0 to $C lookup 81`,
			fails: some, named: `rule 81|table 81|10\.79\.0\.99`,
		},
		{
			name:  "an endpoint of another node is routed to a pod that does not forward",
			make:  `ip route replace $RCIDR via $L dev cni0`,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name:  "a route to the pods' network by the uplink is preferred",
			make:  `ip route prepend 10.245.1.0/24 dev eth0`,
			fails: all, named: `eth0`,
		},
		{
			name:  "a route to the pods' network by the uplink is there, too",
			make:  `ip route append 10.245.1.0/24 dev eth0`,
			fails: none,
		},
		{
			name:  "a second route to another node's pods, by nobody",
			make:  `ip route append $RCIDR via 10.79.0.99`,
			fails: none,
		},
		{
			name: "a second route to another node's pods, by nobody, IPv6", v6: true,
			make:  `sysctl -qw net.ipv6.fib_multipath_hash_policy=1; ip -6 route append $RCIDR6 via fd00:79::99`,
			fails: some, named: `fd00:79::99`,
		},
		{
			name: "a route for the source of a pod, to nobody, IPv6", v6: true,
			make:  `ip -6 route add $RCIDR6 from $C6 via fd00:79::99`,
			fails: some, named: `fd00:79::99`,
		},
		{
			name: "a route for the source of another pod hides that of all, IPv6", v6: true,
			make:  `ip -6 route add $RCIDR6 from $L6 via fd00:79::99`,
			fails: some, named: `RouteMissing`,
		},
		{
			name: "the node's address is deprecated, and its other one leads to a blackhole, IPv6", v6: true, from: "node",
			make: `ip -6 addr change fd00:79::11/64 dev eth0 preferred_lft 0; ip -6 addr add fd00:79::21/64 dev eth0 nodad
				ip -6 rule add pref 82 from fd00:79::21 blackhole`,
			fails: all, named: `rule 82`,
		},
		{
			name: "the node's other address, which it does not use, leads to a blackhole, IPv6", v6: true, from: "node",
			make:  `ip -6 addr add 2001:db8::1/64 dev eth0 nodad; ip -6 rule add pref 82 from 2001:db8::/64 blackhole`,
			fails: none,
		},
		{
			name: "a gateway of the link, IPv6", v6: true,
			make:  `ll=$(in_remote ip -6 -br addr show dev eth0 scope link | awk '{print $3}'); ip -6 route replace $RCIDR6 via ${ll%/*} dev eth0`,
			fails: none,
		},
		{
			name: "a gateway of the link that is nobody, IPv6", v6: true,
			make:  `ip -6 route replace $RCIDR6 via fe80::99 dev eth0`,
			fails: some, named: `fe80::99`,
		},
		{
			name: "a gateway of the link that is at another link, IPv6", v6: true,
			make:  `ll=$(in_remote ip -6 -br addr show dev eth0 scope link | awk '{print $3}'); ip -6 route replace $RCIDR6 via ${ll%/*} dev cni0`,
			fails: some, named: `fe80::`,
		},
		{
			name: "the route has a size that is locked, and the node may not say so", large: true,
			make:  `ip route replace $RCIDR via $RNODE mtu lock 600; iptables-nft -I OUTPUT -p icmp -j DROP`,
			fails: some, named: `icmp`, varies: true,
		},
		{
			name: "the route has a size that is locked, and the node says so", large: true,
			make:  `ip route replace $RCIDR via $RNODE mtu lock 600`,
			fails: none,
		},
		{
			name:  "a route with an outer header that no device adds",
			make:  `ip route replace $R encap ip id 5 dst $RNODE via $RNODE dev eth0`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a route by a device whose program is not there",
			make:  `ip tuntap add t0 mode tun; ip link set t0 up; ip route replace $RCIDR dev t0`,
			fails: some, named: `t0`,
		},
		{
			name:  "a route by a device that gives all back",
			make:  `ip link add i0 type ifb; ip link set i0 up; ip route replace $RCIDR dev i0`,
			fails: some, named: `i0`,
		},
		{
			name:  "a route by a tunnel that knows no other end",
			make:  `ip link add x0 type vxlan id 5 dstport 4789 local 10.79.0.11; ip link set x0 up; ip route replace $RCIDR via $RNODE dev x0 onlink`,
			fails: some, named: `x0`,
		},
		{
			name:  "a route by a tunnel to an end that does not take it",
			make:  `ip link add x0 type vxlan id 5 dstport 4789 local 10.79.0.11 remote $RNODE; ip link set x0 up; ip route replace $RCIDR via $RNODE dev x0 onlink`,
			fails: some, named: `x0`,
		},
		{
			name:  "a route by another interface of the same link",
			make:  `ip link add m0 link eth0 type macvlan mode bridge; ip link set m0 up; ip route replace $RCIDR via $RNODE dev m0 onlink`,
			fails: none, unknownToo: true,
		},
		{
			name: "settings that change nothing",
			make: `sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.all.secure_redirects=0 net.ipv4.conf.all.shared_media=0 \
				net.ipv4.conf.cni0.disable_policy=1 net.ipv4.conf.cni0.disable_xfrm=1 net.ipv4.ip_forward_use_pmtu=1 \
				net.ipv4.ip_nonlocal_bind=1 \
				net.ipv4.ip_forward_update_priority=0 net.ipv4.tcp_syncookies=2 net.netfilter.nf_conntrack_tcp_loose=0 \
				net.netfilter.nf_conntrack_tcp_be_liberal=1 net.ipv4.conf.all.accept_local=1 net.ipv4.fwmark_reflect=1 \
				net.ipv4.icmp_echo_ignore_all=1 net.ipv4.conf.all.bc_forwarding=1`,
			fails: none,
		},
		{
			name: "the node's clients have one port", from: "node",
			make:  `sysctl -qw net.ipv4.ip_local_port_range="40001 40001"`,
			fails: some, named: `ip_local_port_range`,
		},
		{
			name: "the node's clients have one port, as all others are reserved", from: "node",
			make:  `sysctl -qw net.ipv4.ip_local_reserved_ports="1-40000,40002-65535"`,
			fails: some, named: `reserved`,
		},
		{
			name: "the bridge answers nobody, and the node asks itself", from: "node",
			make:  `sysctl -qw net.ipv4.conf.cni0.arp_ignore=8; forget`,
			fails: none, unknownToo: true,
		},
		{
			name: "connections of the node are forgotten before the answer", from: "node",
			make:  `sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_syn_sent=0`,
			fails: all, named: `timeout_syn_sent`,
		},
		{
			name: "connections of the node are forgotten behind the answer", from: "node",
			make:  `sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_syn_recv=0`,
			fails: all, named: `timeout_syn_recv`,
		},
		{
			name:  "connections of a pod are forgotten behind the answer",
			make:  `sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_syn_recv=0`,
			fails: all, named: `timeout_syn_recv`, varies: true,
		},
		{
			name: "the client's address is also the node's, on its bridge, IPv6", v6: true,
			make:  `ip -6 addr add $C6/128 dev cni0 nodad`,
			fails: all, named: `fd00:10:245:1::6`,
		},
		{
			name:  "the client's address is also the node's, on its bridge",
			make:  `ip addr add $C/32 dev cni0`,
			fails: all, named: `10\.245\.1\.6`,
		},
	}
}
