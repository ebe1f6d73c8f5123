// SPDX-License-Identifier: Apache-2.0

package faults

// nextHopFaults are those of groups of next hop objects (net/ipv4/nexthop.c): a group leaves out members whose
// neighbour entry has failed, a resilient one does not, and one whose interface goes down is removed.
func nextHopFaults() []fault {
	const (
		ports  = "sysctl -qw net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1\n"
		second = "ip link add d0 type veth peer name d1; ip link set d0 up; ip addr add 10.80.0.1/24 dev d0\n" +
			"ip link set d1 up\n"
		dead = ports + "ip nexthop add id 1 via $RNODE dev eth0; ip nexthop add id 2 via 10.79.0.99 dev eth0\n"
	)
	return []fault{
		{
			name: "a group with a dead member, of which the kernel knows",
			make: dead + `ip nexthop add id 10 group 1/2; ip route replace $RCIDR nhid 10
				nobody 10.79.0.99`,
			fails: none, unknownToo: true,
		},
		{
			name:  "a group with a dead member, of which the kernel does not know yet",
			make:  dead + `ip nexthop add id 10 group 1/2; ip route replace $RCIDR nhid 10`,
			fails: some, named: `10\.79\.0\.99`, varies: true, unknownToo: true,
		},
		{
			name: "a group with a dead member that somebody has set",
			make: dead + `ip neigh replace 10.79.0.99 dev eth0 lladdr 02:00:00:00:00:99 nud permanent
				ip nexthop add id 10 group 1/2; ip route replace $RCIDR nhid 10`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name:  "a resilient group with a dead member",
			make:  dead + `ip nexthop add id 10 group 1/2 type resilient buckets 16; ip route replace $RCIDR nhid 10`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name: "a resilient group with a dead member, of which the kernel knows",
			make: dead + `ip nexthop add id 10 group 1/2 type resilient buckets 16; ip route replace $RCIDR nhid 10
				nobody 10.79.0.99`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name: "a resilient group of live members",
			make: ports + `in_remote ip addr add 10.79.0.99/24 dev eth0
				ip nexthop add id 1 via $RNODE dev eth0; ip nexthop add id 2 via 10.79.0.99 dev eth0
				ip nexthop add id 10 group 1/2 type resilient buckets 16; ip route replace $RCIDR nhid 10
				for i in $(seq 24); do in_pod timeout 0.3 bash -c ": </dev/tcp/$S/80" || true; done`,
			fails: none,
		},
		{
			name: "a group with a member whose interface is down",
			make: ports + second + `ip nexthop add id 1 via $RNODE dev eth0; ip nexthop add id 2 via 10.80.0.2 dev d0
				ip nexthop add id 10 group 1/2; ip route replace $RCIDR nhid 10; ip link set d0 down`,
			fails: none,
		},
		{
			name: "a group with a member whose interface has lost its carrier",
			make: ports + second + `ip nexthop add id 1 via $RNODE dev eth0; ip nexthop add id 2 via 10.80.0.2 dev d0
				ip nexthop add id 10 group 1/2; ip route replace $RCIDR nhid 10; ip link set d1 down
				wait_for 'state (LOWERLAYER)?DOWN' ip -o link show d0`,
			fails: none,
		},
		{
			name: "a group with a member whose other end is nobody",
			make: ports + second + `ip nexthop add id 1 via $RNODE dev eth0; ip nexthop add id 2 via 10.80.0.2 dev d0
				ip nexthop add id 10 group 1/2; ip route replace $RCIDR nhid 10`,
			fails: some, named: `10\.80\.0\.2|d0`, varies: true, unknownToo: true,
		},
		{
			name: "the only member of a group is down, and the route with it",
			make: second + `ip nexthop add id 2 via 10.80.0.2 dev d0; ip nexthop add id 10 group 2
				ip route replace $RCIDR nhid 10; ip link set d0 down`,
			fails: some, named: `route|10\.79\.0\.1`,
		},
		{
			name: "a group of which the route does not tell",
			make: dead + `sysctl -qw net.ipv4.nexthop_compat_mode=0
				ip nexthop add id 10 group 2; ip route replace $RCIDR nhid 10`,
			fails: some, named: `nhid 10|next hop|nexthop`,
		},
		{
			name: "a next hop object of which the route does not tell, and that is right",
			make: `sysctl -qw net.ipv4.nexthop_compat_mode=0
				ip nexthop add id 1 via $RNODE dev eth0; ip route replace $RCIDR nhid 1`,
			fails: none, unknownToo: true,
		},
		{
			name: "a blackhole of which the route does not tell",
			make: `sysctl -qw net.ipv4.nexthop_compat_mode=0
				ip nexthop add id 3 blackhole; ip route replace $RCIDR nhid 3`,
			fails: some, named: `nhid 3|next hop|nexthop|blackhole`,
		},
		{
			name: "IPv6: a next hop object that is dead, of which the route does not tell", v6: true,
			make: `sysctl -qw net.ipv4.nexthop_compat_mode=0
				ip -6 nexthop add id 5 via fd00:79::99 dev eth0; ip -6 route replace $RCIDR6 nhid 5`,
			fails: some, named: `nhid 5|next hop|nexthop|fd00:79::99`,
		},
		{
			name: "IPv6: a resilient group with a dead member", v6: true,
			make: ports + `ip -6 nexthop add id 5 via fd00:79::99 dev eth0; ip -6 nexthop add id 6 via $RNODE6 dev eth0
				ip nexthop add id 10 group 5/6 type resilient buckets 16; ip -6 route replace $RCIDR6 nhid 10`,
			fails: some, named: `fd00:79::99`,
		},
		{
			name: "IPv6: a group with a dead member, of which the kernel knows", v6: true,
			make: ports + `ip -6 nexthop add id 5 via fd00:79::99 dev eth0; ip -6 nexthop add id 6 via $RNODE6 dev eth0
				ip nexthop add id 10 group 5/6; ip -6 route replace $RCIDR6 nhid 10
				nobody fd00:79::99`,
			fails: none, unknownToo: true,
		},
		{
			name: "two routes, of which the kernel knows that one's next hop is dead, and that it may use all the same",
			make: ports + `ip route replace $RCIDR nexthop via $RNODE nexthop via 10.79.0.99
				nobody 10.79.0.99`,
			fails: some, named: `10\.79\.0\.99`,
		},
		{
			name: "two routes, of which the kernel knows that one's next hop is dead, and that it leaves out",
			make: ports + `sysctl -qw net.ipv4.fib_multipath_use_neigh=1
				ip route replace $RCIDR nexthop via $RNODE nexthop via 10.79.0.99
				nobody 10.79.0.99`,
			fails: none, unknownToo: true,
		},
	}
}
