// SPDX-License-Identifier: Apache-2.0

package faults

// sourceFaults are those of the source that the kernel chooses for the node's own packets, and for masqueraded ones
// (ipv6_get_saddr_eval in net/ipv6/addrconf.c, net/netfilter/nf_nat_masquerade.c).
func sourceFaults() []fault {
	const (
		// Another host answers for the address, which is then not in use.
		taken = `in_third ip addr add fd00:10:97::99/128 dev eth0 nodad
			sysctl -qw net.ipv6.conf.eth0.accept_dad=1 net.ipv6.conf.eth0.dad_transmits=1
			ip -6 addr add fd00:10:97::99/128 dev eth0; wait_for dadfailed ip -6 addr show dev eth0
			`
		// The kernel makes a temporary address beside another one, and packets from it are refused.
		temporary = `ip -6 addr add fd00:79::77/64 dev eth0 nodad mngtmpaddr preferred_lft 3600 valid_lft 7200
			wait_for temporary ip -6 addr show dev eth0
			address=$(ip -6 -o addr show dev eth0 temporary | awk '{print $4}' | cut -d/ -f1)
			ip -6 rule add pref 100 from $address blackhole
			`
		// One that nobody knows the way back to, and its packets are refused.
		other = `ip -6 addr add 2001:db8::11/64 dev eth0 nodad
			ip -6 rule add pref 100 from 2001:db8::11 blackhole
			`
		// The link-local address of the remote node is its gateway.
		byLinkLocal = `gateway=$(in_remote ip -6 -br addr show dev eth0 scope link | awk '{print $3}'); gateway=${gateway%/*}
			`
	)
	// An address of the host stands first, and packets from it are refused.
	const ofHost = `ip addr flush dev eth0 scope global; ip addr add 10.79.0.77/32 scope host dev eth0
		ip addr add 10.79.0.11/24 dev eth0; ip route add default via 10.79.0.1
		ip route add $RCIDR dev eth0; ip route add 10.245.2.0/24 dev eth0; ip route add $S dev eth0
		ip rule add pref 70 from 10.79.0.77 blackhole
		`
	return []fault{
		{
			name: "an address of the host is the source with route_localnet", from: "node",
			make:  "sysctl -qw net.ipv4.conf.eth0.route_localnet=1\n" + ofHost,
			fails: all, named: `10\.79\.0\.77 blackhole`, mismatch: true,
		},
		{
			name: "an address of the host is no source without route_localnet", from: "node", fails: none,
			make: "sysctl -qw net.ipv4.conf.all.route_localnet=0 net.ipv4.conf.eth0.route_localnet=0\n" + ofHost,
		},
		{
			name: "an address that another host has is no source, IPv6", from: "node", v6: true, fails: none,
			make: taken + `ip -6 rule add pref 100 from fd00:10:97::99 blackhole`,
		},
		{
			name: "an address that another host has is nearer than the source, IPv6", from: "node", v6: true,
			make:  taken + `ip -6 rule add pref 100 from fd00:79::11 blackhole`,
			fails: all, named: `fd00:79::11`, mismatch: true,
		},
		{
			name: "a label makes another address the source, IPv6", from: "node", v6: true,
			make: other + `ip addrlabel add prefix fd00:10::/32 label 99
				ip addrlabel add prefix 2001:db8::/32 label 99`,
			fails: all, named: `2001:db8::11 blackhole`, mismatch: true,
		},
		{
			name: "a label of another interface, IPv6", from: "node", v6: true, fails: none,
			make: other + `ip addrlabel add prefix fd00:10::/32 label 99
				ip addrlabel add prefix 2001:db8::/32 dev cni0 label 99`,
		},
		{
			name: "there are no labels, and the nearest address is the source, IPv6", from: "node", v6: true, fails: none,
			make: other + `for i in $(seq 9); do ip addrlabel flush; done`,
		},
		{
			name: "a temporary address is preferred, IPv6", from: "node", v6: true,
			make:  "sysctl -qw net.ipv6.conf.eth0.use_tempaddr=2\n" + temporary,
			fails: all, named: `from fd00:79::\S+ blackhole`, mismatch: true,
		},
		{
			name: "a temporary address is not preferred, IPv6", from: "node", v6: true, fails: none,
			make: "sysctl -qw net.ipv6.conf.eth0.use_tempaddr=1\n" + temporary,
		},
		{
			name: "answers to what is masqueraded by a gateway of the other family are dropped",
			make: byLinkLocal + `ip route replace $RCIDR via inet6 $gateway dev eth0
				iptables-nft -t nat -A POSTROUTING -o eth0 -j MASQUERADE
				iptables-nft -t raw -A PREROUTING -s $R -d 10.79.0.11 -j DROP`,
			fails: some, named: `10\.79\.0\.11`, mismatch: true,
		},
		{
			name: "what is masqueraded by a gateway of the other family", fails: none,
			make: byLinkLocal + `ip route replace $RCIDR via inet6 $gateway dev eth0
				iptables-nft -t nat -A POSTROUTING -o eth0 -j MASQUERADE`,
		},
		{
			name: "answers to what is masqueraded by a link-local gateway are dropped, IPv6", v6: true,
			make: byLinkLocal + `ip -6 route replace $RCIDR6 via $gateway dev eth0
				ip6tables-nft -t nat -A POSTROUTING -o eth0 -j MASQUERADE
				ip6tables-nft -t raw -A PREROUTING -s $R6 -d fd00:79::11 -j DROP`,
			fails: some, named: `fd00:79::11`, mismatch: true,
		},
	}
}
