// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// overUDP is a fault of a Service over UDP.
func (c fault) overUDP() fault {
	c.name, c.udp = "UDP: "+c.name, true
	return c
}

// fewPorts leaves the client few ports for its sockets.
const fewPorts = "client echo 2000 2003 > /proc/sys/net/ipv4/ip_local_port_range"

// packetFaults are of what packets carry, and what sockets give them: sources, ports, marks, types of service; and of
// rules that are for a share of the packets.
var packetFaults = []fault{
	unknownAt("the answer has the address of the tunnel's interface", report.SegmentAnswer).
		hostNetwork().overVXLAN().overUDP().inBoth().saying("IP_PKTINFO"),
	unknownAt("the answer leaves by another link, and has its address", report.SegmentAnswer, secondLink...).
		hostNetwork().overUDP().saying("192.168.70.2"),
	unknownAt("the endpoint's address is the second one of its interface", report.SegmentAnswer,
		"endpoint ip addr flush dev eth0", "endpoint ip addr add 10.244.2.100/24 dev eth0",
		"endpoint ip addr add 10.244.2.9/24 dev eth0", "endpoint ip route add default via 10.244.2.1").
		overUDP().saying("10.244.2.100").undoneBy("endpoint ip addr del 10.244.2.100/24 dev eth0",
		"endpoint ip addr replace 10.244.2.9/24 dev eth0"),
	unknownAt("the pod's route has another source", report.SegmentAnswer,
		"endpoint ip addr add 10.244.2.100/32 dev lo",
		"endpoint ip route replace default via 10.244.2.1 src 10.244.2.100").overUDP().saying("10.244.2.100"),
	unknownAt("the client's node gives requests one of several sources", report.SegmentAnswer,
		"node1 iptables-nft -t nat -A POSTROUTING -d 10.244.2.9 -j SNAT --to-source 10.244.1.200-10.244.1.203").
		passing().saying("one of several source addresses"),
	lostAt("all ports for sockets of the client are reserved", report.SegmentClientPod, endtoend.PodDrops,
		fewPorts, "client echo 2000-2003 > /proc/sys/net/ipv4/ip_local_reserved_ports").
		saying("ip_local_reserved_ports=2000-2003").inBoth().
		undoneBy("client echo 2000 > /proc/sys/net/ipv4/ip_local_reserved_ports"),
	trap("some ports for sockets of the client are not reserved",
		"client echo 2000 2011 > /proc/sys/net/ipv4/ip_local_port_range", // more than this test's own connections
		"client echo 2000-2001 > /proc/sys/net/ipv4/ip_local_reserved_ports"),
	lostAt("the client's address has the scope of its link", report.SegmentClientPod, endtoend.PodNoRoute,
		"client ip addr flush dev eth0", "client ip addr add 10.244.1.5/24 dev eth0 scope link",
		"client ip route add default via 10.244.1.1").saying("scope link").
		undoneBy("client ip addr flush dev eth0", "client ip addr add 10.244.1.5/24 dev eth0"),
	trap("the client's address has the scope of its link, and the route has it for its source",
		"client ip addr flush dev eth0", "client ip addr add 10.244.1.5/24 dev eth0 scope link",
		"client ip route add default via 10.244.1.1 src 10.244.1.5"),
	lostAt("the tunnel carries a mark, by which the endpoint's node drops", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, slices.Concat(tunnelAgain(1, "gbp"), tunnelAgain(2, "gbp"), []string{
			"node1 iptables-nft -t mangle -A FORWARD -i cni0 -j MARK --set-mark 5",
			"node2 iptables-nft -A FORWARD -m mark --mark 5 -j DROP",
		})...).overVXLAN().
		undoneBy("node2 iptables-nft -F FORWARD", "node1 iptables-nft -t mangle -F FORWARD"),
	lostAnswer("the tunnel carries a mark of answers, by which the client's node drops",
		slices.Concat(tunnelAgain(1, "gbp"), tunnelAgain(2, "gbp"), []string{
			"node2 iptables-nft -t mangle -A FORWARD -i cni0 -j MARK --set-mark 5",
			"node1 iptables-nft -A FORWARD -m mark --mark 5 -j DROP",
		})...).overVXLAN().
		undoneBy("node1 iptables-nft -F FORWARD", "node2 iptables-nft -t mangle -F FORWARD"),
	trap("the tunnel carries no mark", "node1 iptables-nft -t mangle -A FORWARD -i cni0 -j MARK --set-mark 5",
		"node2 iptables-nft -A FORWARD -m mark --mark 5 -j DROP").overVXLAN(),
	lostAt("nobody reads from the socket", report.SegmentEndpointPod, endtoend.BacklogFull).overUDP().
		listening("udp unread").saying("the buffer of the socket"),
	unknownAt("one of 1000 connections is dropped", report.SegmentEndpointNode, "node2 iptables-nft -A FORWARD "+
		"-d 10.244.2.9 -m conntrack --ctstate NEW -m statistic --mode nth --every 1000 --packet 999 -j DROP").
		passing().saying("for about 0.1% of new connections"),
	unknownAt("a hundredth of the connections is dropped by chance", report.SegmentEndpointNode,
		"node2 iptables-nft -A FORWARD -d 10.244.2.9 -m conntrack --ctstate NEW "+
			"-m statistic --mode random --probability 0.01 -j DROP").passing().saying("for about 1% of new connections"),
	unknownAt("every third SYN is dropped", report.SegmentEndpointNode, "node2 nft add table ip m",
		"node2 nft add chain ip m p '{' type filter hook forward priority 0 ';' '}'",
		"node2 nft add rule ip m p ip daddr 10.244.2.9 ct state new numgen inc mod 3 2 drop").passing().
		saying("for about 33.3% of new connections"),
	unknownAt("the pod drops a tenth of what it sends", report.SegmentAnswer, "endpoint iptables-nft -A OUTPUT -p tcp "+
		"-m conntrack --ctstate ESTABLISHED -m statistic --mode nth --every 10 --packet 9 -j DROP").passing().
		saying("for about 10% of"),
	unknownAt("the other node drops a tenth of the tunnel's packets", report.SegmentNetwork, "node2 "+
		"iptables-nft -A INPUT -p udp --dport 8472 -m statistic --mode nth --every 10 --packet 9 -j DROP").
		passing().overVXLAN().saying("for about 10% of"),
	lostAt("one of two rules drops each connection", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node2 iptables-nft -A FORWARD -d 10.244.2.9 -m statistic --mode nth --every 2 --packet 0 -j DROP",
		"node2 iptables-nft -A FORWARD -d 10.244.2.9 -j DROP"),
	trap("the process listens by eth0 alone, and the route is by another interface",
		append(secondInterface("endpoint", "node2"),
			"endpoint ip route add 10.244.1.0/24 dev net1")...).listening("%eth0").inBoth(),
	unknownAt("the process listens by eth0 alone, which has no route", report.SegmentAnswer,
		append(secondInterface("endpoint", "node2"),
			"endpoint ip route replace default via 10.99.0.1 dev net1")...).listening("%eth0"),
	lostAnswer("the process listens by eth0 alone, which has no route at all",
		append(secondInterface("endpoint", "node2"), "endpoint ip route del default",
			"endpoint ip route add default via 10.99.0.1 dev net1")...).listening("%eth0").inIPv6(),
	unknownAt("the process listens by eth0 alone, for which there is a routing rule", report.SegmentAnswer,
		"endpoint ip rule add oif eth0 lookup 100", "endpoint ip route add blackhole default table 100").
		listening("%eth0"),
	unknownAt("the process listens by the link alone, and the route back is by the tunnel", report.SegmentAnswer).
		hostNetwork().overVXLAN().listening("%eth0"),
	trap("the process listens by the link alone").hostNetwork().listening("%eth0").inBoth(),
	trap("the process listens by the link alone").hostNetwork().overUDP().listening("%eth0"),
	lostAt("the client marks by DSCP, and the endpoint's node drops that", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, "client iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"node2 iptables-nft -A FORWARD -i eth0 -m dscp --dscp 4 -j DROP").inBoth(),
	unknownAt("the client marks by DSCP, and its node drops that", report.SegmentClientNode,
		"client iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"node1 iptables-nft -A FORWARD -i cni0 -m dscp --dscp 4 -j DROP").saying("TOS 0x10"),
	lostAt("the client marks by DSCP, and the endpoint's pod drops that", report.SegmentEndpointPod, endtoend.PodDrops,
		"client iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"endpoint iptables-nft -A INPUT -m dscp --dscp 4 -j DROP"),
	lostAt("node1 marks by DSCP, and node2 drops that", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node1 iptables-nft -t mangle -A POSTROUTING -o eth0 -j DSCP --set-dscp 4",
		"node2 iptables-nft -A FORWARD -i eth0 -m dscp --dscp 4 -j DROP"),
	lostAt("node1 marks by DSCP with nftables, and node2 drops that", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops,
		"node1 nft add table ip m", "node1 nft add chain ip m p '{' type filter hook postrouting priority 0 ';' '}'",
		"node1 nft add rule ip m p oifname eth0 ip dscp set 4",
		"node2 iptables-nft -A FORWARD -i eth0 -m dscp --dscp 4 -j DROP"),
	lostAnswer("the endpoint marks by DSCP, and its node drops that",
		"endpoint iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"node2 iptables-nft -A FORWARD -i cni0 -m dscp --dscp 4 -j DROP"),
	lostAnswer("the endpoint marks by DSCP, and the client's node drops that",
		"endpoint iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"node1 iptables-nft -A FORWARD -i eth0 -m dscp --dscp 4 -j DROP"),
	lostAnswer("node1 marks answers by DSCP, and the client drops that",
		"node1 iptables-nft -t mangle -A POSTROUTING -o cni0 -j DSCP --set-dscp 4",
		"client iptables-nft -A INPUT -m dscp --dscp 4 -j DROP"),
	lostAt("a routing rule by the client's TOS", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"client iptables-nft -t mangle -A OUTPUT -j TOS --set-tos 0x10", "node2 ip rule add tos 0x10 lookup 100",
		"node2 ip route add blackhole default table 100"),
	trap("the endpoint's node lets in what the client marks alone",
		"client iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"node2 iptables-nft -A FORWARD -i eth0 -m dscp ! --dscp 4 -j DROP").inBoth(),
	trap("node2 lets in what node1 marks alone",
		"node1 iptables-nft -t mangle -A POSTROUTING -o eth0 -j DSCP --set-dscp 4",
		"node2 iptables-nft -A FORWARD -i eth0 -m dscp ! --dscp 4 -j DROP"),
	trap("answers have not the mark of requests", "client iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"node2 iptables-nft -A FORWARD -i cni0 -m dscp --dscp 4 -j DROP"),
	lostAt("the tunnel has a TOS that the other node drops", report.SegmentNetwork, endtoend.TunnelDropped,
		append(tunnelAgain(1, "tos 0x10"), "node2 iptables-nft -A INPUT -p udp --dport 8472 -m dscp --dscp 4 -j DROP")...).
		overVXLAN().undoneBy(tunnelAgain(1, "")...),
	lostAt("a routing rule by the tunnel's TOS", report.SegmentNetwork, endtoend.TunnelDropped,
		append(tunnelAgain(1, "tos 0x10"), "node1 ip rule add tos 0x10 lookup 100",
			"node1 ip route add blackhole 192.168.50.0/24 table 100")...).overVXLAN().undoneBy(tunnelAgain(1, "")...),
	lostAt("the tunnel inherits the client's TOS, which the other node drops", report.SegmentNetwork,
		endtoend.TunnelDropped, append(tunnelAgain(1, "tos inherit"),
			"client iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
			"node2 iptables-nft -A INPUT -p udp --dport 8472 -m dscp --dscp 4 -j DROP")...).overVXLAN().
		undoneBy(tunnelAgain(1, "")...),
	trap("the other node lets in the tunnel's TOS alone", append(tunnelAgain(1, "tos 0x10"),
		"node2 iptables-nft -A INPUT -p udp --dport 8472 -m dscp ! --dscp 4 -j DROP")...).overVXLAN(),
	trap("the tunnel does not inherit the client's TOS", "client iptables-nft -t mangle -A OUTPUT -j DSCP --set-dscp 4",
		"node2 iptables-nft -A INPUT -p udp --dport 8472 -m dscp --dscp 4 -j DROP").overVXLAN(),
	trap("the client's pod has a table for its second interface, as the plugin sbr makes it",
		append(secondInterface("client", "node1"), "client ip rule add from 10.99.0.5 lookup 100",
			"client ip route add default via 10.99.0.1 dev net1 table 100")...),
	lostAt("the client's pod has a table for its own address, without a route", report.SegmentClientPod,
		endtoend.PodNoRoute, "client ip rule add from 10.244.1.5 lookup 100",
		"client ip route add blackhole default table 100"),
	lostAnswer("the socket takes over the mark of the SYN, for which there is a rule",
		"endpoint sysctl -qw net.ipv4.tcp_fwmark_accept=1",
		"endpoint iptables-nft -t mangle -A PREROUTING -p tcp -j MARK --set-mark 5",
		"endpoint ip route add blackhole default table 55", "endpoint ip rule add fwmark 5 to 10.244.1.0/24 lookup 55"),
	lostAnswer("the node's socket takes over the mark of the SYN",
		"node2 sysctl -qw net.ipv4.tcp_fwmark_accept=1",
		"node2 iptables-nft -t mangle -A PREROUTING -p tcp --dport 8080 -j MARK --set-mark 5",
		"node2 iptables-nft -A OUTPUT -m mark --mark 5 -j DROP").hostNetwork(),
	trap("no socket takes over the mark of the SYN",
		"endpoint iptables-nft -t mangle -A PREROUTING -p tcp -j MARK --set-mark 5",
		"endpoint ip route add blackhole default table 55", "endpoint ip rule add fwmark 5 to 10.244.1.0/24 lookup 55"),
	trap("the socket takes over a mark, for which alone there is a route",
		"endpoint sysctl -qw net.ipv4.tcp_fwmark_accept=1",
		"endpoint iptables-nft -t mangle -A PREROUTING -p tcp -j MARK --set-mark 5",
		"endpoint ip route add default via 10.244.2.1 dev eth0 table 55", "endpoint ip rule add fwmark 5 lookup 55",
		"endpoint ip route del default"),
	trap("the other node takes the tunnel's packets from unprivileged ports",
		"node2 iptables-nft -A INPUT -p udp --dport 8472 --sport 1024:65535 -j ACCEPT",
		"node2 iptables-nft -A INPUT -p udp --dport 8472 -j DROP").overVXLAN().inBoth(),
	trap("the other node takes the tunnel's packets from its own range of ports",
		append(tunnelAgain(1, "srcport 40000 41000"),
			"node2 iptables-nft -A INPUT -p udp --dport 8472 --sport 40000:41000 -j ACCEPT",
			"node2 iptables-nft -A INPUT -p udp --dport 8472 -j DROP")...).overVXLAN(),
	lostAt("the other node takes the tunnel's packets from other ports", report.SegmentNetwork, endtoend.TunnelDropped,
		append(tunnelAgain(1, "srcport 40000 41000"),
			"node2 iptables-nft -A INPUT -p udp --dport 8472 --sport 42000:65535 -j ACCEPT",
			"node2 iptables-nft -A INPUT -p udp --dport 8472 -j DROP")...).overVXLAN().
		undoneBy(tunnelAgain(1, "srcport 43000 44000")...),
	trap("requests and answers pass for unprivileged ports of clients", "node2 iptables-nft -P FORWARD DROP",
		"node2 iptables-nft -A FORWARD -p tcp -d 10.244.2.9 --dport 8080 --sport 1024:65535 -j ACCEPT",
		"node2 iptables-nft -A FORWARD -p tcp -s 10.244.2.9 --sport 8080 --dport 1024:65535 -j ACCEPT",
		"endpoint iptables-nft -A OUTPUT -p tcp ! --dport 1024:65535 -j DROP",
		"client iptables-nft -A INPUT -p tcp ! --dport 1024:65535 -j DROP",
		"client iptables-nft -A OUTPUT -p tcp ! --sport 1024:65535 -j DROP"),
	trap("requests pass for the client's range of ports, by nftables", "node2 nft add table ip m",
		"node2 nft add chain ip m p '{' type filter hook forward priority 0 ';' '}'",
		"node2 nft add rule ip m p ip daddr 10.244.2.9 tcp sport 0-1023 drop"),
	trap("the client has a range of ports of its own", "client echo 2000 3000 > /proc/sys/net/ipv4/ip_local_port_range",
		"node2 iptables-nft -A FORWARD -p tcp -d 10.244.2.9 ! --sport 2000:3000 -j DROP"),
	unknownAt("the client's ports are those of masquerading", report.SegmentEndpointNode,
		"node1 iptables-nft -t nat -A POSTROUTING -p tcp -d 10.244.2.9 -j MASQUERADE --to-ports 500-600",
		"node2 iptables-nft -A FORWARD -p tcp -d 10.244.2.9 ! --sport 1024:65535 -j DROP"),
	trap("healthy").overUDP().inBoth(),
	trap("the node's address is the source of its routes").hostNetwork().overUDP().inBoth(),
	trap("the process listens at the node's address").hostNetwork().overVXLAN().overUDP().inBoth().
		listening("192.168.50.2:8080"),
	trap("the process listens at the second address of the interface", "endpoint ip addr flush dev eth0",
		"endpoint ip addr add 10.244.2.100/24 dev eth0", "endpoint ip addr add 10.244.2.9/24 dev eth0",
		"endpoint ip route add default via 10.244.2.1").overUDP().listening("10.244.2.9:8080"),
	trap("the client is masqueraded, and the tunnel's interface is not on the way back",
		"node1 iptables-nft -t nat -A POSTROUTING -d 192.168.50.2 -j MASQUERADE").hostNetwork().overVXLAN().overUDP(),
}
