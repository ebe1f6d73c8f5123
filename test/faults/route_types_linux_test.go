// SPDX-License-Identifier: Apache-2.0

package faults

// routeTypeFaults are of routes whose type says that many hosts have an address, or none.
func routeTypeFaults() []fault {
	return []fault{
		{
			name: "a route of the type multicast to an endpoint", fails: some, named: `multicast 10\.`,
			make: `ip route add multicast $R dev eth0`,
		},
		{
			name: "a route of the type multicast to an endpoint, from the node", from: "node", fails: some,
			named: `multicast 10\.`, make: `ip route add multicast $R dev eth0`, then: forgetAll,
		},
		{
			name: "a route of the type multicast to the endpoint of the node", fails: some, named: `multicast 10\.`,
			make: `ip route add multicast $L dev cni0`,
		},
		{
			name: "a route of the type multicast to an endpoint, UDP", udp: true, fails: some, named: `multicast 10\.`,
			make: `ip route add multicast $R dev eth0`,
		},
		{
			name: "the frontend has a route of the type broadcast, UDP", udp: true, from: "node", fails: none,
			make: `ip route add broadcast 10.97.108.201 dev eth0`, unknownToo: true,
		},
		{
			name: "a route of the type anycast to an endpoint", fails: some, named: `ip route del anycast`,
			make: `ip route add anycast $R dev eth0`,
		},
		{
			name: "the next hop has a route of the type multicast", fails: some, named: `ip route .*multicast 10\.79\.0\.12`,
			make: `ip route add multicast $RNODE dev eth0; forget`,
		},
		{
			name: "the next hop is the broadcast address of another address", fails: some, named: `broadcast 10\.79\.0\.12`,
			make: `ip addr add 10.79.0.50/32 brd 10.79.0.12 dev eth0; forget`,
		},
		{
			name: "the frontend has a route of the type multicast", from: "node", fails: all, named: `multicast 10\.`,
			make: `ip route add multicast $S dev eth0`,
		},
		{
			name: "the frontend has a route of the type broadcast", from: "node", fails: all, named: `broadcast 10\.`,
			make: `ip route add broadcast $S dev eth0`,
		},
		{
			name: "the frontend is the broadcast address of lo", from: "node", fails: all, named: `broadcast`,
			make: `ip addr add 10.97.199.128/32 brd $S dev lo`,
		},
		{
			name: "the frontend has a route of the type broadcast, for pods", fails: none,
			make: `ip route add broadcast $S dev eth0`,
		},
		{
			name: "the client outside has a route of the type broadcast", from: "outside", nodePort: true, fails: all,
			named: `broadcast`, make: `ip route add broadcast 10.79.0.1 dev eth0`,
		},
		{
			name: "the client outside has a broadcast address of the node", from: "outside", nodePort: true, fails: all,
			named: `broadcast`, make: `ip addr add 10.79.0.77/32 brd 10.79.0.1 dev eth0`,
		},
		{
			name: "the client's address outside is the node's, too", from: "outside", nodePort: true, fails: all,
			named: `10\.79\.0\.1/32 dev lo`, make: `ip addr add 10.79.0.1/32 dev lo`,
		},
		{
			name: "the client's address outside is the node's, too, IPv6", from: "outside", nodePort: true, v6: true, fails: all,
			named: `fd00:79::1/128 dev cni0`, make: `ip -6 addr add fd00:79::1/128 dev cni0 nodad`,
		},
		{
			name: "the client outside has a route of the type anycast", from: "outside", nodePort: true, fails: all,
			named: `route del anycast 10\.79\.0\.1`, make: `ip route add anycast 10.79.0.1 dev eth0`,
		},
		{
			name: "the client outside has a route of the type anycast, IPv6", from: "outside", nodePort: true, v6: true,
			fails: all, named: `route del anycast fd00:79::1`, make: `ip -6 route add anycast fd00:79::1 dev eth0`,
		},
		{
			name: "the route to the client outside is by the pods' bridge", from: "outside", nodePort: true, fails: all,
			named: `10\.79\.0\.1 dev cni0`, make: `ip route add 10.79.0.1 dev cni0`,
		},
		{
			name: "the route to the client outside is by a pod", from: "outside", nodePort: true, fails: all,
			named: `RoutedByPod`, make: `ip route add 10.79.0.1 via $C`,
		},
		{
			name: "the route to the client outside is by a link without carrier", from: "outside", nodePort: true, fails: all,
			named: `d0`, make: `ip link add d0 type veth peer name d1; ip link set d0 up; ip route add 10.79.0.1 dev d0`,
		},
		{
			name: "the client is a pod with a route of the type broadcast", fails: all, named: `broadcast 10\.`,
			make: `ip route add broadcast $C dev cni0`,
		},
	}
}

// forgetAll takes all of the node's neighbour entries away.
const forgetAll = `ip neigh flush all nud noarp; ip neigh flush all`

// scopeFaults are of addresses that are confined to the link or the host: packets get no such source from MASQUERADE.
func scopeFaults() []fault {
	const toLink = `ip addr flush dev eth0 scope global; ip addr add 10.79.0.11/24 dev eth0 scope link
		ip route add default via 10.79.0.1; ip route add $RCIDR via $RNODE; ip route add 10.245.2.0/24 via $QNODE
		ip addr del 10.245.1.1/24 dev cni0; ip addr add 10.245.1.1/24 dev cni0 scope link
		`
	return []fault{
		{name: "all addresses are of scope link", make: toLink, fails: some, named: `scope`, varies: true},
		{name: "all addresses are of scope link, from the node", from: "node", make: toLink, fails: all, named: `scope`},
		{
			name: "all addresses are of scope link, from outside", from: "outside", nodePort: true, make: toLink, fails: all,
			named: `scope`,
		},
		{
			name: "the uplink's address is of scope link", fails: none,
			make: `ip addr flush dev eth0 scope global; ip addr add 10.79.0.11/24 dev eth0 scope link
				ip addr add 10.79.0.11/32 dev lo
				ip route add default via 10.79.0.1; ip route add $RCIDR via $RNODE; ip route add 10.245.2.0/24 via $QNODE`,
		},
	}
}
