// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import "github.com/svcproxy/kubectl-svcproxy/trace/report"

// overUDP is a fault of a Service over UDP.
func (c fault) overUDP() fault {
	c.name, c.udp = "UDP: "+c.name, true
	return c
}

// inBoth is a fault that is made in IPv6, too.
func (c fault) inBoth() fault {
	c.six = true
	return c
}

// packetFaults are of what packets carry, and what sockets give them: sources, ports, marks, types of service.
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
