// SPDX-License-Identifier: Apache-2.0

package faults

// betweenFaults are those of what rules, routing and connection tracking know of each other: states, marks and sources
// as they are at a hook and not as they are in the end.
func betweenFaults() []fault {
	return []fault{
		{
			name: "a class of traffic that counts as another for a rule",
			make: `iptables-nft -t mangle -A PREROUTING -s $C -j DSCP --set-dscp 0x34
				ip rule add pref 79 tos 0x10 blackhole`,
			fails: all, named: `79: from`,
		},
		{
			name: "a class of traffic that a rule is for, IPv6", v6: true,
			make: `ip6tables-nft -t mangle -A PREROUTING -s $C6 -j DSCP --set-dscp 0x34
				ip -6 rule add pref 79 tos 0xd0 blackhole`,
			fails: all, named: `79: from`,
		},
		{
			name: "the bridge alone does not forward, IPv6", v6: true,
			make:  `sysctl -qw net.ipv6.conf.cni0.forwarding=0`,
			fails: none,
		},
		{
			name: "forwarding is forced on all interfaces, IPv6", v6: true,
			make: `sysctl -qw net.ipv6.conf.all.forwarding=0
				sysctl -qw net.ipv6.conf.cni0.force_forwarding=1 net.ipv6.conf.eth0.force_forwarding=1`,
			fails: none,
		},
		{
			name: "forwarding is forced on the bridge alone, IPv6", v6: true,
			make:  `sysctl -qw net.ipv6.conf.all.forwarding=0; sysctl -qw net.ipv6.conf.cni0.force_forwarding=1`,
			fails: some, named: `orwarding`,
		},
		{
			name: "IPv6 is disabled at ports of the bridge", v6: true,
			make:  `sysctl -qw net.ipv6.conf.$CV.disable_ipv6=1 net.ipv6.conf.$LV.disable_ipv6=1`,
			fails: none,
		},
		{
			name: "a rule has connections forgotten at once",
			make: `nft 'add table ip t; add ct timeout ip t x {
					protocol tcp; l3proto ip; policy = { syn_recv: 0, syn_sent: 0 }; }'
				nft add chain ip t c '{ type filter hook prerouting priority -150; }'
				nft add rule ip t c tcp dport 80 ct timeout set '"x"'`,
			fails: all, named: `timeout`,
		},
		{
			name: "a chain of nat in front of kube-proxy's accepts",
			make: `nft 'add table ip t
					add chain ip t c { type nat hook prerouting priority -110; }'
				nft add rule ip t c ip daddr $S accept`,
			fails: none,
		},
		{
			name: "a chain of nat in front of kube-proxy's drops",
			make: `nft 'add table ip t
					add chain ip t c { type nat hook prerouting priority -110; }'
				nft add rule ip t c ip daddr $S drop`,
			fails: all, named: `nft t c rule 1`,
		},
		{
			name: "the node's packets are dropped by the interface that they had before", from: "node",
			make:  `iptables-nft -I OUTPUT -o eth0 -d $L -j DROP`,
			fails: some, named: `OUTPUT`,
		},
		{
			name: "the node's packets are dropped by the interface that they have behind the translation", from: "node",
			make:  `iptables-nft -I OUTPUT -o cni0 -d $L -p tcp --syn -j DROP`,
			fails: none,
		},
		{
			name:  "what connection tracking has not seen yet is dropped as invalid",
			make:  `hook f ip prerouting -250 "ip saddr $C ct state invalid drop"`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "what connection tracking has not seen yet is no new connection",
			make:  `hook f ip prerouting -250 "ip saddr $C ct state new drop"`,
			fails: none,
		},
		{
			name: "a mark of ingress leads answers to a blackhole",
			make: `ip rule add pref 60 fwmark 0x99 blackhole
				hook f netdev "ingress device eth0" 0 "tcp sport 8080 meta mark set 0x99"`,
			fails: some, named: `60: from`,
		},
		{
			name: "a mark of a bridge leads to a blackhole",
			make: `ip rule add pref 60 fwmark 0x99 blackhole
				hook f bridge prerouting -10 "ip saddr $C meta mark set 0x99"`,
			fails: all, named: `60: from`,
		},
		{
			name:  "the bridge drops frames for other hosts",
			make:  `hook f bridge prerouting 0 "meta pkttype other drop"`,
			fails: some, named: `fault_f`,
		},
		{
			name: "the reverse path is asked with the mark, which has no route",
			make: `ip rule add pref 60 fwmark 0x7 unreachable
				hook f inet prerouting -150 "ip saddr $C meta mark set 0x7" "fib saddr . mark . iif oif missing drop"
				hook g inet prerouting -140 "meta mark set 0"`,
			fails: all, named: `fault_f`,
		},
		{
			name: "the reverse path is asked by iptables with the mark, which has no route",
			make: `ip rule add pref 60 fwmark 0x7 unreachable
				iptables-nft -t raw -A PREROUTING -i cni0 -j MARK --set-mark 0x7
				iptables-nft -t raw -A PREROUTING -m rpfilter --validmark --invert -j DROP
				iptables-nft -t mangle -A PREROUTING -j MARK --set-mark 0`,
			fails: all, named: `rpfilter`,
		},
		{
			name: "the reverse path is asked by iptables without the mark, which has no route",
			make: `ip rule add pref 60 fwmark 0x7 unreachable
				iptables-nft -t raw -A PREROUTING -i cni0 -j MARK --set-mark 0x7
				iptables-nft -t raw -A PREROUTING -m rpfilter --invert -j DROP
				iptables-nft -t mangle -A PREROUTING -j MARK --set-mark 0`,
			fails: none,
		},
		{
			name: "IPv6 has a smaller MTU by a setting, and the node drops its own ICMPv6", v6: true, large: true,
			make: `sysctl -qw net.ipv6.conf.eth0.mtu=1300
				ip6tables-nft -A OUTPUT -p ipv6-icmp -m icmp6 --icmpv6-type 2 -j DROP`,
			fails: some, named: `OUTPUT rule|mtu`,
		},
		{
			name: "IPv6 has a smaller MTU by a setting", v6: true, large: true,
			make:  `sysctl -qw net.ipv6.conf.eth0.mtu=1300`,
			fails: none,
		},
		{
			name: "a route that is over, IPv6", v6: true,
			make:  `ip -6 route add $R6 via fd00:79::99 expires 1; sleep 2.5; ip -6 route show`,
			fails: none,
		},
		{
			name:  "the table local ends the lookup",
			make:  `ip route add throw $R table local`,
			fails: some, named: `throw`,
		},
		{
			name: "the source is an address of the node that others have no route to",
			make: `ip addr add 192.0.2.50/32 dev lo
				iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 192.0.2.50`,
			fails: some, named: `SNAT|192\.0\.2\.50`,
		},
		{
			name:  "the source is an address of a group",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 224.0.0.7`,
			fails: some, named: `SNAT`,
		},
		{
			name:  "the source is that of the Service",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source $S`,
			fails: some, named: `SNAT`,
		},
		{
			name:  "the source is that of the endpoint",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -d $L -j SNAT --to-source $L`,
			fails: some, named: `SNAT`,
		},
		{
			name:  "the first packet is not tracked",
			make:  `iptables-nft -t raw -A PREROUTING -s $C -p tcp --syn -j CT --notrack`,
			fails: all, named: `notrack`,
		},
		{
			name:  "packets behind the first one are not tracked",
			make:  `iptables-nft -t raw -A PREROUTING -s $C -p tcp ! --syn -j CT --notrack`,
			fails: all, named: `notrack|raw`,
		},
		{
			name:  "answers behind the first one are not tracked",
			make:  `iptables-nft -t raw -A PREROUTING -p tcp --sport 8080 --tcp-flags SYN NONE -j CT --notrack`,
			fails: all, named: `not tracked`,
		},
		{
			name:  "packets behind the first one have a zone",
			make:  `iptables-nft -t raw -A PREROUTING -s $C -p tcp ! --syn -j CT --zone 7`,
			fails: all, named: `zone`,
		},
		{
			name:  "translated packets are dropped by what connection tracking knows",
			make:  `hook f inet postrouting 200 "ct status snat oifname eth0 drop"`,
			fails: some, named: `fault_f`,
		},
		{
			name: "a set gives packets a mark that leads to a blackhole",
			make: `ipset create m hash:ip skbinfo; ipset add m $C skbmark 0x77
				iptables-nft -t mangle -A PREROUTING -j SET --map-set m src --map-mark
				ip rule add pref 60 fwmark 0x77 blackhole`,
			fails: all, named: `60: from|--map-set`,
		},
		{
			name: "a set of networks and interfaces that packets leave by",
			make: `ipset create n hash:net,iface; ipset add n $RCIDR,eth0
				iptables-nft -A FORWARD -m set --match-set n dst,dst -j DROP`,
			fails: some, named: `FORWARD`,
		},
		{
			name:  "nat ends before kube-proxy's chains",
			make:  `iptables-nft -t nat -I PREROUTING -d $S -j RETURN`,
			fails: all, named: `PREROUTING`,
		},
		{
			name: "a chain of somebody's ends before kube-proxy's chains",
			make: `iptables-nft -t nat -N X; iptables-nft -t nat -I PREROUTING -j X
				iptables-nft -t nat -A X -d $S -j RETURN`,
			fails: none,
		},
		{
			name: "the mark of masquerading is taken away on the way, from an endpoint", from: "endpoint",
			make:  `iptables-nft -t mangle -A FORWARD -j MARK --set-mark 0`,
			fails: some, named: `FORWARD|asquerad`,
		},
		{
			name: "the source of what an endpoint sends itself stays its own", from: "endpoint",
			make: `nft 'add table ip t
					add chain ip t c { type nat hook postrouting priority 90; }
					add rule ip t c ip saddr '$L' snat to '$L`,
			fails: some, named: `t c`,
		},
		{
			name: "the network of the source is translated",
			make: `nft 'add table ip t
					add chain ip t c { type nat hook postrouting priority 90; }
					add rule ip t c oifname eth0 snat ip prefix to ip saddr map { 10.245.1.0/24 : 10.99.1.0/24 }'`,
			fails: some, named: `t c`,
		},
		{
			name: "a mark from before connection tracking, and what has it is dropped",
			make: `hook f ip prerouting -450 "ip saddr $C ct state new drop" "tcp dport 80 ip daddr $S meta mark set 0x55"
				hook g ip forward 0 "meta mark 0x55 drop"`,
			fails: all, named: `fault_g`,
		},
		{
			name: "a mark from before connection tracking that is taken away",
			make: `hook f ip prerouting -450 "ip daddr $S meta mark set 0x55"
				hook h inet prerouting -10 "meta mark 0x55 meta mark set 0"
				hook g ip forward 0 "meta mark 0x55 drop"`,
			fails: none,
		},
		{
			name: "the uplink has lost its address, from the node, IPv6", v6: true, from: "node",
			make: `ip -6 addr del fd00:79::11/64 dev eth0; ip -6 route add fd00:79::/64 dev eth0
				ip -6 route replace default via fd00:79::1; ip -6 route replace $RCIDR6 via $RNODE6
				ip -6 route replace fd00:10:245:2::/64 via $QNODE6`,
			fails: some, named: `fd00:79::11`,
		},
		{
			name: "somebody masquerades behind kube-proxy's chain",
			make: `nft 'add table ip t
					add chain ip t c { type nat hook postrouting priority 110; }
					add rule ip t c masquerade'`,
			fails: none, unknownToo: true,
		},
	}
}
