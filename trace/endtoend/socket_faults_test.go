// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// full is a fault of a socket whose queue is full and that takes the packets.
func full(name, sockets string) fault {
	return lostAt(name, report.SegmentEndpointPod, endtoend.BacklogFull).listening("sockets " + sockets)
}

// socketFaults are of several sockets at one port, and of their options. A list has them in the order in which they are
// bound.
var socketFaults = []fault{
	full("a full socket of IPv4 takes what one of IPv6 for the same address of IPv4 would serve",
		"::ffff:10.244.2.9 reuseport; 10.244.2.9 reuseport idle").saying("the queue of the socket"),
	trap("a socket of IPv6 for an address of IPv4 gets nothing where one of IPv4 has it").
		listening("sockets 10.244.2.9 reuseport; ::ffff:10.244.2.9 reuseport idle"),
	full("a full socket of IPv6 for the very address of IPv4 takes what one for all of IPv4 would serve",
		"0.0.0.0 reuseport; ::ffff:10.244.2.9 reuseport idle").saying("[::ffff:10.244.2.9]:8080"),
	full("a full socket that was bound last takes what one that is bound to the interface would serve",
		"0.0.0.0 reuseport %eth0; 0.0.0.0 reuseport idle").saying("0.0.0.0:8080 (2 of 1"),
	trap("a socket that is bound to the interface gets nothing where another one was bound last").
		listening("sockets 0.0.0.0 reuseport idle %eth0; 0.0.0.0 reuseport"),
	full("a full socket that is bound to the interface was bound last",
		"0.0.0.0 reuseport; 0.0.0.0 reuseport idle %eth0").saying("%eth0"),
	full("a queue for no more than one connection", "0.0.0.0 idle backlog0").saying("1 of 0"),
	trap("a queue for no more than one connection is empty").listening("sockets 0.0.0.0 backlog0"),
	lostAt("a socket of IPv6 alone", report.SegmentEndpointPod, endtoend.EndpointListensElse).
		listening("sockets :: v6only").saying("only for IPv6"),
	lostAt("a socket of UDP of IPv6 alone", report.SegmentEndpointPod, endtoend.EndpointListensElse).overUDP().
		listening("sockets :: v6only").saying("only for IPv6"),
	trap("sockets of IPv6 alone and of IPv4").listening("sockets :: v6only; 0.0.0.0"),
	full("a full socket of IPv4 beside one of IPv6 alone", "0.0.0.0 idle; :: v6only").saying("0.0.0.0:8080"),
	{
		name: "of two groups of IPv6 the first one's queue is full", only6: true, segment: report.SegmentEndpointPod,
		code: endtoend.BacklogFull, listen: "sockets :: reuseport idle %eth0; :: reuseport", says: "%eth0",
	},
	{
		name: "of two groups of IPv6 the second one's queue is full", only6: true, works: true,
		listen: "sockets :: reuseport; :: reuseport idle %eth0",
	},
}
