// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// onLo gives the endpoint's node an address on lo, by which the client's node sends to the pods.
var onLo = []string{
	"node2 ip addr add 172.16.0.2/32 dev lo", "node1 ip route replace 10.244.2.0/24 via 172.16.0.2 dev eth0 onlink",
}

// tunnelOnLo makes a node's end of the tunnel again with an address of lo, as in routed fabrics. route is that to the
// other node's end.
func tunnelOnLo(own int, route string) []string {
	return onNode(own, "ip addr add 172.16.0.OWN/32 dev lo", "ip route add 172.16.0.PEER "+route,
		"ip link del flannel.1",
		"ip link add flannel.1 mtu 1450 address 02:00:00:00:00:0OWN type vxlan id 1 local 172.16.0.OWN dstport 8472 "+
			"nolearning",
		"ip addr add 10.244.OWN.0/32 dev flannel.1", "ip link set flannel.1 up",
		"ip route add 10.244.PEER.0/24 via 10.244.PEER.0 dev flannel.1 onlink",
		"ip neigh replace 10.244.PEER.0 lladdr 02:00:00:00:00:0PEER dev flannel.1 nud permanent",
		"bridge fdb add 02:00:00:00:00:0PEER dev flannel.1 dst 172.16.0.PEER")
}

// tunnelsOnLo is that of both nodes.
func tunnelsOnLo(to1, to2 string, do ...string) []string {
	return slices.Concat(tunnelOnLo(1, to2), tunnelOnLo(2, to1), do)
}

// podOnLo has the endpoint's pod have its address on lo, and another one on its interface.
func podOnLo(do ...string) []string {
	return append([]string{
		"endpoint ip addr flush dev eth0", "endpoint ip addr add 10.244.2.50/24 dev eth0",
		"endpoint ip route add default via 10.244.2.1", "endpoint ip addr add 10.244.2.9/32 dev lo",
		"node2 ip neigh flush dev cni0",
	}, do...)
}

// macvlanUplinks has both nodes have their link by a macvlan on it.
var macvlanUplinks = []string{
	"node1 ip link add mv0 link eth0 type macvlan mode bridge", "node1 ip addr del 192.168.50.1/24 dev eth0",
	"node1 ip addr add 192.168.50.1/24 dev mv0", "node1 ip link set mv0 up",
	"node2 ip link add mv0 link eth0 type macvlan mode bridge", "node2 ip addr del 192.168.50.2/24 dev eth0",
	"node2 ip addr add 192.168.50.2/24 dev mv0", "node2 ip link set mv0 up",
	"node1 ip route add 10.244.2.0/24 via 192.168.50.2", "node2 ip route add 10.244.1.0/24 via 192.168.50.1",
}

