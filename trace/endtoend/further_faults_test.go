// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// tooLarge is a fault of which packets that are too large are lost, as nobody learns that they are.
func tooLarge(name, segment string, do ...string) fault {
	return fault{
		name: name, listen: ":8080", works: true, hangs: true, do: do, segment: segment, verdict: report.SegmentUnknown,
		code: endtoend.PMTUBlackHole,
	}
}

func (c fault) fromOutside() fault {
	c.name, c.outside = "outside: "+c.name, true
	return c
}

// sharing is a fault of an address that is somebody else's, too.
func (c fault) sharing() fault {
	c.shared = true
	return c
}

// Smaller links, which the pods do not know of. What is still to be cut leaves a veth in any case.
var (
	smallUplinks  = []string{"node1 ip link set eth0 mtu 1300", "node2 ip link set eth0 mtu 1300"}
	smallToClient = []string{"endpoint ip link set eth0 gso_max_segs 1", "node1 ip link set cni0 mtu 1300"}
	smallToPod    = []string{"client ip link set eth0 gso_max_segs 1", "node2 ip link set cni0 mtu 1300"}
)

// furtherFaults are of messages about large packets, which come back through both nodes into the pods; of next hops
// that nobody has, and of addresses that somebody else has, too.
var furtherFaults = []fault{
	tooLarge("the client's pod drops the message that its packets are too large", report.SegmentNetwork,
		append(smallUplinks, "client iptables-nft -A INPUT -p icmp -m icmp --icmp-type 3/4 -j DROP")...).
		saying("pod shop/client"),
	tooLarge("the client's pod drops the message about the tunnel", report.SegmentNetwork,
		"client iptables-nft -A INPUT -p icmp -j DROP").overVXLAN().saying("flannel.1"),
	tooLarge("the client's node does not forward the other node's message about large packets",
		report.SegmentEndpointNode, append(smallToPod, "node1 iptables-nft -A FORWARD -p icmp -j DROP")...).
		saying("node node1"),
	tooLarge("the endpoint's node drops its own message about large packets of the client", report.SegmentEndpointNode,
		append(smallToPod, "node2 iptables-nft -A OUTPUT -p icmp -j DROP")...).saying("node node2"),
	tooLarge("the endpoint's pod drops the message that its packets are too large", report.SegmentAnswer,
		append(smallUplinks, "endpoint iptables-nft -A INPUT -p icmp -j DROP")...).saying("pod shop/web"),
	tooLarge("the endpoint's node does not forward the client's node's message", report.SegmentAnswer,
		append(smallToClient, "node2 iptables-nft -A FORWARD -p icmp -j DROP")...).saying("node node2"),
	tooLarge("the endpoint's node does not track the connection, and drops messages about it", report.SegmentAnswer,
		append(smallToClient, "node2 iptables-nft -t raw -A PREROUTING -p tcp -j NOTRACK",
			"node2 iptables-nft -A FORWARD -m conntrack --ctstate INVALID -j DROP")...).saying("node node2"),
	tooLarge("a route of the endpoint's node takes less than its link, and the message is dropped", report.SegmentAnswer,
		"node2 ip route replace 10.244.1.0/24 via 192.168.50.1 mtu 1000", "node2 iptables-nft -A OUTPUT -p icmp -j DROP").
		saying("mtu 1000"),
	tooLarge("a setting of IPv6 takes less than the link, and the message is dropped", report.SegmentAnswer,
		"node2 sysctl -qw net.ipv6.conf.eth0.mtu=1300",
		"node2 ip6tables-nft -A OUTPUT -p ipv6-icmp --icmpv6-type 2 -j DROP").saying("eth0/mtu=1300").inIPv6(),
	tooLarge("the entry node's link to the client is small, and the endpoint's pod drops the message",
		report.SegmentAnswer, toEndpoint, masquerade, "node1 ip link set eth1 mtu 1200",
		"endpoint iptables-nft -A INPUT -p icmp -j DROP").saying("eth1").fromOutside(),
	trap("messages about large packets are related to connections", slices.Concat(smallToClient, smallToPod, []string{
		"node1 iptables-nft -t nat -A POSTROUTING -d 10.244.2.9 -j MASQUERADE",
		"node1 iptables-nft -A FORWARD -m conntrack --ctstate RELATED -j ACCEPT",
		"node1 iptables-nft -A FORWARD -p icmp -j DROP",
		"node2 iptables-nft -A FORWARD -m conntrack --ctstate RELATED -j ACCEPT",
		"node2 iptables-nft -A FORWARD -p icmp -j DROP",
		"endpoint iptables-nft -A INPUT -m conntrack --ctstate RELATED -j ACCEPT",
		"endpoint iptables-nft -A INPUT -p icmp -j DROP",
	})...),
	unknownAt("the endpoint's pod takes the client's for a neighbour", report.SegmentAnswer,
		"endpoint ip addr del 10.244.2.9/24 dev eth0", "endpoint ip addr add 10.244.2.9/8 dev eth0",
		"endpoint ip route add default via 10.244.2.1").saying("behind the bridge cni0").
		undoneBy("endpoint ip addr del 10.244.2.9/8 dev eth0", "endpoint ip addr add 10.244.2.9/24 dev eth0"),
	unknownAt("the endpoint's node translates the source to an address that nobody has", report.SegmentAnswer,
		"node2 iptables-nft -t nat -A POSTROUTING -o cni0 -j SNAT --to-source 10.244.2.200").saying("10.244.2.200"),
	unknownAt("the client's pod takes frontends for neighbours", report.SegmentClientPod,
		"client ip route add 10.96.0.0/12 dev eth0").saying("10.96.0.10"),
	trap("the client's pod takes frontends for neighbours, and the node answers for them",
		"client ip route add 10.96.0.0/12 dev eth0", "node1 sysctl -qw net.ipv4.conf.cni0.proxy_arp=1"),
	unknownAt("the node has no route to the gateway that it answers for", report.SegmentAnswer,
		"node2 ip route del default").saying("no usable route").routedTo(),
	lostAt("the endpoint's node has the pod's address itself", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"node2 ip addr add 10.244.2.9/32 dev lo").saying("10.244.2.9 dev lo").sharing(),
	lostAt("the endpoint's node has the client's address itself", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, "node2 ip addr add 10.244.1.5/32 dev lo").saying("10.244.1.5 dev lo").sharing(),
	lostAt("the endpoint's pod has the client's address itself", report.SegmentEndpointPod, endtoend.PodDrops,
		"endpoint ip addr add 10.244.1.5/32 dev lo").saying("pod shop/web itself").sharing(),
	lostAt("the client's pod has the frontend's address itself", report.SegmentClientPod, endtoend.PodNoRoute,
		"client ip addr add 10.96.0.10/32 dev lo").saying("10.96.0.10 dev lo"),
	lostAt("the client's pod has a local route to the frontend", report.SegmentClientPod, endtoend.PodNoRoute,
		"client ip route add local 10.96.0.10/32 dev lo").saying("pod shop/client has a local route"),
	lostAt("the endpoint's node has a local route to the pod", report.SegmentEndpointNode,
		endtoend.EndpointNodeNoRoute, "node2 ip route add local 10.244.2.9/32 dev lo").saying("local 10.244.2.9"),
	lostAt("the endpoint's pod has a local route to the client", report.SegmentEndpointPod, endtoend.PodDrops,
		"endpoint ip route add local 10.244.1.5/32 dev lo").saying("local 10.244.1.5"),
	lostAnswer("the endpoint's node has the client's network for local", "node2 ip addr add 10.244.1.0/24 dev lo").
		saying("10.244.1.0/24"),
	unknownAt("the endpoint's node sends the connection on to a pod that nobody is", report.SegmentEndpointNode,
		"node2 iptables-nft -t nat -I PREROUTING -d 10.244.2.9 -p tcp --dport 8080 -j DNAT --to-destination 10.244.2.10").
		saying("nat PREROUTING rule 1 translates"),
	unknownAt("the endpoint's node takes the connection itself", report.SegmentEndpointNode,
		"node2 iptables-nft -t nat -I PREROUTING -d 10.244.2.9 -p tcp --dport 8080 -j REDIRECT --to-ports 81").
		saying("nat PREROUTING rule 1 translates"),
	trap("a policy of IPsec allows without transforming",
		"node2 ip xfrm policy add dir fwd src 10.244.1.0/24 dst 10.244.2.0/24 action allow"),
	unknownAt("IPsec blocks by default what comes into the endpoint's pod", report.SegmentEndpointPod,
		"endpoint ip xfrm policy setdefault in block").saying("default policy: in block").
		repairedBy("endpoint ip xfrm policy setdefault in accept"),
	unknownAt("IPsec blocks by default what leaves the client's pod", report.SegmentClientPod,
		"client ip xfrm policy setdefault out block").saying("default policy: out block").
		repairedBy("client ip xfrm policy setdefault out accept"),
	unknownAt("IPsec blocks by default what the endpoint's node forwards", report.SegmentEndpointNode,
		"node2 ip xfrm policy setdefault fwd block").saying("default policy: fwd block").
		repairedBy("node2 ip xfrm policy setdefault fwd accept"),
	lostAt("the endpoint's pod has the link-layer address of its bridge", report.SegmentEndpointNode,
		endtoend.EndToEndWrongNeighbour, "node2 ip link set cni0 address 02:00:00:00:00:07",
		"endpoint ip link set eth0 address 02:00:00:00:00:07", "endpoint ip neigh flush all", "node2 ip neigh flush all").
		saying("02:00:00:00:00:07").repairedBy("node2 ip link set cni0 address 02:00:00:00:00:08"),
	unknownAt("the endpoint's pod sends the connection back", report.SegmentEndpointPod,
		"endpoint iptables-nft -t nat -I PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.244.1.5").
		saying("nat PREROUTING rule 1 translates"),
	trap("the client's pod has the endpoint's address, too", "client ip addr add 10.244.2.9/32 dev lo").sharing(),
	lostAt("the client's pod has a TTL of 1", report.SegmentNetwork, endtoend.EndpointNodeDrops,
		"client sysctl -qw net.ipv4.ip_default_ttl=1").saying("net/ipv4/ip_default_ttl=1 (pod shop/client)"),
	lostAt("the client's pod has a TTL of 2", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"client sysctl -qw net.ipv4.ip_default_ttl=2").saying("two nodes").overVXLAN(),
	lostAnswer("the endpoint's pod has a TTL of 2", "endpoint sysctl -qw net.ipv4.ip_default_ttl=2").
		saying("(pod shop/web)"),
	lostAnswer("the node has a TTL of 1", "node2 sysctl -qw net.ipv4.ip_default_ttl=1").hostNetwork(),
	lostAt("the client's pod has a route with a TTL of 1", report.SegmentNetwork, endtoend.EndpointNodeDrops,
		"client ip route replace default via 10.244.1.1 hoplimit 1").saying("hoplimit 1 (pod shop/client)"),
	lostAnswer("the endpoint's pod has a route with a TTL of 2",
		"endpoint ip route replace default via 10.244.2.1 hoplimit 2").saying("hoplimit 2 (pod shop/web)"),
	trap("a route of the node has a TTL of 1, and it forwards",
		"node1 ip route replace 10.244.2.0/24 via 192.168.50.2 hoplimit 1",
		"node2 ip route replace 10.244.1.0/24 via 192.168.50.1 hoplimit 1"),
	trap("a route with a TTL of 64 has the last word", "client sysctl -qw net.ipv4.ip_default_ttl=1",
		"client ip route replace default via 10.244.1.1 hoplimit 64"),
	trap("a TTL of 3 is enough", "client sysctl -qw net.ipv4.ip_default_ttl=3",
		"endpoint sysctl -qw net.ipv4.ip_default_ttl=3").overVXLAN(),
	unknownAt("one of the next hops of the answer is another router", report.SegmentAnswer,
		"node2 ip route replace 10.244.1.0/24 nexthop via 192.168.50.1 weight 1 nexthop via 192.168.61.2 weight 200").
		saying("192.168.61.2"),
	unknownAt("one of the next hops of the client's node is another router", report.SegmentNetwork,
		"node1 ip route replace 10.244.2.0/24 nexthop via 192.168.50.2 weight 1 nexthop via 192.168.60.2 weight 200").
		saying("192.168.60.2"),
	unknownAt("one of two links between the nodes drops", report.SegmentEndpointNode, append(slices.Clip(twoLinks),
		"node1 ip route replace 10.244.2.0/24 nexthop via 192.168.50.2 weight 1 nexthop via 192.168.70.2 weight 200",
		"node2 iptables-nft -A FORWARD -i eth2 -j DROP")...).saying("the route has 2 next hops"),
	trap("two links between the nodes", append(slices.Clip(twoLinks),
		"node1 ip route replace 10.244.2.0/24 nexthop via 192.168.50.2 nexthop via 192.168.70.2",
		"node2 ip route replace 10.244.1.0/24 nexthop via 192.168.50.1 nexthop via 192.168.70.1")...),
	trap("the next hop is another address of the other node, which its interface answers for",
		"node1 ip route replace 10.244.2.0/24 via 192.168.61.1 dev eth0 onlink"),
	trap("the pods are on the link, and the other node answers for them", "node1 ip route replace 10.244.2.0/24 dev eth0",
		"node2 sysctl -qw net.ipv4.conf.eth0.proxy_arp=1"),
	trap("the other node is dormant, as one that waits for 802.1X", "node2 ip link set eth0 mode dormant state dormant"),
	unknownAt("a macvlan of the endpoint's node takes what comes in, and filters it", report.SegmentEndpointNode,
		"node2 sysctl -qw net.ipv4.conf.default.rp_filter=1",
		"node2 ip link add link eth0 name mv0 type macvlan mode passthru", "node2 ip link set mv0 up").
		saying("mv0").undoneBy("node2 ip link del mv0"),
	trap("frames go to another interface of the other node", otherInterface...),
	lostAt("frames go to another interface of the other node, which filters strictly", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, append(slices.Clip(otherInterface),
			"node2 sysctl -qw net.ipv4.conf.eth9.rp_filter=1")...).
		saying("by eth9").undoneBy("node1 ip link del br0", "node1 ip addr add 192.168.50.1/24 dev eth0",
		"node1 ip link set eth0 up", "node1 ip link del eth9"),
}

// otherInterface is a second link of the endpoint's node in the same network, by which it answers ARP for the
// address of the first one.
var otherInterface = []string{
	"node1 ip link add br0 type bridge", "node1 ip link set br0 up", "node1 ip addr del 192.168.50.1/24 dev eth0",
	"node1 ip link set eth0 master br0", "node1 ip addr add 192.168.50.1/24 dev br0",
	"node1 ip link add eth9 type veth peer name eth9 netns @node2", "node1 ip link set eth9 master br0",
	"node1 ip link set eth9 up", "node2 ip link set eth9 address 02:00:00:00:09:09", "node2 ip link set eth9 up",
	"node2 ip addr add 192.168.50.22/24 dev eth9",
	"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:09:09 dev br0 nud permanent",
	"node1 ip route add 10.244.2.0/24 via 192.168.50.2",
}

// twoLinks is a second link between the nodes.
var twoLinks = []string{
	"node1 ip link add eth2 type veth peer name eth2 netns @node2", "node1 ip addr add 192.168.70.1/24 dev eth2",
	"node1 ip link set eth2 up", "node2 ip addr add 192.168.70.2/24 dev eth2", "node2 ip link set eth2 up",
}
