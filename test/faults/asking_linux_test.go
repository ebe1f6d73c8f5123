// SPDX-License-Identifier: Apache-2.0

package faults

// askingFaults are those of hosts that ask for the node's link-layer address, or for each other's, and of the addresses
// by which the node asks and answers.
func askingFaults() []fault {
	return []fault{
		{
			name: "the reverse path filter refuses what clients ask for the gateway",
			make: `sysctl -qw net.ipv4.conf.cni0.rp_filter=1; ip link add d0 type veth peer name d1
				ip link set d0 up; ip link set d1 up; ip rule add pref 30 to $C iif lo lookup 200
				ip route add $C dev d0 table 200`,
			fails: all, named: `rp_filter`,
		},
		{
			name: "no address of the link on the uplink, IPv6, and packets keep their source", v6: true,
			make: `ip6tables-nft -t nat -I POSTROUTING -s $C6 -j ACCEPT; ip -6 addr flush dev eth0 scope link
				forget`,
			fails: some, named: `link-local|fe80`,
		},
		{
			name: "no address of the link on the uplink, IPv6, from the node", v6: true, from: "node",
			make:  `ip -6 addr flush dev eth0 scope link; forget`,
			fails: none, unknownToo: true,
		},
		{
			name: "no address of the link on the bridge, IPv6", v6: true,
			make:  `ip -6 addr flush dev cni0 scope link; forget`,
			fails: some, named: `link-local|fe80`,
		},
		{
			name: "another host has the node's address, IPv6", v6: true,
			make: `in_third ip -6 addr add fd00:79::11/128 dev eth0 nodad; ip -6 addr del fd00:79::11/64 dev eth0
				sysctl -qw net.ipv6.conf.eth0.accept_dad=1 net.ipv6.conf.all.accept_dad=1
				ip -6 addr add fd00:79::11/64 dev eth0; wait_for dadfailed ip -6 addr show dev eth0
				in_third ip -6 addr del fd00:79::11/128 dev eth0; ip -6 route replace default via fd00:79::1
				ip -6 route replace $RCIDR6 via $RNODE6; forget`,
			fails: some, named: `dadfailed|tentative|fd00:79::11`,
		},
		{
			name:  "the kernel asks for no neighbour among its pods",
			make:  `sysctl -qw net.ipv4.neigh.cni0.mcast_solicit=0; forget`,
			fails: some, named: `neigh/cni0/mcast_solicit=0`,
		},
		{
			name: "the kernel asks for no neighbour on the link, IPv6", v6: true,
			make:  `sysctl -qw net.ipv6.neigh.eth0.mcast_solicit=0; forget`,
			fails: some, named: `neigh/eth0/mcast_solicit=0`,
		},
		{
			name:  "the kernel asks for no neighbour, and knows all",
			make:  `touch_all; sysctl -qw net.ipv4.neigh.cni0.mcast_solicit=0 net.ipv4.neigh.eth0.mcast_solicit=0`,
			fails: none,
		},
		{
			name:  "the bridge has forgotten its own address",
			make:  `bridge fdb flush dev cni0`,
			fails: all, named: `BridgeTakesNothing`,
		},
		{
			name:  "a pod has another link-layer address than before",
			make:  `touch_all; in_local ip link set eth0 address 02:00:00:00:00:55`,
			fails: some, named: `neigh|02:00:00:00:00:55`, varies: true,
		},
		{
			name:  "the client has the address of an endpoint, too",
			make:  `in_pod ip addr add $L/32 dev eth0`,
			fails: some, named: `10\.245\.1\.5`, varies: true,
		},
		{
			name:  "an endpoint has the address of the client's gateway, too",
			make:  `in_local ip addr add 10.245.1.1/24 dev eth0; forget`,
			fails: all, named: `10\.245\.1\.1`, unknownToo: true, varies: true,
		},
		{
			name: "the table local is asked for other interfaces alone",
			make: `ip rule add pref 10 iif eth0 lookup local; ip rule add pref 11 iif lo lookup local
				ip rule del pref 0; forget`,
			fails: all, named: `ARPNotAnswered`,
		},
		{
			name: "a rule refuses what is for the gateway, before the table local",
			make: `ip rule add pref 5 iif cni0 to 10.245.1.1 blackhole; ip rule del pref 0
				ip rule add pref 10 lookup local; forget`,
			fails: all, named: `rule 5|5: from`,
		},
		{
			name: "a rule refuses what is from addresses of the link, IPv6", v6: true,
			make: `ip -6 rule add pref 5 from fe80::/10 prohibit; ip -6 rule del pref 0
				ip -6 rule add pref 10 lookup local; forget`,
			fails: none, unknownToo: true,
		},
		{
			name: "a rule refuses what is for groups, IPv6", v6: true,
			make: `ip -6 rule del pref 0; ip -6 rule add pref 5 to ff02::/16 blackhole
				ip -6 rule add pref 10 lookup local; forget`,
			fails: all, named: `5: from`, varies: true,
		},
		{
			name:  "the bridge answers for a port, and floods nothing there",
			make:  `ip link set $LV type bridge_slave proxy_arp on; forget`,
			fails: some, named: `BridgePortUnknown`,
		},
		{
			name:  "the node answers for addresses of the interface alone",
			make:  `sysctl -qw net.ipv4.conf.all.arp_ignore=1; forget`,
			fails: none,
		},
		{
			name:  "somebody has set another pod's link-layer address for the client",
			make:  `touch_all; ip neigh replace $C dev cni0 lladdr $LMAC nud permanent`,
			fails: some, named: `neigh`,
		},
		{
			name: "packets to groups are dropped in INPUT by their type, IPv6", v6: true,
			make:  `ip6tables-nft -A INPUT -m pkttype --pkt-type multicast -j DROP; forget`,
			fails: all, named: `INPUT`,
		},
		{
			name: "packets to groups are dropped in INPUT by their address, IPv6", v6: true,
			make:  `ip6tables-nft -A INPUT -d ff00::/8 -j DROP; forget`,
			fails: all, named: `INPUT`,
		},
		{
			name: "the reverse path is asked by ip6tables", v6: true,
			make:  `ip6tables-nft -t raw -A PREROUTING -m rpfilter --invert -j DROP; forget`,
			fails: none,
		},
		{
			name: "the reverse path is asked by nftables, IPv6, and nobody knows a neighbour", v6: true,
			make:  `hook f inet prerouting -150 "fib saddr . iif oif missing drop"; forget`,
			fails: none,
		},
		{
			name: "what is not for an address of the node is dropped in INPUT, IPv6", v6: true,
			make:  `hook f ip6 input 0 "fib daddr type != local drop"; forget`,
			fails: all, named: `fault_f`,
		},
		{
			name: "what is for groups is dropped by nftables, IPv6", v6: true,
			make:  `hook f inet prerouting -150 "fib daddr type { broadcast, anycast, multicast } drop"; forget`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "what is for groups is dropped by nftables",
			make:  `hook f inet prerouting -150 "fib daddr type { broadcast, anycast, multicast } drop"; forget`,
			fails: none,
		},
		{
			name:  "the bridge drops broadcasts by their type",
			make:  `hook f bridge prerouting -10 "meta pkttype broadcast drop"; forget`,
			fails: all, named: `fault_f`,
		},
		{
			name: "the bridge drops what is for groups, IPv6", v6: true,
			make: `hook f bridge prerouting -10 "ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00 drop"
				forget`,
			fails: all, named: `fault_f`,
		},
		{
			name: "the bridge drops what pods ask under other addresses",
			make: `hook f bridge prerouting -10 "iifname $CV arp saddr ip != $C drop" \
				"iifname $CV arp saddr ether != $CMAC drop" "iifname $CV ip saddr != $C drop"
				forget`,
			fails: none, unknownToo: true,
		},
		{
			name:  "the bridge drops what a pod asks under its own address",
			make:  `hook f bridge prerouting -10 "iifname $CV arp saddr ip != 10.245.1.66 drop"; forget`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "questions for the gateway are dropped by a table of arp",
			make:  `hook f arp input 0 "arp daddr ip 10.245.1.1 drop"; forget`,
			fails: all, named: `fault_f`,
		},
		{
			name: "questions for the gateway are dropped at the client's port",
			make: `hook f netdev "ingress device $CV" 0 "arp operation request arp daddr ip 10.245.1.1 drop"
				forget`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "what is no question of IP and Ethernet is dropped",
			make:  `hook f arp input 0 "arp htype != 1 drop" "arp plen != 4 drop"; forget`,
			fails: none,
		},
		{
			name: "a table of arp that knows pods alone",
			make: `nft 'add table arp t
					add chain arp t c { type filter hook input priority 0; policy drop; }
					add rule arp t c arp saddr ip 10.245.1.0/24 accept'
				forget`,
			fails: some, named: `arp`,
		},
		{
			name: "another pod has had the address of the gateway, IPv6", v6: true,
			make: `ip -6 addr del fd00:10:245:1::1/64 dev cni0
				in_local ip -6 addr add fd00:10:245:1::1/128 dev eth0 nodad
				sysctl -qw net.ipv6.conf.cni0.accept_dad=1 net.ipv6.conf.all.accept_dad=1
				ip -6 addr add fd00:10:245:1::1/64 dev cni0; wait_for dadfailed ip -6 addr show dev cni0
				in_local ip -6 addr del fd00:10:245:1::1/128 dev eth0; forget`,
			fails: all, named: `dadfailed`,
		},
	}
}
