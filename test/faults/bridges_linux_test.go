// SPDX-License-Identifier: Apache-2.0

package faults

// bridgeFaults are those of what a bridge does with frames beside rules: ports that are locked, entries of its
// forwarding table, addresses that rules change.
func bridgeFaults() []fault {
	return []fault{
		{
			name: "the port of an endpoint is locked",
			make: `ip link set $LV type bridge_slave locked on`, fails: none,
		},
		{
			name: "the port of the client is locked",
			make: `ip link set $CV type bridge_slave locked on`, fails: none,
		},
		{
			name: "the port of an endpoint is locked, and its address is known to be there",
			make: `ip link set $LV type bridge_slave locked on; bridge fdb replace $LMAC dev $LV master static`, fails: none,
		},
		{
			name: "the port of an endpoint listens for other bridges",
			make: `bridge link set dev $LV state 1`, fails: some, named: `state|listening|` + `10\.245\.1\.5`,
		},
		{
			name: "the port of the client learns of other bridges",
			make: `bridge link set dev $CV state 2`, fails: all, named: `state|learning|vethfad0f8b0`,
		},
		{
			name: "the bridge learns nothing at a port and floods nothing there, and the kernel has given up",
			make: `ip link set $LV type bridge_slave flood off learning off; bridge fdb del $LMAC dev $LV master
				ip neigh replace $L dev cni0 nud failed`,
			fails: some, named: `BridgePortUnknown`, varies: true,
		},
		{
			name: "a port does not get broadcasts, and nobody knows a neighbour",
			make: `ip link set $LV type bridge_slave bcast_flood off; forget`, fails: none, unknownToo: true,
		},
		{
			name: "a port does not get multicasts, and nobody knows a neighbour, IPv6", v6: true,
			make: `ip link set $LV type bridge_slave mcast_flood off; forget`, fails: none, unknownToo: true,
		},
		{
			name: "the client's port gets no broadcasts, and an endpoint asks for it", named: `bcast_flood`,
			make: `ip link set $CV type bridge_slave bcast_flood off; forget`, fails: some,
		},
		{
			name: "the bridge is to answer for the client, and does not, and an endpoint asks for it", named: `proxy_arp`,
			make: `ip link set $CV type bridge_slave proxy_arp on; forget`, fails: some,
		},
		{
			name: "the client's port gets no multicasts, and an endpoint asks for it, IPv6", v6: true, named: `mcast_flood`,
			make: `ip link set $CV type bridge_slave mcast_flood off; forget`, fails: some,
		},
		{
			name: "a port does not learn, and is flooded",
			make: `ip link set $LV type bridge_slave learning off; bridge fdb del $LMAC dev $LV master || true`, fails: none,
		},
		{
			name: "the bridge takes an endpoint's link-layer address for its own",
			make: `touch_all; bridge fdb del $LMAC dev $LV master || true; bridge fdb replace $LMAC dev cni0 self permanent`, fails: some, named: `permanent`,
		},
		{
			name: "guards of ports that change nothing",
			make: `ip link set $LV type bridge_slave guard on root_block on fastleave on; ip link set eth0 promisc on; ip link set cni0 allmulticast on`, fails: none,
		},
		{
			name: "frames to the endpoint of the node get another link-layer address",
			make: `hook m bridge prerouting 10 "ip saddr $C ether daddr $LMAC ether daddr set 02:00:00:00:00:99"`, fails: none, unknownToo: true,
		},
		{
			name: "frames of the endpoint of the node get another link-layer address",
			make: `hook m bridge prerouting -300 "ip saddr $L ether daddr set 02:00:00:00:00:99"`, fails: some, named: `fault_m`,
		},
		{
			name: "frames of a pod get another source",
			make: `hook m bridge prerouting -300 "ip saddr $L ether saddr set 02:00:00:00:00:99"`, fails: none, unknownToo: true,
		},
		{
			name: "ebtables drops what goes to the endpoint of the node",
			make: `ebtables-nft -A FORWARD -p IPv4 --ip-dst $L -j DROP`, fails: some, named: `FORWARD`,
		},
		{
			name: "ebtables drops what a port sends under another address",
			make: `ebtables-nft -A FORWARD -i $LV -s ! $LMAC -j DROP`, fails: none, unknownToo: true,
		},
		{
			name: "ebtables drops what a port sends under its own address",
			make: `ebtables-nft -t nat -A PREROUTING -i $LV -s $LMAC -j DROP`, fails: some, named: `PREROUTING`,
		},
		{
			name: "ebtables has a policy that drops",
			make: `ebtables-nft -P INPUT DROP`, fails: all, named: `INPUT`,
		},
		{
			name: "ingress sends an endpoint's answers elsewhere",
			make: `ip link add d0 type dummy || ip link add d0 type veth peer name d1; ip link set d0 up
				hook f netdev "ingress device eth0" 0 "ip saddr $R fwd to d0"`, fails: some, named: `fault_f`,
		},
		{
			name: "ingress sends copies of an endpoint's answers elsewhere",
			make: `ip link add d0 type dummy || ip link add d0 type veth peer name d1; ip link set d0 up
				hook f netdev "ingress device eth0" 0 "ip saddr $R dup to d0"`, fails: none, unknownToo: true,
		},
		{
			name: "a rule for packets of a bridge's port",
			make: `iptables-nft -I FORWARD -m physdev --physdev-in $LV -j DROP`, fails: some, named: `FORWARD`,
		},
		{
			name: "a rule for packets that a bridge passes on",
			make: `iptables-nft -I FORWARD -m physdev --physdev-is-bridged -j DROP`, fails: some, named: `FORWARD`,
		},
		{
			name: "a rule for packets that leave by a bridge's port, which are routed",
			make: `iptables-nft -I FORWARD -m physdev --physdev-out $CV -i eth0 -j DROP`, fails: none, unknownToo: true,
		},
		{
			name: "a rule for the link-layer address of an endpoint's node",
			make: `iptables-nft -I FORWARD -m mac --mac-source $RMAC -j DROP`, fails: some, named: `mac`,
		},
		{
			name: "a rule for the link-layer address of nobody",
			make: `iptables-nft -I FORWARD -m mac --mac-source 02:00:00:00:00:99 -j DROP`, fails: none, unknownToo: true,
		},
		{
			name:  "the port of an endpoint is at another bridge",
			make:  `ip link add cni1 type bridge; ip link set cni1 up; touch_all; ip link set $LV master cni1`,
			fails: some, named: `(?s)PodAtOtherBridge.*cni1`, mismatch: true,
		},
		{
			name: "the port of an endpoint is at another bridge, from the node", from: "node",
			make:  `ip link add cni1 type bridge; ip link set cni1 up; touch_all; ip link set $LV master cni1`,
			fails: some, named: `(?s)PodAtOtherBridge.*cni1`, mismatch: true,
		},
		{
			name: "the port of an endpoint is at no bridge",
			make: `touch_all; ip link set $LV nomaster`, fails: some, named: `(?s)PodAtOtherBridge.*no bridge`, mismatch: true,
		},
		{
			name:  "the port of the client is at another bridge",
			make:  `ip link add cni1 type bridge; ip link set cni1 up; touch_all; ip link set $CV master cni1`,
			fails: all, named: `(?s)PodAtOtherBridge.*cni1`, mismatch: true,
		},
		{
			name: "an endpoint is at another bridge, the node knows it, and the endpoint takes the client for its neighbour",
			make: `ip link add cni1 type bridge; ip link set cni1 up; ip addr add 10.245.1.1/32 dev cni1
				ip route add $L dev cni1; ip link set $LV master cni1`,
			fails: some, named: `(?s)PodAtOtherBridge.*takes the client`, mismatch: true,
		},
		{
			name: "an endpoint is at another bridge, the node knows it, and answers for the client",
			make: `ip link add cni1 type bridge; ip link set cni1 up; ip addr add 10.245.1.1/32 dev cni1
				ip route add $L dev cni1; ip link set $LV master cni1; sysctl -qw net.ipv4.conf.cni1.proxy_arp=1`,
			fails: none, unknownToo: true,
		},
		{
			name:  "somebody has set another port for an endpoint's link-layer address",
			make:  `touch_all; bridge fdb replace $LMAC dev $CV master static sticky`,
			fails: some, named: `(?s)PodAtOtherBridge.*fdb`, mismatch: true,
		},
		{
			name: "somebody has set the right port for an endpoint's link-layer address",
			make: `touch_all; bridge fdb replace $LMAC dev $LV master static`, fails: none,
		},
		{
			name: "a rule for a group of interfaces",
			make: `ip link set eth0 group 7; iptables-nft -I FORWARD -m devgroup --src-group 7 -j DROP`, fails: some, named: `devgroup`,
		},
		{
			name: "a rule for another group of interfaces",
			make: `ip link set eth0 group 7; iptables-nft -I FORWARD -m devgroup --src-group 8 -j DROP`, fails: none,
		},
	}
}
