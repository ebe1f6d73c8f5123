// SPDX-License-Identifier: Apache-2.0

package faults

// conditionFaults are those of rules with conditions about what a packet or its connection has by then: a TTL, flags,
// a direction, a size, a state.
func conditionFaults() []fault {
	return []fault{
		{
			name: "FORWARD drops a TTL that the client's packets have there", fails: all, named: `FORWARD|ttl`,
			make: `iptables-nft -I FORWARD -s $C -m ttl --ttl-eq 63 -j DROP`, varies: true,
		},
		{
			name: "FORWARD drops a TTL that no packet has there", fails: none, unknownToo: true,
			make: `iptables-nft -I FORWARD -i cni0 -o eth0 -m ttl --ttl-eq 64 -j DROP`,
		},
		{
			name: "answers with SYN and ACK are dropped by nftables", fails: all, named: `fault_f`, mismatch: true,
			make: `hook f ip forward 0 "tcp flags & (syn|ack) == (syn|ack) drop"`,
		},
		{
			name: "packets behind the handshake are dropped by nftables", fails: all, named: `fault_f`, mismatch: true,
			make: `hook f ip forward 0 "ct direction original tcp flags & (syn|ack) == ack drop"`,
		},
		{
			name: "data is dropped by its length", fails: all, named: `length`, large: true, varies: true,
			make: `iptables-nft -I FORWARD -m length --length 500:65535 -j DROP`,
		},
		{
			name: "what is long ago is dropped", fails: none,
			make: `iptables-nft -I FORWARD -m time --datestop 2001-01-01 -j DROP`,
		},
		{
			name: "what is at any time is dropped", fails: all, named: `FORWARD`, mismatch: true,
			make: `iptables-nft -I FORWARD -m time --datestart 2001-01-01 -j DROP`,
		},
		{
			name: "raw drops what is for the node's addresses, NodePort from outside", from: "outside", nodePort: true,
			fails: all, named: `PREROUTING`, mismatch: true,
			make: `iptables-nft -t raw -I PREROUTING -m addrtype --dst-type LOCAL -p tcp --dport 30000:32767 -j DROP`,
		},
		{
			name: "raw drops what is for the node's addresses, to a ClusterIP", fails: none,
			make: `iptables-nft -t raw -I PREROUTING -m addrtype --dst-type LOCAL -p tcp --dport 80 -j DROP`,
		},
		{
			name: "FORWARD drops by the source of answers", fails: some, named: `FORWARD`, mismatch: true,
			make: `iptables-nft -I FORWARD -m conntrack --ctreplsrc $R -j DROP`,
		},
		{
			name: "FORWARD drops connections that nobody answered", fails: all, named: `FORWARD`,
			make: `iptables-nft -I FORWARD -m conntrack ! --ctstatus SEEN_REPLY -j DROP`,
		},
		{
			name: "FORWARD drops connections that are assured", fails: all, named: `FORWARD`, varies: true, unknownToo: true,
			make: `iptables-nft -I FORWARD -m conntrack --ctstatus ASSURED -j DROP`,
		},
		{
			name: "packets of many bytes are dropped", fails: all, large: true, varies: true, named: `connbytes`,
			make: `iptables-nft -I FORWARD -m connbytes --connbytes 5000: --connbytes-dir both --connbytes-mode bytes -j DROP`,
		},
		{
			name: "answers are refused by a reset", fails: all, named: `fault_f`, mismatch: true,
			make: `hook f inet forward 0 "tcp sport 8080 reject with tcp reset"`,
		},
		{
			name: "a map of verdicts for the client and the port", fails: all, named: `fault_f`, mismatch: true,
			make: `nft add table ip fault_f; nft 'add chain ip fault_f c { type filter hook forward priority 0; }'
				nft "add rule ip fault_f c ip saddr . tcp dport vmap { $C . 8080 : drop, $L . 8080 : accept }"`,
		},
		{
			name: "a map of verdicts for another port", fails: none,
			make: `nft add table ip fault_f; nft 'add chain ip fault_f c { type filter hook forward priority 0; }'
				nft "add rule ip fault_f c ip saddr . tcp dport vmap { $C . 80 : drop, $L . 8080 : accept }"`,
		},
		{
			name: "an interface is named by its number", fails: some, varies: true, named: `fault_f`, mismatch: true,
			make: `hook f ip forward 0 "meta iif cni0 meta oif eth0 drop"`,
		},
		{
			name: "an interface had another name when a rule was made", fails: some, varies: true, named: `fault_f`,
			make: `ip link add d7 type veth peer name d8; hook f ip forward 0 "meta oif d7 drop" "oifname eth0 ct state new drop"`,
		},
		{
			name: "the route back of a source is asked by a rule of nftables", fails: all, named: `fault_f`, varies: true,
			make: `hook f ip prerouting -200 "ip saddr $C fib saddr . iif oif exists drop"`,
		},
		{
			name: "the destination's type is asked by a rule of nftables before translation", from: "outside", nodePort: true,
			fails: all, named: `fault_f`, mismatch: true,
			make: `hook f ip prerouting -300 "fib daddr type local tcp dport 30358 drop"`,
		},
		{
			name: "a table of nftables translates the source to one port", fails: some, varies: true, unknownToo: true,
			named: `40000|fault`,
			make: `nft add table ip fault_n; nft 'add chain ip fault_n c { type nat hook postrouting priority 90; }'
				nft 'add rule ip fault_n c oifname eth0 ip protocol tcp masquerade to :40000-40100'`,
		},
		{
			name: "a chain reroutes the node's packets by a mark", from: "node", fails: some, named: `66`,
			make: `nft add table ip fault_r; nft 'add chain ip fault_r c { type route hook output priority 10; }'
				nft "add rule ip fault_r c ip daddr $R meta mark set 0x66"; ip rule add pref 66 fwmark 0x66 blackhole`,
		},
		{
			name: "a chain marks the node's packets, and does not reroute them", from: "node", fails: none, unknownToo: true,
			make: `nft add table ip fault_r; nft 'add chain ip fault_r c { type filter hook output priority 10; }'
				nft "add rule ip fault_r c ip daddr $R meta mark set 0x66"; ip rule add pref 66 fwmark 0x66 blackhole`,
		},
		{
			name: "the longest prefix is suppressed, and the default route is another", fails: some, varies: true,
			named: `67|blackhole`,
			make: `ip rule add pref 66 from 10.245.0.0/16 lookup main suppress_prefixlength 24
				ip rule add pref 67 from 10.245.0.0/16 lookup 67; ip route add blackhole default table 67`,
		},
		{
			name: "IPv6 is off on the uplink", v6: true, fails: some, named: `fd00:10:245|disable_ipv6`,
			make: `sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1`,
		},
		{
			name: "IPv6 is off on the bridge", v6: true, fails: all, named: `cni0|disable_ipv6`,
			make: `sysctl -qw net.ipv6.conf.cni0.disable_ipv6=1`,
		},
		{
			name: "the uplink does not forward, from the node", from: "node", fails: none,
			make: `sysctl -qw net.ipv4.conf.eth0.forwarding=0`,
		},
		{
			name: "a route of the endpoints' network is local", fails: some, named: `local 10\.245\.0\.0/24`,
			make: `ip route add local $RCIDR dev lo table local`,
		},
		{
			name: "a NodePort asked by a pod, which INPUT would drop", nodePort: true, fails: none,
			make: `iptables-nft -I INPUT -d 10.79.0.11 -p tcp -j DROP`,
		},
		{
			name: "a NodePort asked by a pod, which FORWARD drops by the mark of masquerading", nodePort: true, fails: all,
			varies: true, named: `FORWARD`, make: `iptables-nft -I FORWARD -m mark --mark 0x4000/0x4000 -j DROP`,
		},
		{
			name: "a NodePort asked by the node itself, which OUTPUT drops", nodePort: true, from: "node", fails: all,
			named: `OUTPUT`, mismatch: true, make: `iptables-nft -t mangle -I OUTPUT -p tcp --dport 30358 -j DROP`,
		},
		{
			name: "a NodePort, IPv6, from outside, and FORWARD drops what comes from there", nodePort: true, v6: true,
			from: "outside", fails: all, named: `FORWARD`, mismatch: true,
			make: `ip6tables-nft -I FORWARD -i eth0 -m conntrack --ctstate NEW -j DROP`,
		},
		{
			name: "a third of new connections is dropped by a count", fails: some, named: `statistic`, varies: true,
			make: `iptables-nft -I FORWARD -m conntrack --ctstate NEW -m statistic --mode nth --every 3 --packet 0 -j DROP`,
		},
		{
			name: "packets with a timestamp of TCP are dropped", fails: all, named: `fault_f`, varies: true, unknownToo: true,
			make: `hook f ip forward 0 "tcp option timestamp exists drop"`,
		},
		{
			name: "packets with the size of segments are dropped", fails: all, named: `fault_f`, unknownToo: true,
			make: `hook f ip forward 0 "tcp option maxseg exists drop"`,
		},
		{
			name: "a limit for all, and a drop behind it", fails: some, varies: true, unknownToo: true, named: `limit`,
			make: `iptables-nft -I FORWARD -j DROP; iptables-nft -I FORWARD -m limit --limit 1/hour --limit-burst 5 -j ACCEPT`,
		},
	}
}