// gatewayFaults are of next hops that are not where their packets go: gateways to a pod, addresses of another interface
// than that of the link, of tunnels, too, and of lo.
var gatewayFaults = []fault{
	lostAt("the endpoint's node sends to the pod by a gateway with a wrong entry", report.SegmentEndpointNode,
		endtoend.EndToEndWrongNeighbour, "node2 ip route add 10.244.2.9 via 10.244.2.10",
		"node2 ip neigh replace 10.244.2.10 lladdr 02:00:00:00:99:99 dev cni0 nud permanent").
		saying("frames for that to 02:00:00:00:99:99").inBoth(),
	lostAt("the endpoint's node sends to the pod by a gateway that nobody is", report.SegmentEndpointNode,
		endtoend.EndpointNodeNoRoute, "node2 ip route add 10.244.2.9 via 10.244.2.10").forgetting().
		saying("which is not one of the pod's addresses").inBoth(),
	lostAt("the route to the pod has a gateway that nobody is, behind no bridge", report.SegmentEndpointNode,
		endtoend.EndpointNodeNoRoute, "node2 ip route replace 10.244.2.9 via 10.244.2.10 dev vethpod onlink").forgetting().
		routedTo().saying("10.244.2.10"),
	unknownAt("the endpoint's node sends to the pod by a gateway behind another port", report.SegmentEndpointNode,
		append(slices.Clip(otherPort), "node2 ip route add 10.244.2.9 via 10.244.2.10")...).saying("10.244.2.10").
		forgetting(),
	lostAnswer("the client's node sends to the client by a gateway with a wrong entry",
		"node1 ip route add 10.244.1.5 via 10.244.1.77",
		"node1 ip neigh replace 10.244.1.77 lladdr 02:00:00:00:99:99 dev cni0 nud permanent").
		coded(endtoend.EndToEndWrongNeighbour),
	lostAnswer("the client's node sends to the client by a gateway that nobody is",
		"node1 ip route add 10.244.1.5 via 10.244.1.77").forgetting(),
	trap("the gateway to the pod is another address of it", "endpoint ip addr add 10.244.2.50/24 dev eth0",
		"node2 ip route add 10.244.2.9 via 10.244.2.50").forgetting(),
	trap("the gateway to the pod has an entry with the pod's link-layer address",
		"endpoint ip link set eth0 address 02:00:00:00:02:09", "node2 ip route add 10.244.2.9 via 10.244.2.10",
		"node2 ip neigh replace 10.244.2.10 lladdr 02:00:00:00:02:09 dev cni0 nud permanent"),
	lostAt("the next hop is on lo, and nobody has asked for it: a rule by interface drops", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, append(slices.Clip(onLo),
			"node2 iptables-nft -A FORWARD -i eth0 -d 10.244.2.9 -j DROP")...).forgetting(),
	lostAt("the next hop is of another link, and nobody has asked for it: a rule by interface drops",
		report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node1 ip route replace 10.244.2.0/24 via 192.168.61.1 dev eth0 onlink",
		"node2 iptables-nft -A FORWARD -i eth0 -j DROP").forgetting(),
	trap("the next hop is on lo, and rules accept by interface", append(slices.Clip(onLo),
		"node2 iptables-nft -P FORWARD DROP", "node2 iptables-nft -A FORWARD -i eth0 -j ACCEPT",
		"node2 iptables-nft -A FORWARD -i cni0 -j ACCEPT")...).forgetting(),
	trap("the next hop is of another link, for which a rule drops",
		"node1 ip route replace 10.244.2.0/24 via 192.168.61.1 dev eth0 onlink",
		"node2 iptables-nft -A FORWARD -i eth1 -j DROP").forgetting(),
	trap("the next hop of answers is of another link, and nobody has asked for it: a rule drops by that link",
		"node2 ip route replace 10.244.1.0/24 via 192.168.60.1 dev eth0 onlink",
		"node1 iptables-nft -A FORWARD -i eth1 -j DROP").forgetting(),
	lostAnswer("the next hop of answers is of another link, and nobody has asked for it: a rule by interface drops",
		"node2 ip route replace 10.244.1.0/24 via 192.168.60.1 dev eth0 onlink",
		"node1 iptables-nft -A FORWARD -i eth0 -j DROP").forgetting(),
	lostAt("the next hop is on lo and on a link without numbers, by which a rule drops", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, "node1 ip link add eth2 type veth peer name eth2 netns @node2",
		"node1 ip addr add 172.16.0.1/32 dev lo", "node1 ip addr add 172.16.0.1/32 dev eth2", "node1 ip link set eth2 up",
		"node2 ip addr add 172.16.0.2/32 dev lo", "node2 ip addr add 172.16.0.2/32 dev eth2", "node2 ip link set eth2 up",
		"node1 ip route replace 10.244.2.0/24 via 172.16.0.2 dev eth2 onlink",
		"node2 ip route replace 10.244.1.0/24 via 172.16.0.1 dev eth2 onlink",
		"node2 iptables-nft -A FORWARD -i eth2 -j DROP").forgetting(),
	unknownAt("the next hop is on lo, for which IPv6 does not answer", report.SegmentNetwork,
		"node2 ip -6 addr add fd00:72::2/128 dev lo",
		"node1 ip -6 route replace fd00:244:2::/64 via fd00:72::2 dev eth0 onlink").forgetting().inIPv6().
		undoneBy("node1 ip -6 route replace fd00:244:2::/64 via fd00:50::2"),
	trap("the tunnel's ends are on lo, by the link's addresses",
		tunnelsOnLo("via 192.168.50.1", "via 192.168.50.2")...).overVXLAN(),
	trap("the tunnel's ends are on lo, and rules accept by interface", tunnelsOnLo("dev eth0", "dev eth0",
		"node2 iptables-nft -P INPUT DROP", "node2 iptables-nft -A INPUT -i eth0 -p udp --dport 8472 -j ACCEPT")...).
		overVXLAN(),
	lostAt("the tunnel's ends are on lo, and a rule by interface drops", report.SegmentNetwork, endtoend.TunnelDropped,
		tunnelsOnLo("dev eth0", "dev eth0", "node2 iptables-nft -A INPUT -i eth0 -p udp --dport 8472 -j DROP")...).
		overVXLAN().undoneBy(slices.Concat(tunnelAgain(1, ""), tunnelAgain(2, ""),
		[]string{"node2 iptables-nft -F INPUT"})...),
	lostAt("the tunnel's ends are on lo, and nobody has asked for them: rules accept by lo alone", report.SegmentNetwork,
		endtoend.TunnelDropped, tunnelsOnLo("dev eth0", "dev eth0", "node2 iptables-nft -A INPUT -i lo -j ACCEPT",
			"node2 iptables-nft -A INPUT -p udp --dport 8472 -j DROP")...).overVXLAN().forgetting().
		undoneBy(slices.Concat(tunnelAgain(1, ""), tunnelAgain(2, ""), []string{"node2 iptables-nft -F INPUT"})...),
	lostAt("the tunnel's ends are on lo, and the link filters strictly", report.SegmentNetwork, endtoend.TunnelDropped,
		tunnelsOnLo("dev eth0", "dev eth0", "node2 ip route del 172.16.0.1", "node2 ip route add 172.16.0.1 dev eth1",
			"node2 sysctl -qw net.ipv4.conf.eth0.rp_filter=1")...).overVXLAN().
		undoneBy(slices.Concat(tunnelAgain(1, ""), tunnelAgain(2, ""))...),
	trap("the tunnel's end is the address of another link, for which a rule drops",
		"node1 ip route add 192.168.61.1 dev eth0", "node1 bridge fdb replace 02:00:00:00:00:02 dev flannel.1 "+
			"dst 192.168.61.1", "node2 iptables-nft -A INPUT -i eth1 -j DROP").overVXLAN(),
	trap("the endpoint's address is on lo of its pod", podOnLo()...),
	trap("the endpoint's address is on lo of its pod, by a gateway",
		podOnLo("node2 ip route add 10.244.2.9 via 10.244.2.50")...),
	lostAt("the endpoint's address is on lo of its pod, which drops by interface", report.SegmentEndpointPod,
		endtoend.PodDrops, podOnLo("endpoint iptables-nft -A INPUT -i eth0 -p tcp --dport 8080 -j DROP")...).
		undoneBy("endpoint iptables-nft -F INPUT", "endpoint ip addr del 10.244.2.9/32 dev lo",
			"endpoint ip addr add 10.244.2.9/24 dev eth0", "node2 ip neigh flush dev cni0"),
	trap("a local route of the pod is the endpoint's address", "endpoint ip addr flush dev eth0",
		"endpoint ip addr add 10.244.2.50/24 dev eth0", "endpoint ip route add default via 10.244.2.1",
		"endpoint ip route add local 10.244.2.9/32 dev lo", "node2 ip neigh flush dev cni0").sharing(),
	trap("the nodes' link is of macvlans", macvlanUplinks...),
	lostAt("the nodes' link is of macvlans, by which a rule drops", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, append(slices.Clip(macvlanUplinks), "node2 sysctl -qw net.ipv4.conf.eth0.arp_ignore=1",
			"node1 ip neigh flush all", "node2 iptables-nft -A FORWARD -i mv0 -j DROP")...).
		undoneBy("node2 iptables-nft -F FORWARD", "node1 ip link del mv0", "node2 ip link del mv0",
			"node1 ip addr add 192.168.50.1/24 dev eth0", "node2 ip addr add 192.168.50.2/24 dev eth0"),
}
