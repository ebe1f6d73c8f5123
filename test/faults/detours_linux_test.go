// SPDX-License-Identifier: Apache-2.0

package faults

// detourFaults are routes by which packets to pods make a detour, some packets alone; and what else is decided by rules
// that are no longer there.
func detourFaults() []fault {
	const (
		toL101 = ` to $L lookup 101; ip route add default via $RNODE table 101`
	)
	return []fault{
		{
			name:  "what comes from pods for an endpoint of the node goes to another node",
			make:  `ip rule add pref 100 iif cni0` + toL101,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "what has a mark for an endpoint of the node goes to another node",
			make: `iptables -t mangle -A PREROUTING -i cni0 -j MARK --set-mark 7
				ip rule add pref 100 fwmark 7` + toL101,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "what has the node's address for pods of the node goes to another node", from: "node",
			make: `ip rule add pref 100 from 10.79.0.11 to 10.245.1.0/24 lookup 101
				ip route add default via $QNODE table 101`,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "what has the node's address goes to another node, the classical table of a second interface", from: "node",
			make:  `ip rule add pref 100 from 10.79.0.11 lookup 101; ip route add default via $RNODE table 101`,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name: "what comes from pods for an endpoint of the node goes to another node, IPv6", v6: true,
			make: `ip -6 rule add pref 100 iif cni0 to $L6 lookup 101
				ip -6 route add default via $RNODE6 table 101`,
			fails: some, named: `1::5`,
		},
		{
			name: "what comes from pods for an endpoint of the node goes to the default gateway",
			make: `ip rule add pref 100 iif cni0 to $L lookup 101
				ip route add default via 10.79.0.1 table 101`,
			fails: some, named: `10\.245\.1\.5`,
		},
		{
			name:  "another node's pods by a third node, the default gateway of a table that nobody asks",
			make:  `ip route add default via $RNODE table 77; ip route replace 10.245.2.0/24 via $RNODE`,
			fails: some, named: `RoutedByNode|10\.245\.2`,
		},
		{
			name: "another node's pods by a third node, the default gateway of a table that nobody asks, IPv6", v6: true,
			make: `ip -6 route add default via $RNODE6 table 77
				ip -6 route replace fd00:10:245:2::/64 via $RNODE6`,
			fails: some, named: `RoutedByNode|2::4`,
		},
		{
			name: "another node's pods by a third node, by a rule for what comes from pods",
			make: `ip rule add pref 100 iif cni0 to 10.245.2.0/24 lookup 101
				ip route add default via $RNODE table 101`,
			fails: some, named: `RoutedByNode|10\.245\.2`,
		},
		{
			name: "another node's pods by the default gateway, by a rule for what comes from pods",
			make: `ip rule add pref 100 iif cni0 to $R lookup 101
				ip route add default via 10.79.0.1 table 101`,
			fails: some, named: `RouteMissing|10\.79\.0\.1`,
		},
		{
			name: "the rule for the table main is gone, and no rule was ever made, IPv6", v6: true,
			make:  `ip -6 rule del pref 32766`,
			fails: none, unknownToo: true,
		},
		{
			name: "the rules are flushed, and no rule was ever made, IPv6", v6: true,
			make:  `ip -6 rule flush`,
			fails: none, unknownToo: true,
		},
		{
			name: "the rule for the table main is gone, from the node, IPv6", from: "node", v6: true,
			make:  `ip -6 rule del pref 32766`,
			fails: none, unknownToo: true,
		},
		{
			name: "the rule for the table main is gone, and a rule was made before, IPv6", v6: true,
			make: `ip -6 rule add pref 5 to fd99::/16 blackhole; ip -6 rule del pref 5
				ip -6 rule del pref 32766`,
			fails: all, named: `none for the table main`,
		},
		{
			name: "one endpoint is dropped, and answers of the others are",
			make: `iptables -I FORWARD -d $L -j DROP
				iptables -t raw -A PREROUTING -i eth0 -p tcp --sport 8080 -j DROP`,
			fails: all, named: `raw PREROUTING`,
		},
		{
			name: "one endpoint is unreachable, and answers of the others are dropped",
			make: `ip route add unreachable $L
				iptables -t raw -A PREROUTING -i eth0 -p tcp --sport 8080 -j DROP`,
			fails: all, named: `raw PREROUTING`,
		},
	}
}
