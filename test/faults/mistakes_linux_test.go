// SPDX-License-Identifier: Apache-2.0

package faults

// mistakeFaults are those that people and programs make beside the rules, and hardening that harms nothing.
func mistakeFaults() []fault {
	return []fault{
		{
			name: "a rule for a user, which forwarded packets belong to as well",
			make: `ip rule add pref 90 from $C uidrange 0-0 blackhole`, fails: all, named: `rule 90|90: from`, mismatch: true,
		},
		{
			name: "the local route of the bridge's address is gone, and nobody knows a neighbour",
			make: `ip route del local 10.245.1.1 dev cni0 table local; forget`, fails: all, named: `table local has no route`,
		},
		{
			name: "the local route of the node's address is gone, which the node's own connections need", from: "node",
			make:  `ip route del local 10.79.0.11 dev eth0 table local; forget`,
			fails: all, named: `table local has no route`,
		},
		{
			name:  "the local route of the node's address is gone, which answers to pods do not need",
			make:  `ip route del local 10.79.0.11 dev eth0 table local; touch_all`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a rule for other users",
			make:  `ip rule add pref 90 from $C uidrange 1000-60000 blackhole`,
			fails: none,
		},
		{
			name: "a rule for the endpoint's own packets", from: "endpoint",
			make: `ip rule add pref 90 from $L iif cni0 blackhole`, fails: all, named: `90: from`,
		},
		{
			name:  "a rule for the node's address, which packets of pods get behind routing",
			make:  `ip rule add pref 90 from 10.79.0.11 blackhole`,
			fails: none,
		},
		{
			name: "a rule for the node's address and an endpoint, in a table of its own", from: "node",
			make:  `ip rule add pref 90 from 10.79.0.11 to $R lookup 92; ip route add $R via 10.79.0.99 table 92`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name:  "a rule for answers to the node's address, which have another when they are routed",
			make:  `ip rule add pref 90 iif eth0 to 10.79.0.11 blackhole`,
			fails: none,
		},
		{
			name:  "a blackhole for the network of Services, which pods' packets do not need",
			make:  `ip route add blackhole 10.97.0.0/16`,
			fails: none,
		},
		{
			name: "a blackhole for the network of Services, from the node", from: "node",
			make: `ip route add blackhole 10.97.0.0/16`, fails: all, named: `blackhole`, mismatch: true,
		},
		{
			name: "IPv6: a rule prohibits an endpoint", v6: true,
			make:  `ip -6 rule add pref 90 to $R6 prohibit`,
			fails: some, named: `90: from`, mismatch: true,
		},
		{
			name: "IPv6: a goto past the tables", v6: true,
			make:  `ip -6 rule add pref 40000 iif cni0 blackhole; ip -6 rule add pref 90 from $C6 goto 40000`,
			fails: all, named: `40000`, mismatch: true,
		},
		{
			name: "IPv6: the mark of a connection leads its answers to a blackhole", v6: true,
			make: `ip -6 rule add pref 90 fwmark 0x90 blackhole
				ip6tables-nft -t mangle -A FORWARD -s $C6 -d $R6 -j CONNMARK --set-mark 0x90
				ip6tables-nft -t mangle -A PREROUTING -i eth0 -j CONNMARK --restore-mark`,
			fails: some, named: `90: from`, mismatch: true,
		},
		{
			name:  "the loopback interface is down",
			make:  `ip link set lo down`,
			fails: none,
		},
		{
			name: "the loopback interface is down, from the node", from: "node",
			make:  `ip link set lo down`,
			fails: none,
		},
		{
			name:  "the bridge is without ARP",
			make:  `ip link set cni0 arp off; forget`,
			fails: all, named: `cni0`,
		},
		{
			name: "the uplink is in the pods' bridge",
			make: `ip link set eth0 master cni0`, fails: some, named: `eth0`,
		},
		{
			name:  "the route to the pods is by another bridge, which has nobody",
			make:  `ip link add b9 type bridge; ip link set b9 up; ip addr add 10.245.1.1/24 dev b9; ip route del 10.245.1.0/24 dev cni0`,
			fails: all, named: `b9`,
		},
		{
			name: "another bridge has the same network, whose route is the second",
			make: `ip link add b9 type bridge; ip link set b9 up; ip addr add 10.245.1.1/24 dev b9`, fails: none, unknownToo: true,
		},
		{
			name:  "the client is routed to by its port of the bridge",
			make:  `ip route add $C dev $CV`,
			fails: some, named: `vethfad0f8b0`,
		},
		{
			name: "an endpoint of the node is routed to by its port of the bridge", from: "node",
			make:  `ip route add $L dev $LV`,
			fails: some, named: `veth8f46cb60`,
		},
		{
			name:  "another node's address is the node's, too",
			make:  `ip addr add $RNODE/32 dev lo`,
			fails: none, unknownToo: true,
		},
		{
			name: "the port of an endpoint is locked, and the bridge has forgotten its address",
			make: `ip link set $LV type bridge_slave locked on; bridge fdb del $LMAC dev $LV master || true; forget`, fails: some, named: `locked`,
		},
		{
			name: "an endpoint's link-layer address was added to its port without a word more",
			make: `touch_all; bridge fdb replace $LMAC dev $LV master`, fails: none,
		},
		{
			name: "an endpoint's link-layer address was added to its port as it should be",
			make: `touch_all; bridge fdb replace $LMAC dev $LV master static`, fails: none,
		},
		{
			name:  "all connections have a zone, in both directions",
			make:  `hook z ip prerouting -300 "ct zone set 5"; hook zz ip output -300 "ct zone set 5"`,
			fails: none,
		},
		{
			name:  "the zone is the mark, which answers do not have",
			make:  `iptables-nft -t raw -A PREROUTING -i cni0 -j MARK --set-mark 0x5; iptables-nft -t raw -A PREROUTING -j CT --zone mark`,
			fails: some, named: `zone`, varies: true,
		},
		{
			name: "hardening of iptables",
			make: `for m in "-f" "-m ttl --ttl-lt 5" "-m addrtype --src-type BROADCAST" "-m addrtype --dst-type MULTICAST" "-m pkttype --pkt-type multicast" \
				"-p tcp --syn -m tcpmss --mss 1:500" "-m iprange --src-range 192.0.2.1-192.0.2.9" \
				"-p tcp -m multiport --dports 23,445" "-p tcp --tcp-option 254" \
				"-s 127.0.0.0/8" "-p tcp -m length --length 0:20"; do iptables-nft -I FORWARD $m -j DROP
				iptables-nft -t raw -I PREROUTING ! -i lo $m -j DROP; done
				iptables-nft -I FORWARD -m conntrack --ctstate INVALID -j DROP`,
			fails: none, unknownToo: true,
		},
		{
			name: "hardening of ip6tables", v6: true,
			make:  `for m in "-m rt --rt-type 0" "-m hl --hl-lt 5" "-s ::1" "-m conntrack --ctstate INVALID" "-m ipv6header --header hop-by-hop --soft" "-m frag --fragmore"; do ip6tables-nft -I FORWARD $m -j DROP; done`,
			fails: none, unknownToo: true,
		},
		{
			name: "hardening of nftables",
			make: `hook h inet prerouting -150 "ct state invalid drop" "tcp flags & (fin|syn|rst|psh|ack|urg) == 0x0 drop" "tcp flags & (fin|syn) == (fin|syn) drop" \
				"ip frag-off & 0x1fff != 0 drop" "tcp flags syn tcp option maxseg size 1-535 drop" \
				"fib saddr type { broadcast, multicast } drop" \
				"iif lo ip saddr != 127.0.0.0/8 counter accept" "ct state new tcp flags & (fin|syn|rst|ack) != syn counter drop" "ip saddr 192.0.2.0/24 drop" "ip6 nexthdr 0 drop"`,
			fails: none, unknownToo: true,
		},
	}
}
