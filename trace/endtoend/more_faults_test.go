// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// secondLink is another link between the nodes, by which the endpoint's node sends answers.
var secondLink = []string{
	"node1 ip link add eth2 type veth peer name eth2 netns @node2",
	"node1 ip addr add 192.168.70.1/24 dev eth2", "node1 ip link set eth2 up",
	"node2 ip addr add 192.168.70.2/24 dev eth2", "node2 ip link set eth2 up",
	"node2 ip route replace 10.244.1.0/24 via 192.168.70.1",
}

// otherVXLAN makes the tunnel's interface of the endpoint's node anew.
func otherVXLAN(id, port string) []string {
	return []string{
		"node2 ip link del flannel.1",
		"node2 ip link add flannel.1 address 02:00:00:00:00:02 type vxlan id " + id + " local 192.168.50.2 dev eth0 " +
			"dstport " + port + " nolearning",
		"node2 ip addr add 10.244.2.0/32 dev flannel.1", "node2 ip link set flannel.1 up",
		"node2 ip route add 10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink",
		"node2 ip neigh add 10.244.1.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent",
		"node2 bridge fdb add 02:00:00:00:00:01 dev flannel.1 dst 192.168.50.1",
	}
}

// lostAnswer is a fault that loses the answer, on the way that do says.
func lostAnswer(name string, do ...string) fault {
	return fault{
		name: name, listen: ":8080", do: do, segment: report.SegmentAnswer, code: endtoend.EndToEndAnswerLost,
	}
}

func lostAt(name, segment, code string, do ...string) fault {
	return fault{name: name, listen: ":8080", do: do, segment: segment, code: code}
}

func unknownAt(name, segment string, do ...string) fault {
	return fault{name: name, listen: ":8080", do: do, segment: segment, verdict: report.SegmentUnknown}
}

func trap(name string, do ...string) fault {
	return fault{name: "trap: " + name, listen: ":8080", works: true, do: do}
}

