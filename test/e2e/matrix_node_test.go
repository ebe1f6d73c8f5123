// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// markedAnswers route what goes to a pod to another interface, but for answers, which have a mark.
const markedAnswers = `route $C dev eth0 table 115; rule pref 115 to $C lookup 115; rule pref 114 fwmark 0x300/0x300 lookup main
	ipt mangle PREROUTING -i eth0 -p tcp --sport 8080 -j MARK --set-xmark 0x300/0x300`

// settingFaults are those of the node's settings. ip_forward asks the incoming interface (IN_DEV_FORWARD,
// net/ipv4/route.c), ip6_forward all of them or force_forwarding of the incoming one (net/ipv6/ip6_output.c).
func settingFaults() []matrixFault {
	return []matrixFault{
		{
			name:  "forwarding is off on the bridge",
			make:  `tune net/ipv4/conf/cni0/forwarding 0`,
			fails: all, named: `forwarding`, ci: true,
		},
		{
			name:  "forwarding is off on the interface of the answers",
			make:  `tune net/ipv4/conf/eth0/forwarding 0`,
			fails: some, named: `forwarding`,
		},
		{
			name: "forwarding is off on the interface of others", from: "node",
			make:  `tune net/ipv4/conf/cni0/forwarding 0`,
			fails: none,
		},
		{
			name:  "IPv6 is not forwarded",
			make:  `once setting net/ipv6/conf/all/forwarding 0`,
			undo:  `setting net/ipv6/conf/all/forwarding 1`,
			v6:    true,
			fails: some, named: `forwarding`,
		},
		{
			name:  "IPv6 forwarding of one interface says nothing of forwarding",
			make:  `tune net/ipv6/conf/cni0/forwarding 0`,
			v6:    true,
			fails: none,
		},
		{
			name: "IPv6 is forwarded from two interfaces by force",
			make: `once setting net/ipv6/conf/all/forwarding 0
				tune net/ipv6/conf/cni0/force_forwarding 1; tune net/ipv6/conf/eth0/force_forwarding 1`,
			undo:  `setting net/ipv6/conf/all/forwarding 1`,
			v6:    true,
			fails: none,
		},
		{
			// What the filter looks up has no mark (fib_validate_source, src_valid_mark).
			name: "the reverse path of a pod's packets is another interface, for want of a mark",
			make: `tune net/ipv4/conf/cni0/rp_filter 1
				` + markedAnswers,
			fails: all, named: `rp_filter`,
		},
		{
			name:  "the reverse path is another interface, and nothing filters by it",
			make:  markedAnswers,
			fails: none,
		},
		{
			name: "the reverse path of an endpoint's answers is another interface, for want of a mark",
			make: `tune net/ipv4/conf/eth0/rp_filter 1
				route $R dev cni0 table 115; rule pref 115 to $R lookup 115; rule pref 114 fwmark 0x300/0x300 lookup main
				ipt mangle PREROUTING -s $C -d $S -p tcp -j MARK --set-xmark 0x300/0x300`,
			fails: some, named: `rp_filter`,
		},
		{
			name: "route_localnet is off", from: "node", loopback: true,
			make:  `tune net/ipv4/conf/all/route_localnet 0`,
			fails: all, named: `route_localnet`, modes: []string{"iptables", "iptables-legacy"},
		},
		{
			// A pod that knows the gateway's link-layer address goes on using it, and learns it when the node asks for its own.
			name: "the bridge answers no ARP requests", forget: true,
			make: `tune net/ipv4/conf/cni0/arp_ignore 8
				once ip neigh flush dev cni0`,
			fails: all, named: `arp_ignore`, varies: true, unknownToo: true,
		},
		{
			name:  "the bridge answers ARP requests for its own addresses alone",
			make:  `tune net/ipv4/conf/cni0/arp_ignore 1`,
			fails: none, forget: true,
		},
		{
			name: "bridged packets do not pass the rules of IPv4", from: "pod",
			make:  `tune net/bridge/bridge-nf-call-iptables 0`,
			fails: some, named: `bridge-nf-call-iptables`,
		},
	}
}

