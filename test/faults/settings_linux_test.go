// SPDX-License-Identifier: Apache-2.0

package faults

// settingFaults are settings of the kernel that stop packets which the rules make right: alone, and where it is not
// known besides which branch packets take.
func settingFaults() []fault {
	const (
		cannotEvaluate = `iptables-nft -t mangle -A PREROUTING -m limit --limit 5/sec -j CONNMARK --set-xmark 0x100/0x100
			`
		withoutCalls = `echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables
			`
		noHairpin = `for p in $LV $CV; do ip link set $p type bridge_slave hairpin off; done
			`
		isolated = `for p in $LV $CV; do bridge link set dev $p isolated on; done
			`
		masquerade = `iptables-nft -t nat -I POSTROUTING -o cni0 -j MASQUERADE
			`
		// Requests of pods have a mark, and the route of the mark; what comes back is looked up without it.
		byMark = `iptables-nft -t mangle -A PREROUTING -i cni0 -j MARK --set-mark 2
			ip rule add fwmark 2 lookup 200 pref 50; ip route add $RCIDR via $RNODE table 200
			ip route add 10.245.1.0/24 dev cni0 table 200; ip route add default via 10.79.0.13 table 200
			`
		// The bridge's address has no subnet.
		noSubnet = `ip addr flush dev cni0; ip addr add 10.245.1.1/32 dev cni0; ip route add 10.245.1.0/24 dev cni0
			`
		severalHops = `ip route replace $RCIDR nexthop via $RNODE dev eth0 nexthop via $QNODE dev eth0
			`
	)
	return []fault{
		// How many fail varies with which comes first, the answer or what says that the client has sent all.
		{
			name: "connections are forgotten when the client has sent all, and it reads to the end", toEnd: true,
			make:  `sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_fin_wait=0`,
			fails: all, named: `timeout_fin_wait`, varies: true,
		},
		{
			name:  "connections are forgotten when one has sent all",
			make:  `sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_fin_wait=0`,
			fails: none, unknownToo: true,
		},
		{
			name: "connections are forgotten when the end is taken, and the client reads to the end", toEnd: true,
			make:  `sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_close_wait=0`,
			fails: some, named: `timeout_close_wait`, varies: true,
		},
		{
			name: "connections are forgotten behind their end, and the client reads to the end", toEnd: true,
			make: `cd /proc/sys/net/netfilter
				for s in last_ack time_wait close; do echo 0 >nf_conntrack_tcp_timeout_$s; done`,
			fails: none,
		},
		{
			name: "connections of the node are forgotten when the end is taken, and it reads to the end", toEnd: true,
			make: `sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_close_wait=0`, from: "node",
			fails: all, named: `timeout_close_wait`, varies: true,
		},
		{
			name: "nothing is forwarded, and a rule cannot be evaluated", fails: all, named: "ForwardingOff", mismatch: true,
			make: cannotEvaluate + "sysctl -qw net.ipv4.ip_forward=0",
		},
		{
			name:  "nothing is forwarded from the bridge, and a route has several next hops",
			make:  severalHops + "sysctl -qw net.ipv4.conf.cni0.forwarding=0",
			fails: all, named: "ForwardingOff", mismatch: true,
		},
		{
			name: "ports are isolated, and a rule cannot be evaluated", make: cannotEvaluate + isolated,
			fails: some, named: "PortsIsolated", mismatch: true,
		},
		{
			name: "an endpoint's address is the node's own, and a rule cannot be evaluated", fails: some,
			make: cannotEvaluate + "ip route add local $R dev lo", named: "EndpointAddressTaken", mismatch: true,
		},
		{
			name: "nothing is forwarded from the bridge, which passes frames on", fails: all,
			make: "sysctl -qw net.ipv4.conf.cni0.forwarding=0", named: `(?s)ForwardingOff.*10\.245\.1\.5`, mismatch: true,
		},
		{
			name: "nothing is forwarded, and a bridge passes frames on, IPv6", v6: true, fails: some,
			make: "touch_all; sysctl -qw net.ipv6.conf.all.forwarding=0", named: `ForwardingOff`, mismatch: true,
		},
		{
			name: "a bridge is promiscuous in place of hairpin mode", from: "endpoint", fails: some, mismatch: true,
			make: noHairpin + "ip link set cni0 promisc on", named: "(?s)HairpinOff.*promiscuous",
		},
		{
			name: "a bridge does not call the rules", fails: some,
			make: withoutCalls, named: "BridgeNetfilterOff", mismatch: true,
		},
		{
			name: "a bridge does not call the rules, and has no subnet", fails: some,
			make: noSubnet + withoutCalls, named: "BridgeNetfilterOff",
		},
		{
			name: "a bridge does not call the rules, and pods send everything to it", fails: none, unknownToo: true,
			make: noSubnet + withoutCalls + `for f in "in_pod $C" "in_local $L"; do set -- $f
				$1 ip addr flush dev eth0; $1 ip addr add $2/32 dev eth0
				$1 ip route add 10.245.1.1 dev eth0; $1 ip route add default via 10.245.1.1; done`,
		},
		{
			name: "a pod's bridge has no hairpin mode, and the node routes what comes in", from: "endpoint", fails: none,
			make: noHairpin + withoutCalls,
		},
		{
			name: "nothing is forwarded from a bridge whose frames the node routes", from: "endpoint", fails: all,
			make: withoutCalls + "sysctl -qw net.ipv4.conf.cni0.forwarding=0", named: "ForwardingOff", mismatch: true,
		},
		{
			name: "ports are isolated, and the node routes and masquerades what comes in", fails: none, unknownToo: true,
			make: isolated + withoutCalls + masquerade,
		},
		{
			name: "ports are isolated, and what the bridge passes on is masqueraded", fails: some, mismatch: true,
			make: isolated + masquerade, named: "PortsIsolated",
		},
		{
			name: "the filter is loose, and the route back refuses", fails: some, mismatch: true,
			make:  byMark + "ip route replace blackhole $RCIDR; sysctl -qw net.ipv4.conf.eth0.rp_filter=2",
			named: `(?s)ReversePathFilter.*blackhole`,
		},
		{
			name: "the filter is off, and the route back refuses", fails: none,
			make: byMark + "ip route replace blackhole $RCIDR; sysctl -qw net.ipv4.conf.eth0.rp_filter=0 " +
				"net.ipv4.conf.all.rp_filter=0",
		},
		{
			name: "the filter is off, and the route back keeps packets on the node", fails: some, named: `accept_local`, mismatch: true,
			make: byMark + "ip route add local $R dev lo; ip rule add pref 40 fwmark 2 lookup 200; ip rule del pref 0; " +
				"ip rule add pref 60 lookup local",
		},
		{
			name: "the route back keeps packets on the node, and sources of its own are taken in", fails: none,
			unknownToo: true,
			make: byMark + "ip route add local $R dev lo; ip rule add pref 40 fwmark 2 lookup 200; ip rule del pref 0; " +
				"ip rule add pref 60 lookup local; sysctl -qw net.ipv4.conf.eth0.accept_local=1",
		},
		{
			name: "a route makes the network of the client the node's own", fails: all, named: `ClientAddressTaken`,
			make: "ip route add local 10.245.1.6/31 dev lo", mismatch: true,
		},
	}
}
