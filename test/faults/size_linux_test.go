// SPDX-License-Identifier: Apache-2.0

package faults

// narrow has packets for the endpoint of node2 leave by an interface of a smaller MTU than the pods' one.
const narrow = `ip link add d0 mtu 1300 type veth peer name d1 netns $RPID
	ip link set d0 up; ip addr add 10.80.0.1/24 dev d0; ip addr add fd00:80::1/64 dev d0 nodad
	in_remote sh -ec 'ip addr add 10.80.0.2/24 dev d1; ip addr add fd00:80::2/64 dev d1 nodad; ip link set d1 up'
	ip route replace $RCIDR via 10.80.0.2; ip -6 route replace $RCIDR6 via fd00:80::2
`

// single has every namespace send single packets, and not many as one (GSO), which a bridge passes on whatever their
// size (is_skb_forwardable in include/linux/netdevice.h), as what comes from a wire may be.
const single = `for p in self $CPID $LPID $RPID $QPID; do
	nsenter --net=/proc/$p/ns/net sh -c '
		for d in $(ip -o link | cut -d: -f2 | cut -d@ -f1); do ip link set $d gso_max_segs 1; done'
done
`

// sizeFaults are those of large packets, and of the message that one was too large.
func sizeFaults() []fault {
	return []fault{
		{
			name: "a smaller MTU, of which the pod is told", large: true,
			make:  narrow,
			fails: none,
		},
		{
			name: "a smaller MTU, of which the pod is told, IPv6", large: true, v6: true,
			make:  narrow,
			fails: none,
		},
		{
			name: "a smaller MTU, and the node drops its own ICMP", large: true,
			make:  narrow + `iptables-nft -A OUTPUT -p icmp -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a smaller MTU, and the node drops its own ICMP behind what is established", large: true,
			make: narrow + `iptables-nft -I OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
				iptables-nft -A OUTPUT -p icmp -m icmp ! --icmp-type 8 -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a smaller MTU, and the node drops its own ICMP behind what is related", large: true,
			make: narrow + `iptables-nft -I OUTPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
				iptables-nft -A OUTPUT -p icmp -j DROP`,
			fails: none,
		},
		{
			name: "a smaller MTU, and rules for other ICMP", large: true,
			make: narrow + `iptables-nft -A OUTPUT -p icmp -m icmp --icmp-type 3/3 -j DROP
				iptables-nft -A OUTPUT -p icmp -m icmp --icmp-type 8 -j DROP`,
			fails: none,
		},
		{
			name: "a smaller MTU, and rules of nftables for other ICMP", large: true,
			make:  narrow + `hook m inet output 0 "icmp type echo-request drop" "icmp type destination-unreachable icmp code port-unreachable drop"`,
			fails: none,
		},
		{
			name: "a smaller MTU, and a rule of nftables for its message", large: true,
			make:  narrow + `hook m inet output 0 "icmp type destination-unreachable icmp code frag-needed drop"`,
			fails: some, named: `fault_m`,
		},
		{
			name: "a smaller MTU, and a rule of nftables for what is related", large: true,
			make:  narrow + `hook m inet postrouting 0 "ct state related drop"`,
			fails: some, named: `fault_m`,
		},
		{
			name: "a smaller MTU, and ICMP is not tracked", large: true,
			make:  narrow + `iptables-nft -t raw -A OUTPUT -p icmp -j CT --notrack`,
			fails: none, // it has the connection of the packet that it is about
		},
		{
			name: "a smaller MTU, ICMP is dropped, and segments are made smaller", large: true,
			make: narrow + `iptables-nft -A OUTPUT -p icmp -j DROP
				iptables-nft -t mangle -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu`,
			fails: none,
		},
		{
			name: "a smaller MTU, ICMP is dropped, and nftables makes segments smaller", large: true,
			make: narrow + `iptables-nft -A OUTPUT -p icmp -j DROP
				hook m inet forward -150 "tcp flags syn tcp option maxseg size set rt mtu"`,
			fails: none,
		},
		{
			name: "a smaller MTU, ICMP is dropped, and a rule names a size of segments that is too large", large: true,
			make: narrow + `iptables-nft -A OUTPUT -p icmp -j DROP
				iptables-nft -t mangle -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1400`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a smaller MTU, ICMP is dropped, and a rule names a size of segments that fits", large: true,
			make: narrow + `iptables-nft -A OUTPUT -p icmp -j DROP
				iptables-nft -t mangle -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1200`,
			fails: none,
		},
		{
			name: "a smaller MTU, and the client's source is translated", large: true,
			make:  narrow + `iptables-nft -t nat -I POSTROUTING -o d0 -j MASQUERADE`,
			fails: none,
		},
		{
			name: "a smaller MTU, and the client's source is not translated", large: true,
			make:  narrow + `in_remote ip route replace $C via 10.80.0.1; iptables-nft -t nat -I POSTROUTING -o d0 -j ACCEPT`,
			fails: none,
		},
		{
			name: "a smaller MTU, and the node drops its own ICMPv6 of this type", large: true, v6: true,
			make:  narrow + `ip6tables-nft -A OUTPUT -p ipv6-icmp -m icmp6 --icmpv6-type 2 -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a route with an MTU, and the node drops its own ICMPv6", large: true, v6: true,
			make: `ip -6 route replace $RCIDR6 via $RNODE6 mtu 1300
				ip6tables-nft -A OUTPUT -p ipv6-icmp -m icmp6 --icmpv6-type 2 -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a route with an MTU, of which the pod is told, IPv6", large: true, v6: true,
			make: `ip -6 route replace $RCIDR6 via $RNODE6 mtu lock 1300`, fails: none,
		},
		{
			name: "a route with an MTU for marked packets, and the node drops its own ICMP", large: true,
			make: `ip rule add pref 70 fwmark 0x70 lookup 70; ip route add $RCIDR via $RNODE mtu 700 table 70
				iptables-nft -t mangle -A PREROUTING -i cni0 -j MARK --set-mark 0x70; iptables-nft -I OUTPUT -p icmp -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a route with an MTU for the endpoints' port, and the node drops its own ICMP", large: true,
			make: `ip rule add pref 70 ipproto tcp dport 8080 lookup 70; ip route add $RCIDR via $RNODE mtu 700 table 70
				iptables-nft -I OUTPUT -p icmp -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a route back with an MTU, and the node drops its own ICMP", large: true,
			make: `ip rule add pref 70 iif eth0 lookup 70; ip route add 10.245.1.0/24 dev cni0 mtu 700 table 70
				iptables-nft -I OUTPUT -p icmp -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a route back with an MTU, of which the endpoint is told", large: true, fails: none,
			make: `ip rule add pref 70 iif eth0 lookup 70; ip route add 10.245.1.0/24 dev cni0 mtu 700 table 70`,
		},
		{
			name: "a route with an MTU, and none for the message", large: true,
			make:  `ip route replace $RCIDR via $RNODE mtu 700; ip rule add pref 60 to $C iif lo prohibit`,
			fails: some, named: `60: .*prohibit`,
		},
		{
			name: "a route with an MTU, and none for the mark that the message has of the packet", large: true,
			make: `ip route replace $RCIDR via $RNODE mtu 700; sysctl -qw net.ipv4.fwmark_reflect=1
				iptables-nft -t mangle -A PREROUTING -i cni0 -j MARK --set-mark 0x70
				ip rule add pref 60 fwmark 0x70 iif lo blackhole`,
			fails: some, named: `60: .*blackhole`,
		},
		{
			name: "the client's port of the bridge takes smaller packets than the bridge", large: true,
			make:  single + `ip link set $CV mtu 1300; ip link set cni0 mtu 1500; touch_all`,
			fails: all, named: `vethfad0f8b0`,
		},
		{
			name: "an endpoint's port of the bridge takes smaller packets than the bridge", large: true,
			make:  single + `ip link set $LV mtu 1300; ip link set cni0 mtu 1500; touch_all`,
			fails: some, named: `veth8f46cb60`,
		},
		{
			name: "an endpoint's port of the bridge takes smaller packets than the bridge, from outside", large: true,
			from: "outside", nodePort: true, make: single + `ip link set $LV mtu 1300; ip link set cni0 mtu 1500; touch_all`,
			fails: some, named: `veth8f46cb60`,
		},
		{
			name: "ports of the bridge take smaller packets than the bridge, and so do the pods", large: true,
			make: single + `ip link set $CV mtu 1300; ip link set $LV mtu 1300; ip link set cni0 mtu 1500
				in_pod ip link set eth0 mtu 1300; in_local ip link set eth0 mtu 1300; touch_all`,
			fails: none,
		},
		{
			name: "a pod takes larger packets than its port, and the node sends none that large", large: true, from: "node",
			make: single + `in_local ip link set eth0 mtu 9000; touch_all`, fails: none,
		},
		{
			name: "a pod takes larger packets than its port, and a client outside sends none that large", large: true,
			from: "outside", nodePort: true, make: single + `in_local ip link set eth0 mtu 9000; touch_all`, fails: none,
		},
		{
			name: "a pod takes larger packets than its port, and endpoints on other nodes none that large", large: true,
			make: single + `in_pod ip link set eth0 mtu 9000; in_local ip link set eth0 mtu 1400; touch_all`, fails: none,
		},
		{
			name: "a port of the bridge takes smaller packets than the pod, and so does the bridge", large: true,
			make: single + `ip link set $CV mtu 1300; touch_all`, fails: all, named: `vethfad0f8b0`,
		},
		{
			name: "an endpoint's port takes smaller packets than the bridge, which calls no rules", large: true, from: "node",
			make: single + `ip link set $LV mtu 1300; ip link set cni0 mtu 1500; touch_all
				sysctl -qw net.bridge.bridge-nf-call-iptables=0`,
			fails: some, named: `veth8f46cb60`,
		},
		{
			name: "a smaller MTU of which the pod is told, and a route back of which the endpoint is not", large: true,
			make: narrow + single + `ip rule add pref 70 iif d0 lookup 70; ip route add 10.245.1.0/24 dev cni0 mtu 700 table 70
				in_remote ip route replace 10.245.1.0/24 via 10.80.0.1
				iptables-nft -I OUTPUT -p icmp -d $R -j DROP; iptables-nft -I OUTPUT -p icmp -d $RNODE -j DROP`,
			fails: some, named: `OUTPUT rule`,
		},
		{
			name: "a queue that counts packets, of sizes of a table",
			make: `tc qdisc add dev $CV root stab mtu 65535 tsize 512 mpu 60000 linklayer ethernet pfifo limit 100`, fails: none,
		},
	}
}