// linkFaults are those below IP: br_handle_frame and should_deliver (net/bridge/br_forward.c) for a bridge's ports,
// neigh_resolve_output (net/core/neighbour.c).
func linkFaults() []matrixFault {
	return []matrixFault{
		{
			name:  "a neighbour entry of another node that is wrong for good",
			make:  `once ip neigh replace $RNODE lladdr 02:00:00:00:00:99 dev eth0 nud permanent`,
			undo:  `ip neigh del $RNODE dev eth0`,
			fails: some, named: `neigh|02:00:00:00:00:99`,
		},
		{
			name:  "a neighbour entry of the endpoint of the node that is wrong for good",
			make:  `once ip neigh replace $L lladdr 02:00:00:00:00:99 dev cni0 nud permanent`,
			undo:  `ip neigh del $L dev cni0`,
			fails: some, named: `neigh|02:00:00:00:00:99`,
		},
		{
			name:  "a neighbour entry of another node that is wrong for good, IPv6",
			make:  `once ip neigh replace $RNODE6 lladdr 02:00:00:00:00:99 dev eth0 nud permanent`,
			undo:  `ip neigh del $RNODE6 dev eth0`,
			v6:    true,
			fails: some, named: `neigh|02:00:00:00:00:99`,
		},
		{
			name:  "a neighbour entry that is right for good",
			make:  `once ip neigh replace $L lladdr $LMAC dev cni0 nud permanent`,
			undo:  `ip neigh del $L dev cni0`,
			fails: none,
		},
		{
			name:  "a failed neighbour entry of an address that nobody uses",
			make:  `once ip neigh replace 10.79.0.77 dev eth0 nud failed`,
			undo:  `ip neigh del 10.79.0.77 dev eth0 2>/dev/null || true`,
			fails: none,
		},
		{
			name: "a pod cannot reach itself: hairpin is off on its port", from: "endpoint",
			make:  `once ip link set $LV type bridge_slave hairpin off`,
			undo:  `ip link set $LV type bridge_slave hairpin on`,
			fails: some, named: `hairpin`, ci: true,
		},
		{
			name:  "hairpin is off on the port of a pod that is not an endpoint",
			make:  `once ip link set $CV type bridge_slave hairpin off`,
			undo:  `ip link set $CV type bridge_slave hairpin on`,
			fails: none,
		},
		{
			name: "two ports of the bridge are isolated from one another",
			make: `once ip link set $CV type bridge_slave isolated on
				once ip link set $LV type bridge_slave isolated on`,
			undo:  `ip link set $CV type bridge_slave isolated off; ip link set $LV type bridge_slave isolated off`,
			fails: some, named: `isolated`,
		},
		{
			name:  "one port of the bridge is isolated",
			make:  `once ip link set $LV type bridge_slave isolated on`,
			undo:  `ip link set $LV type bridge_slave isolated off`,
			fails: none,
		},
		{
			name:  "a port of the bridge is disabled",
			make:  `once bridge link set dev $LV state 0`,
			more:  `test "$(cat /sys/class/net/$LV/brport/state)" = 0`, // a change of any flag of the port enables it
			undo:  `bridge link set dev $LV state 3`,
			fails: some, named: `disabled|state`,
		},
		{
			name: "the bridge does not know where an endpoint is, and does not ask at its port",
			make: `once ip link set $LV type bridge_slave flood off learning off
				once bridge fdb del $LMAC dev $LV master`,
			undo:  `ip link set $LV type bridge_slave flood on learning on`,
			fails: some, named: `flood|learning|fdb`,
		},
		{
			name:  "the bridge has learned an endpoint at another port for good",
			make:  `once bridge fdb replace $LMAC dev $CV master static sticky`,
			undo:  `bridge fdb del $LMAC dev $CV master`,
			fails: some, named: `fdb|forwarding database`,
		},
		{
			// The first frame of the endpoint moves the entry back to its port; until then it gets none.
			name:  "the bridge has been told an endpoint at another port",
			make:  `once bridge fdb replace $LMAC dev $CV master static`,
			undo:  `bridge fdb del $LMAC dev $CV master || bridge fdb del $LMAC dev $LV master`,
			fails: some, named: `fdb`, varies: true, unknownToo: true,
		},
		{
			name:  "the interface of an endpoint is down",
			make:  `once ip link set $LV down`,
			undo:  `ip link set $LV up`,
			fails: some, named: `veth\w+|down`,
		},
		{
			name:  "the interface of an endpoint is not in the bridge",
			make:  `once ip link set $LV nomaster`,
			undo:  `ip link set $LV master cni0; ip link set $LV type bridge_slave hairpin on`,
			fails: some, named: `veth\w+|bridge|cni0`,
		},
		{
			name: "large packets do not pass, and nobody hears of it", service: matrixUDP, size: 1400,
			make: `once ip link set eth0 mtu 1300
				ipt filter OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP`,
			undo:  `ip link set eth0 mtu 1500`,
			fails: some, named: `mtu`, aside: true,
		},
	}
}
