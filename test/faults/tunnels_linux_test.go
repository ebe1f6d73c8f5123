// SPDX-License-Identifier: Apache-2.0

package faults

// flannel has the other node's pods behind a VXLAN, as flannel makes it.
const flannel = `ip link add x0 address 02:00:00:00:00:11 type vxlan id 5 dstport 4789 local 10.79.0.11 dev eth0 nolearning
ip addr add 10.245.1.0/32 dev x0; ip link set x0 up
in_remote ip link add x0 address 02:00:00:00:00:12 type vxlan id 5 dstport 4789 local $RNODE dev eth0 nolearning
in_remote ip addr add 10.245.0.0/32 dev x0; in_remote ip link set x0 up
in_remote bridge fdb append 02:00:00:00:00:11 dev x0 dst 10.79.0.11
in_remote ip neigh replace 10.245.1.0 lladdr 02:00:00:00:00:11 dev x0 nud permanent
in_remote ip route replace 10.245.1.0/24 via 10.245.1.0 dev x0 onlink
bridge fdb append 02:00:00:00:00:12 dev x0 dst $RNODE
ip neigh replace 10.245.0.0 lladdr 02:00:00:00:00:12 dev x0 nud permanent
ip route replace $RCIDR via 10.245.0.0 dev x0 onlink
`

// tunnelFaults are of the packets of a tunnel on the node itself.
func tunnelFaults() []fault {
	return []fault{
		{name: "a tunnel as flannel makes it", make: flannel + `touch_all`, fails: none},
		{name: "a tunnel as flannel makes it, from the node", from: "node", make: flannel + `touch_all`, fails: none},
		{
			name: "the node drops what its tunnel sends", make: flannel + `iptables -A OUTPUT -p udp --dport 4789 -j DROP`,
			fails: some, named: `OUTPUT.*4789`,
		},
		{
			name: "the node drops what its tunnel sends, from the node", from: "node",
			make: flannel + `iptables -A OUTPUT -p udp --dport 4789 -j DROP`, fails: some, named: `OUTPUT.*4789`,
		},
		{
			name: "the node drops what comes in its tunnel", make: flannel + `iptables -A INPUT -p udp --dport 4789 -j DROP`,
			fails: some, named: `INPUT.*4789`,
		},
		{
			name: "a routing rule for the packets of a tunnel", fails: some, named: `ip rule 70`,
			make: flannel + `ip rule add pref 70 ipproto udp dport 4789 blackhole`,
		},
		{
			name: "the packets of a tunnel are dropped before they are tracked", fails: some, named: `fault_m`,
			make: flannel + `hook m inet prerouting -300 "udp dport 4789 drop"`,
		},
		{
			name: "the packets of a tunnel are dropped as they come in by the interface", fails: some, named: `t c|table t`,
			make: flannel + `nft add table netdev t
nft 'add chain netdev t c { type filter hook ingress device eth0 priority 0; }'; nft add rule netdev t c udp dport 4789 drop`,
		},
		{
			name: "no route to the other end of a tunnel", make: flannel + `ip route add unreachable $RNODE`, fails: some,
			named: `unreachable`,
		},
		{
			name: "a tunnel sends from an address that the node does not have", fails: some, named: `10\.79\.0\.55`,
			make: flannel + `ip link set x0 type vxlan local 10.79.0.55`,
		},
		{
			name: "the packets of a tunnel are not tracked", fails: none,
			make: flannel + `iptables -t raw -A OUTPUT -p udp --dport 4789 -j NOTRACK
iptables -t raw -A PREROUTING -p udp --dport 4789 -j NOTRACK; iptables -A INPUT -m conntrack --ctstate INVALID -j DROP; touch_all`,
		},
		{
			name: "the packets of a tunnel are not tracked, and such are dropped", fails: some, named: `INPUT`,
			make: flannel + `iptables -t raw -A PREROUTING -p udp --dport 4789 -j NOTRACK
iptables -A INPUT -m conntrack --ctstate UNTRACKED -j DROP`,
		},
		{
			name: "a firewall that lets in a tunnel of the other node", fails: none,
			make: flannel + `iptables -P INPUT DROP; iptables -A INPUT -s $RNODE -p udp --dport 4789 -j ACCEPT; touch_all`,
		},
		{
			name: "a firewall that lets in no tunnel", make: flannel + `iptables -P INPUT DROP`, fails: some, named: `INPUT`,
		},
	}
}
