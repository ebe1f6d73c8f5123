// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// awayInterface gives a pod a second interface whose other end is in no network namespace that is read.
func awayInterface(pod string) []string {
	return []string{
		pod + " ip link add net1 type veth peer name fromnet1 netns @outside",
		"outside ip addr add 10.99.0.1/24 dev fromnet1", "outside ip link set fromnet1 up",
		pod + " ip addr add 10.99.0.5/24 dev net1", pod + " ip link set net1 up",
	}
}

// pairInside gives a pod a pair of veth of which it has both ends.
func pairInside(pod string) []string {
	return []string{
		pod + " ip link add vx type veth peer name vy", pod + " ip link set vx up", pod + " ip link set vy up",
	}
}

// tun gives a pod an interface that nobody reads from.
func tun(pod string) []string {
	return []string{pod + " ip tuntap add tun0 mode tun", pod + " ip link set tun0 up"}
}

// onOtherNode gives a pod a second interface whose other end is on the other pod's node, and a route by it.
func onOtherNode(pod, node, to string, more ...string) []string {
	return append([]string{
		pod + " ip link add net1 type veth peer name vx1 netns @" + node, pod + " ip link set net1 up",
		node + " ip link set vx1 up", node + " ip addr add 10.99.0.1/24 dev vx1",
		pod + " ip addr add 10.99.0.5/24 dev net1", pod + " ip route add " + to + " via 10.99.0.1",
	}, more...)
}

// macvlanOnBridge moves a node's address of the pods to an interface on top of their bridge.
func macvlanOnBridge(node, address, pod string) []string {
	return []string{
		node + " ip link add mv0 link cni0 type macvlan mode bridge", node + " ip addr del " + address + " dev cni0",
		node + " ip addr add " + address + " dev mv0", node + " ip link set mv0 up", pod + " ip neigh flush all",
	}
}

// interfaceFaults are of the interfaces by which pods send and are reached: that of the node's is another one than
// where the address is, or none.
var interfaceFaults = []fault{
	unknownAt("the client sends by a second interface that leads elsewhere", report.SegmentClientPod,
		append(awayInterface("client"), "client ip route add 10.96.0.0/12 via 10.99.0.1 dev net1 src 10.244.1.5")...),
	unknownAt("the client sends by a tun that nobody reads", report.SegmentClientPod,
		append(tun("client"), "client ip route add 10.96.0.0/12 dev tun0 src 10.244.1.5")...).
		undoneBy("client ip link del tun0"),
	unknownAt("the client sends by a pair of veth within the pod", report.SegmentClientPod,
		append(pairInside("client"), "client ip route add 10.96.0.0/12 dev vx src 10.244.1.5")...),
	unknownAt("the client's second interface is on the other node", report.SegmentClientPod,
		onOtherNode("client", "node2", "10.96.0.0/12",
			"client ip route replace 10.96.0.0/12 via 10.99.0.1 src 10.244.1.5")...),
	unknownAt("the endpoint answers by a second interface that leads elsewhere", report.SegmentAnswer,
		append(awayInterface("endpoint"), "endpoint ip route add 10.244.1.0/24 via 10.99.0.1 dev net1")...).saying("net1"),
	unknownAt("the endpoint's default route is by a second interface that leads elsewhere", report.SegmentAnswer,
		append(awayInterface("endpoint"), "endpoint ip route replace default via 10.99.0.1 dev net1")...),
	unknownAt("the endpoint answers by a tun that nobody reads", report.SegmentAnswer,
		append(tun("endpoint"), "endpoint ip route add 10.244.1.0/24 dev tun0")...).undoneBy("endpoint ip link del tun0"),
	unknownAt("the endpoint answers by a pair of veth within the pod", report.SegmentAnswer,
		append(pairInside("endpoint"), "endpoint ip route add 10.244.1.0/24 dev vx")...),
	unknownAt("the endpoint answers by the client's node, which filters strictly", report.SegmentAnswer,
		onOtherNode("endpoint", "node1", "10.244.1.0/24", "node1 sysctl -qw net.ipv4.conf.vx1.rp_filter=1")...),
	unknownAt("the endpoint answers by the client's node, which drops them", report.SegmentAnswer,
		onOtherNode("endpoint", "node1", "10.244.1.0/24", "node1 iptables-nft -A FORWARD -i vx1 -j DROP")...),
	unknownAt("the endpoint answers by the client's node, and its own would drop them", report.SegmentAnswer,
		onOtherNode("endpoint", "node1", "10.244.1.0/24", "node2 iptables-nft -A FORWARD -s 10.244.2.9 -j DROP")...).
		passing(),
	unknownAt("bridges in a row lead to the endpoint", report.SegmentEndpointNode,
		"node2 ip link add br1 type bridge", "node2 ip link set br1 up",
		"node2 ip link add rowa type veth peer name rowb", "node2 ip link set rowa master cni0 up",
		"node2 ip link set rowb master br1 up", "node2 ip link set vethpod master br1", "node2 ip link set vethpod up").
		passing().undoneBy("node2 ip link del rowa", "node2 ip link set vethpod master cni0", "node2 ip link del br1"),
	trap("the endpoint's node has its address of the pods on a macvlan",
		macvlanOnBridge("node2", "10.244.2.1/24", "endpoint")...).undoneBy("node2 ip link del mv0",
		"node2 ip addr add 10.244.2.1/24 dev cni0", "endpoint ip neigh flush all"),
	trap("the client's node has its address of the pods on a macvlan",
		macvlanOnBridge("node1", "10.244.1.1/24", "client")...).undoneBy("node1 ip link del mv0",
		"node1 ip addr add 10.244.1.1/24 dev cni0", "client ip neigh flush all"),
	unknownAt("the node sends to the pod by its second interface", report.SegmentEndpointNode,
		append(secondInterface("endpoint", "node2"), "node2 ip route add 10.244.2.9 via 10.99.0.5")...).passing(),
	unknownAt("the pod has its address on two interfaces, and the node sends by the second", report.SegmentEndpointNode,
		append(secondInterface("endpoint", "node2"), "endpoint ip addr add 10.244.2.9/32 dev net1",
			"node2 ip route add 10.244.2.9 via 10.99.0.5")...).passing(),
	lostAt("the process is stopped, and its queue is full", report.SegmentEndpointPod, endtoend.ProcessStopped,
		"endpoint sysctl -qw net.core.somaxconn=1").listening("stopped, full"),
	lostAt("the process is frozen, and its queue is full", report.SegmentEndpointPod, endtoend.ProcessStopped,
		"endpoint sysctl -qw net.core.somaxconn=1").listening("frozen, full"),
	lostAt("the client's address is tentative", report.SegmentClientPod, endtoend.PodNoRoute,
		"client sysctl -qw net.ipv6.conf.eth0.accept_dad=1 net.ipv6.conf.eth0.dad_transmits=500",
		"client ip -6 addr del fd00:244:1::5/64 dev eth0", "client ip -6 addr add fd00:244:1::5/64 dev eth0",
		"client ip -6 route replace default via fd00:244:1::1").inIPv6().saying("tentative"),
}
