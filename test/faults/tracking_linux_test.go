// SPDX-License-Identifier: Apache-2.0

package faults

// trackingFaults are those of rules that go by what connection tracking, sets and counters know of packets, and of
// rules that change packets.
func trackingFaults() []fault {
	const helper = `nft add table ip t; nft 'add chain ip t c { type filter hook prerouting priority -150; }'
		`
	return []fault{
		{
			name: "a helper drops what is not of its protocol", udp: true, fails: some, named: `snmp_trap`,
			make: `iptables -t raw -A PREROUTING -p udp --dport 80 -j CT --helper snmp_trap`,
		},
		{
			name: "a helper drops what is not of its protocol, by nftables", udp: true, fails: some, named: `ct helper`,
			make: helper + `nft 'add ct helper ip t h { type "snmp_trap" protocol udp; }'
				nft 'add rule ip t c udp dport 80 ct helper set "h"'`,
		},
		{
			name: "a helper lets pass what is not of its protocol", udp: true, fails: none,
			make: `iptables -t raw -A PREROUTING -p udp --dport 80 -j CT --helper tftp`,
		},
		{
			name: "a helper of TCP, by nftables", fails: none,
			make: helper + `nft 'add ct helper ip t h { type "ftp" protocol tcp; }'
				nft 'add rule ip t c tcp dport 80 ct helper set "h"'`,
		},
		{
			name:  "the reverse path is asked by nftables, and is there",
			make:  `hook f inet prerouting -150 "fib saddr . iif oif missing drop"`,
			fails: none,
		},
		{
			name: "the reverse path is asked by nftables, and is another interface",
			make: `ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
				ip route add $R dev d0 table 83; ip rule add pref 83 to $R iif lo lookup 83
				hook f inet prerouting -150 "fib saddr . iif oif missing drop"`, fails: some, named: `fib`, varies: true,
		},
		{
			name: "the reverse path is asked by iptables, and is there",
			make: `iptables-nft -t raw -A PREROUTING -m rpfilter --invert -j DROP`, fails: none,
		},
		{
			name: "the reverse path is asked by iptables, and is another interface",
			make: `ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
				ip route add $R dev d0 table 83; ip rule add pref 83 to $R iif lo lookup 83
				iptables-nft -t raw -A PREROUTING -m rpfilter --invert -j DROP`, fails: some, named: `rpfilter`, varies: true,
		},
		{
			name: "the reverse path is asked by iptables, loosely",
			make: `ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
				ip route add $R dev d0 table 83; ip rule add pref 83 to $R iif lo lookup 83
				iptables-nft -t raw -A PREROUTING -m rpfilter --loose --invert -j DROP`, fails: none, unknownToo: true,
		},
		{
			name:  "nftables drops what is for the node",
			make:  `hook f inet forward 0 "fib daddr type local drop"`,
			fails: none,
		},
		{
			name:  "nftables drops what is from no address of the network",
			make:  `hook f inet forward 0 "fib saddr oif missing drop"`,
			fails: none,
		},
		{
			name:  "SYN and ACK are dropped",
			make:  `iptables-nft -I FORWARD -p tcp --tcp-flags SYN,ACK SYN,ACK -j DROP`,
			fails: all, named: `FORWARD`,
		},
		{
			name:  "the client's first ACK is dropped",
			make:  `hook f inet forward -10 "ip saddr $C tcp flags & (syn|ack|fin|rst) == ack drop"`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "segments with data are dropped",
			make:  `iptables-nft -I FORWARD -p tcp --tcp-flags PSH PSH -j DROP`,
			fails: all, named: `PSH`,
		},
		{
			name:  "urgent segments are dropped",
			make:  `iptables-nft -I FORWARD -p tcp --tcp-flags URG URG -j DROP`,
			fails: none, unknownToo: true,
		},
		{
			name:  "new connections that begin without a SYN are dropped",
			make:  `iptables-nft -I FORWARD -p tcp ! --syn -m conntrack --ctstate NEW -j DROP`,
			fails: none,
		},
		{
			name:  "scans are dropped",
			make:  `iptables-nft -I FORWARD -p tcp --tcp-flags ALL NONE -j DROP; iptables-nft -I FORWARD -p tcp --tcp-flags ALL ALL -j DROP; iptables-nft -I FORWARD -p tcp --tcp-flags SYN,FIN SYN,FIN -j DROP; iptables-nft -I FORWARD -p tcp --tcp-flags SYN,RST SYN,RST -j DROP`,
			fails: none,
		},
		{
			name:  "packets that were answered are dropped",
			make:  `iptables-nft -I FORWARD -m conntrack --ctstatus SEEN_REPLY -j DROP`,
			fails: all, named: `SEEN_REPLY`,
		},
		{
			name:  "packets of connections that are sure are dropped",
			make:  `hook f inet forward -10 "ct status assured drop"`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "packets of connections that are not confirmed are dropped",
			make:  `hook f inet forward -10 "ip saddr $C ct status & confirmed == 0 drop"`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "packets of connections that a helper expected are dropped",
			make:  `iptables-nft -I FORWARD -m conntrack --ctstatus EXPECTED -j DROP`,
			fails: none,
		},
		{
			name:  "connections to the frontend are dropped by what they were",
			make:  `iptables-nft -I FORWARD -m conntrack --ctorigdst $S --ctorigdstport 80 -j DROP`,
			fails: all, named: `ctorigdst`, mismatch: true,
		},
		{
			name:  "connections of three packets are dropped",
			make:  `sysctl -qw net.netfilter.nf_conntrack_acct=1; iptables-nft -I FORWARD -m connbytes --connbytes 3: --connbytes-dir both --connbytes-mode packets -j DROP`,
			fails: all, named: `connbytes`,
		},
		{
			name:  "connections with a label are dropped",
			make:  `iptables-nft -I FORWARD -m connlabel --label 5 -j DROP`,
			fails: none, unknownToo: true,
		},
		{
			name:  "invalid packets are dropped, and answers are not tracked",
			make:  `iptables-nft -I FORWARD -m conntrack --ctstate INVALID -j DROP; hook f ip prerouting -300 "ip saddr $R tcp sport 8080 notrack"`,
			fails: some, named: `not tracked`,
		},
		{
			name:  "packets of the client behind the first are not tracked",
			make:  `hook f ip prerouting -300 "ip saddr $C tcp flags & (syn | ack) == ack notrack"`,
			fails: all, named: `fault_f c rule 1`, mismatch: true,
		},
		{
			name:  "answers behind the first have a zone of theirs",
			make:  `hook f ip prerouting -300 "ip saddr $R tcp flags & (syn | ack) == ack ct zone set 5"`,
			fails: some, named: `fault_f c rule 1`,
		},
		{
			name: "the node's packets are not tracked", from: "node",
			make:  `hook f ip output -300 "ip daddr $S tcp dport 80 notrack"`,
			fails: all, named: `fault_f|notrack`,
		},
		{
			name:  "answers by the uplink have a zone of theirs",
			make:  `hook f ip prerouting -300 "iifname eth0 ct reply zone set 5"`,
			fails: some, named: `zone`, varies: true,
		},
		{
			name:  "requests have a zone, by the bridge, and answers another",
			make:  `hook f ip prerouting -300 "iifname cni0 ct zone set 5" "iifname eth0 ct zone set 6"`,
			fails: some, named: `zone`, varies: true,
		},
		{
			name:  "requests have a zone of their direction",
			make:  `hook f ip prerouting -300 "iifname cni0 ct original zone set 5"`,
			fails: none, varies: true, unknownToo: true,
		},
		{
			name: "a set whose element has a time that is not over",
			make: `nft add table inet t; nft add set inet t s '{ type ipv4_addr; flags timeout; }'; nft add element inet t s "{ $C timeout 1h }"
			nft add chain inet t c '{ type filter hook forward priority -10; }'; nft add rule inet t c ip saddr @s drop`,
			fails: all, named: `@s`,
		},
		{
			name: "a set whose element has a time that is over",
			make: `nft add table inet t; nft add set inet t s '{ type ipv4_addr; flags timeout; }'; nft add element inet t s "{ $C timeout 1s }"
			nft add chain inet t c '{ type filter hook forward priority -10; }'; nft add rule inet t c ip saddr @s drop; sleep 1.2`,
			fails: none,
		},
		{
			name: "a set that the first packet adds to",
			make: `nft add table inet t; nft add set inet t s '{ type ipv4_addr; flags dynamic,timeout; timeout 1m; }'
			nft add chain inet t c '{ type filter hook forward priority -10; }'; nft add rule inet t c ip saddr @s drop; nft add rule inet t c tcp flags syn add @s "{ ip saddr }"`,
			fails: all, named: `@s|set`,
		},
		{
			name: "a set that other packets add to",
			make: `nft add table inet t; nft add set inet t s '{ type ipv4_addr; flags dynamic,timeout; timeout 1m; }'
			nft add chain inet t c '{ type filter hook forward priority -10; }'; nft add rule inet t c ip saddr @s drop; nft add rule inet t c tcp dport 23 add @s "{ ip saddr }"`,
			fails: none, unknownToo: true,
		},
		{
			name:  "an ipset that the first packet adds to",
			make:  `ipset create s hash:ip timeout 60; iptables-nft -I FORWARD -p tcp --syn -j SET --add-set s src; iptables-nft -I FORWARD -m set --match-set s src -j DROP`,
			fails: all, named: `set s|SET|match-set`,
		},
		{
			name:  "an ipset that the answer adds to",
			make:  `ipset create s hash:ip timeout 60; iptables-nft -I FORWARD -p tcp --tcp-flags SYN,ACK SYN,ACK -j SET --add-set s dst; iptables-nft -I FORWARD -m set --match-set s src -j DROP`,
			fails: all, named: `set s|SET|match-set`,
		},
		{
			name:  "a list of recent addresses that the first packet adds to",
			make:  `iptables-nft -I FORWARD -p tcp --syn -m recent --name x --set; iptables-nft -I FORWARD -m recent --name x --rcheck -j DROP`,
			fails: all, named: `recent`,
		},
		{
			name:  "a list of recent addresses that counts no packet of the path",
			make:  `iptables-nft -I FORWARD -p tcp --dport 23 -m recent --name x --set; iptables-nft -I FORWARD -m recent --name x --rcheck -j DROP`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a quota of nftables that is used up",
			make:  `hook f inet forward -10 "ip saddr $C quota over 100 bytes drop"`,
			fails: all, named: `quota`,
		},
		{
			name:  "a limit of nftables",
			make:  `hook f inet forward -10 "ip saddr $C tcp flags syn limit rate over 1/minute burst 1 packets drop"`,
			fails: some, named: `limit`,
		},
		{
			name:  "a count of connections of nftables",
			make:  `hook f inet forward -10 "ip saddr $C tcp flags syn ct count over 2 drop"`,
			fails: some, named: `ct count`, varies: true,
		},
		{
			name:  "half of the connections are dropped by a hash of the port",
			make:  `hook f inet forward -10 "ip saddr $C jhash tcp sport mod 2 0 drop"`,
			fails: some, named: `jhash`,
		},
		{
			name:  "connections are dropped by a hash of the address",
			make:  `hook f inet forward -10 "jhash ip saddr mod 1 0 drop"`,
			fails: all, named: `jhash`,
		},
		{
			name:  "a rule for most of the day",
			make:  `hook f inet forward -10 "meta hour \"00:00\"-\"23:59\" ip saddr $C drop"`,
			fails: all, named: `hour`,
		},
		{
			name:  "a rule for the next hop",
			make:  `hook f inet forward -10 "rt ip nexthop $RNODE drop"`,
			fails: some, named: `nexthop`,
		},
		{
			name:  "a rule for another next hop",
			make:  `hook f inet forward -10 "rt ip nexthop 10.79.0.99 drop"`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a rule for the realm of a route",
			make:  `ip route replace $RCIDR via $RNODE realm 3; iptables-nft -I FORWARD -m realm --realm 3 -j DROP`,
			fails: some, named: `realm`,
		},
		{
			name:  "a rule for a text that nobody sends",
			make:  `iptables-nft -I FORWARD -p tcp --dport 8080 -m string --algo bm --string attack -j DROP`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a rule for bits of the header",
			make:  `iptables-nft -I FORWARD -p tcp -m u32 --u32 "6&0xFF=6" -j DROP`,
			fails: all, named: `u32`,
		},
		{
			name:  "answers get another source before they are tracked",
			make:  `hook f ip prerouting -300 "ip saddr $R ip saddr set 192.0.2.77"`,
			fails: some, named: `fault_f`,
		},
		{
			name:  "requests get another destination before they are tracked",
			make:  `hook f ip prerouting -300 "ip saddr $C ip daddr $S ip daddr set 192.0.2.77"`,
			fails: all, named: `fault_f`,
		},
		{
			name:  "requests get another port on their way",
			make:  `hook f ip forward 0 "ip daddr $R tcp dport 8080 tcp dport set 8081"`,
			fails: some, named: `fault_f`,
		},
		{
			name:  "requests get a small time to live, of which one hop is left",
			make:  `hook f ip prerouting -300 "ip saddr $C ip ttl set 2"`,
			fails: none, unknownToo: true,
		},
		{
			name:  "requests get a time to live that ends on the node",
			make:  `hook f ip prerouting -300 "ip saddr $C ip ttl set 1"`,
			fails: some, named: `ttl`, varies: true,
		},
		{
			name: "IPv6: requests get a hop limit that ends on the node", v6: true,
			make:  `ip6tables-nft -t mangle -A PREROUTING -s $C6 -j HL --hl-set 1`,
			fails: some, named: `HL|hop limit`, varies: true,
		},
		{
			name:  "the table security drops",
			make:  `iptables-nft -t security -A FORWARD -s $C -j DROP`,
			fails: all, named: `security`, mismatch: true,
		},
		{
			name:  "a table that sleeps drops nothing",
			make:  `nft 'add table ip t { flags dormant; }; add chain ip t c { type filter hook forward priority 0; policy drop; }'`,
			fails: none,
		},
		{
			name:  "a policy that drops, of a chain that knows requests alone",
			make:  `nft 'add table ip t; add chain ip t c { type filter hook forward priority 0; policy drop; }'; nft add rule ip t c ip saddr $C accept`,
			fails: all, named: `policy|fault|ip t`,
		},
		{
			name:  "a policy that drops, of a chain that knows what is established",
			make:  `nft 'add table ip t; add chain ip t c { type filter hook forward priority 0; policy drop; }'; nft add rule ip t c ip saddr $C accept; nft add rule ip t c ct state established accept`,
			fails: none,
		},
		{
			name:  "requests are redirected to the node, where nobody listens",
			make:  `iptables-nft -t nat -I PREROUTING -d $S -p tcp -j REDIRECT --to-ports 9999`,
			fails: all, named: `REDIRECT`,
		},
		{
			name:  "requests go through a proxy of SYNs",
			make:  `iptables-nft -I FORWARD -s $C -p tcp -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --wscale 7 --mss 1460`,
			fails: none, unknownToo: true,
		},
		{
			name:  "the source is another node's address",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source $QNODE`,
			fails: some, named: `SNAT|10\.79\.0\.13`,
		},
		{
			name:  "the source is an address of the node's other interface",
			make:  `ip addr add 10.79.0.50/32 dev lo; iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 10.79.0.50`,
			fails: none, unknownToo: true,
		},
		{
			name:  "the source is an address of the pods' network that nobody has",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 10.245.1.99`,
			fails: none, unknownToo: true,
		},
		{
			name:  "the source is an address of loopback",
			make:  `iptables-nft -t nat -I POSTROUTING -s $C -o eth0 -j SNAT --to-source 127.0.0.1`,
			fails: some, named: `SNAT`,
		},
		{
			name:  "what goes to pods is masqueraded, too",
			make:  `iptables-nft -t nat -I POSTROUTING -o cni0 -j MASQUERADE`,
			fails: none, unknownToo: true,
		},
		{
			name: "prefixes are translated without tracking, IPv6", v6: true,
			make:  `ip6tables-nft -t mangle -A POSTROUTING -o eth0 -s fd00:10:245:1::/64 -j SNPT --src-pfx fd00:10:245:1::/64 --dst-pfx fd00:99:99:1::/64`,
			fails: some, named: `SNPT`,
		},
		{
			name:  "packets that a socket of the node would take are dropped",
			make:  `iptables-nft -t mangle -A PREROUTING -p tcp -m socket -j DROP`,
			fails: none, unknownToo: true,
		},
		{
			name:  "packets are put to classes",
			make:  `iptables-nft -t mangle -A POSTROUTING -j CLASSIFY --set-class 1:10; iptables-nft -A FORWARD -j NFLOG --nflog-group 9; hook f inet forward 0 'log prefix "x" counter'`,
			fails: none,
		},
		{
			name:  "a device with an asterisk, which nft takes for a pattern or for a name",
			make:  `hook f netdev 'ingress device "veth*"' 0 "ip daddr $S drop"`,
			fails: none, varies: true, named: `fault_f`,
		},
	}
}