// moreFaults are as faults: VXLAN whose ends differ, answers that take another way or are dropped in each hook, routing
// policy, settings of one interface.
var moreFaults = []fault{
	{
		name: "the tunnel's other end is of another network", vxlan: true, listen: ":8080", do: otherVXLAN("2", "8472"),
		undo:    otherVXLAN("1", "8472"),
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "the tunnel's other end is at another port", vxlan: true, listen: ":8080", do: otherVXLAN("1", "4789"),
		undo:    otherVXLAN("1", "8472"),
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	{
		name: "the tunnel's packets go into itself", vxlan: true, listen: ":8080",
		do:      []string{"node1 ip route add 192.168.50.2/32 dev flannel.1"},
		segment: report.SegmentNetwork, code: endtoend.TunnelPeerMissing,
	},
	trap("the answer comes by another link, and no filter is set", secondLink...),
	trap("the answer comes by another link, and the filter is loose",
		append([]string{"node1 sysctl -qw net.ipv4.conf.all.rp_filter=2"}, secondLink...)...),
	lostAnswer("the answer comes by another link, and the client's node filters strictly",
		append([]string{"node1 sysctl -qw net.ipv4.conf.all.rp_filter=1"}, secondLink...)...),
	unknownAt("the answer goes by a router, and the client's node filters strictly", report.SegmentAnswer,
		"outside sysctl -qw net.ipv4.ip_forward=1", "outside ip route add 10.244.1.0/24 via 192.168.60.1",
		"node2 ip route replace 10.244.1.0/24 via 192.168.61.2", "node1 sysctl -qw net.ipv4.conf.eth1.rp_filter=1"),
	lostAnswer("the client's node drops the answer before it is tracked",
		"node1 iptables-nft -t raw -A PREROUTING -s 10.244.2.9 -p tcp --sport 8080 -j DROP"),
	lostAnswer("the client's node does not track the answer",
		"node1 iptables-nft -t raw -A PREROUTING -s 10.244.2.9 -j NOTRACK"),
	lostAnswer("the endpoint's node drops the answer as it leaves",
		"node2 iptables-nft -t mangle -A POSTROUTING -s 10.244.2.9 -p tcp --sport 8080 -j DROP"),
	lostAnswer("the endpoint's node does not track the answer, and forwards what is established alone",
		"node2 iptables-nft -t raw -A PREROUTING -s 10.244.2.9 -j NOTRACK", "node2 iptables-nft -P FORWARD DROP",
		"node2 iptables-nft -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
		"node2 iptables-nft -A FORWARD -d 10.244.2.9 -j ACCEPT"),
	lostAnswer("the endpoint's node drops what the endpoint sends behind its SYN,ACK",
		"node2 iptables-nft -t mangle -A POSTROUTING -p tcp --sport 8080 -m tcp ! --tcp-flags SYN SYN -j DROP").
		answeringNothing(),
	lostAnswer("the endpoint's pod drops what it sends behind its SYN,ACK",
		"endpoint iptables-nft -A OUTPUT -p tcp --sport 8080 -m tcp ! --tcp-flags SYN SYN -j DROP").answeringNothing(),
	lostAnswer("the endpoint's node marks answered connections, and drops what has the mark",
		"node2 iptables-nft -t mangle -A PREROUTING -m conntrack --ctdir REPLY -j CONNMARK --set-mark 2",
		"node2 iptables-nft -t mangle -A POSTROUTING -m conntrack --ctdir ORIGINAL -m connmark --mark 2 -j DROP").
		answeringNothing(),
	lostAnswer("a routing rule by the endpoint's address",
		"node2 ip route add blackhole default table 100", "node2 ip rule add from 10.244.2.9 lookup 100"),
	lostAnswer("the endpoint's pod has a routing rule",
		"endpoint ip route add unreachable default table 100", "endpoint ip rule add to 10.244.1.0/24 lookup 100"),
	// A listing of nft does not say which devices a chain is attached to; that of the kernel's own messages does.
	unknownAt("the endpoint's node drops the answer at the pod's interface", report.SegmentAnswer,
		"node2 nft add table netdev guard",
		"node2 nft add chain netdev guard in '{' type filter hook ingress device vethpod priority 0 ';' '}'",
		"node2 nft add rule netdev guard in tcp sport 8080 drop"),
	lostAnswer("the client's node does not forward what comes from the network",
		"node1 sysctl -qw net.ipv4.conf.eth0.forwarding=0"),
	lostAt("the endpoint's node does not forward what comes from pods", report.SegmentAnswer,
		endtoend.EndToEndAnswerLost, "node2 sysctl -qw net.ipv4.conf.cni0.forwarding=0"),
	lostAt("a routing rule to the endpoint's address", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"node2 ip route add prohibit default table 101", "node2 ip rule add to 10.244.2.9 lookup 101"),
	lostAt("the endpoint's node sends packets for the pod elsewhere", report.SegmentEndpointNode,
		endtoend.EndpointNodeNoRoute, "node2 ip route add 10.244.2.9/32 dev eth1"),
	lostAt("the pod's own interface is down", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"endpoint ip link set eth0 down"),
	lostAt("the port of the bridge to the pod is disabled", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"node2 bridge link set dev vethpod state 0"),
	lostAt("a NetworkPolicy as kube-router writes it", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node2 iptables-nft -N KUBE-POD-FW-A", "node2 iptables-nft -A KUBE-POD-FW-A -s 10.244.9.0/24 -j RETURN",
		"node2 iptables-nft -A KUBE-POD-FW-A -j REJECT", "node2 iptables-nft -A FORWARD -d 10.244.2.9 -j KUBE-POD-FW-A"),
	lostAt("the endpoint's pod resets connections", report.SegmentEndpointPod, endtoend.PodDrops,
		"endpoint iptables-nft -A INPUT -p tcp --dport 8080 -j REJECT --reject-with tcp-reset"),
	lostAt("the client's pod has a routing rule", report.SegmentClientPod, endtoend.PodNoRoute,
		"client ip route add blackhole default table 100", "client ip rule add to 10.96.0.0/12 lookup 100"),
	unknownAt("the endpoint's pod does not answer ARP", report.SegmentEndpointNode,
		"node2 ip neigh flush dev cni0", "endpoint ip neigh flush dev eth0",
		"endpoint sysctl -qw net.ipv4.conf.eth0.arp_ignore=8"),
	unknownAt("a policy of IPsec blocks", report.SegmentEndpointNode,
		"node2 ip xfrm policy add dir fwd src 10.244.1.0/24 dst 10.244.2.0/24 action block"),
	trap("the bridge's port is isolated from others, and learns nothing",
		"node2 bridge link set dev vethpod isolated on", "node2 bridge link set dev vethpod learning off"),
	trap("a routing rule for others", "node2 ip route add blackhole default table 100",
		"node2 ip rule add from 10.244.2.10 lookup 100", "node2 ip rule add to 10.244.2.10 lookup 100"),
}
