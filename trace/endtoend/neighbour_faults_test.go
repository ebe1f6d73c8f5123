// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// forgetting is a fault whose neighbours are forgotten before it is read, as where nothing has been sent for a while.
func (c fault) forgetting() fault {
	c.name, c.forgets = c.name+", and nobody has asked", true
	return c
}

// blocked is a fault by which a link-layer address is not found.
func blocked(name, segment string, do ...string) fault {
	return lostAt(name, segment, endtoend.NeighbourBlocked, do...)
}

// droppingAt are the lines of a chain of nftables that drops, in a table of a family, before or behind its hook.
func droppingAt(at, family, hook, rule string) []string {
	chain := at + " nft add chain " + family + " guard c '{' type filter hook " + hook + " priority 0 ';' '}'"
	return []string{
		at + " nft add table " + family + " guard", chain, at + " nft add rule " + family + " guard c " + rule + " drop",
	}
}

// allButICMPv6 is a firewall that lets in connections to a port alone.
func allButICMPv6(at, port string) []string {
	return []string{
		at + " ip6tables-nft -P INPUT DROP",
		at + " ip6tables-nft -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		at + " ip6tables-nft -A INPUT -p tcp --dport " + port + " -j ACCEPT",
	}
}

// withND lets in neighbour discovery, too.
func withND(lines []string, at string) []string {
	return append(lines, at+" ip6tables-nft -A INPUT -p ipv6-icmp --icmpv6-type 135 -m hl --hl-eq 255 -j ACCEPT",
		at+" ip6tables-nft -A INPUT -p ipv6-icmp --icmpv6-type 136 -m hl --hl-eq 255 -j ACCEPT")
}

// neighbourFaults are of how link-layer addresses are found: rules that drop ARP and neighbour discovery, and
// interfaces that cannot ask.
var neighbourFaults = []fault{
	blocked("the pod's firewall lets in no ICMPv6", report.SegmentEndpointNode, allButICMPv6("endpoint", "8080")...).
		inIPv6(),
	blocked("the pod's firewall lets in no ICMPv6 at all", report.SegmentEndpointNode,
		allButICMPv6("endpoint", "8080")...).inIPv6().forgetting(),
	blocked("the client's firewall lets in no ICMPv6", report.SegmentClientPod, allButICMPv6("client", "9")...).
		inIPv6().forgetting(),
	blocked("the pod sends no ICMPv6", report.SegmentEndpointNode,
		"endpoint ip6tables-nft -A OUTPUT -p ipv6-icmp -j DROP").inIPv6().forgetting(),
	blocked("the endpoint's node lets in no ICMPv6", report.SegmentNetwork,
		"node2 ip6tables-nft -A INPUT -p ipv6-icmp -j DROP").inIPv6().forgetting(),
	blocked("the endpoint's node drops ICMPv6 before it is tracked", report.SegmentNetwork,
		"node2 ip6tables-nft -t raw -A PREROUTING -p ipv6-icmp -j DROP").inIPv6().forgetting(),
	blocked("the endpoint's node lets in no ICMPv6 below the tunnel", report.SegmentNetwork,
		"node2 ip6tables-nft -A INPUT -i eth0 -p ipv6-icmp -j DROP").inIPv6().overVXLAN().forgetting(),
	blocked("the client's node lets in no ICMPv6 of pods", report.SegmentClientPod,
		"node1 ip6tables-nft -A INPUT -i cni0 -p ipv6-icmp -j DROP").inIPv6().forgetting(),
	blocked("the endpoint's node lets in no questions of pods by IPv6", report.SegmentAnswer,
		"node2 ip6tables-nft -A INPUT -i cni0 -p ipv6-icmp --icmpv6-type 135 -j DROP").inIPv6().forgetting(),
	blocked("the pod answers no ARP", report.SegmentEndpointNode, droppingAt("endpoint", "arp", "input", "")...),
	blocked("the pod answers no ARP at all", report.SegmentEndpointNode, droppingAt("endpoint", "arp", "input", "")...).
		forgetting(),
	blocked("the endpoint's node answers no ARP of the link", report.SegmentNetwork,
		droppingAt("node2", "arp", "input", "iifname eth0")...).forgetting(),
	blocked("the client's node answers no ARP", report.SegmentClientPod,
		droppingAt("node1", "arp", "output", "oifname cni0 arp operation reply")...).forgetting(),
	blocked("the bridge drops ARP of the pod", report.SegmentEndpointNode,
		droppingAt("node2", "bridge", "prerouting", "iifname vethpod ether type arp")...).forgetting(),
	blocked("the node does not answer for others by ARP", report.SegmentAnswer,
		droppingAt("node2", "arp", "input", "iifname vethpod arp daddr ip 169.254.1.1")...).routedTo().forgetting(),
	trap("the pod learns its gateway from the node's own question",
		droppingAt("node2", "arp", "input", "iifname cni0 arp operation request")...).forgetting(),
	blocked("the bridge has no link-local address", report.SegmentEndpointNode,
		"node2 ip -6 addr flush dev cni0 scope link").inIPv6().forgetting(),
	blocked("the client's node has no link-local address on the link", report.SegmentNetwork,
		"node1 ip -6 addr flush dev eth0 scope link").inIPv6().forgetting(),
	trap("below a tunnel no link-local address is needed", "node1 ip -6 addr flush dev eth0 scope link").
		inIPv6().overVXLAN().forgetting(),
	trap("a pod without a link-local address", "client ip -6 addr flush dev eth0 scope link",
		"endpoint ip -6 addr flush dev eth0 scope link").inIPv6().forgetting(),
	trap("firewalls let in neighbour discovery and the port", append(withND(allButICMPv6("endpoint", "8080"), "endpoint"),
		withND(allButICMPv6("node2", "22"), "node2")...)...).inIPv6().forgetting(),
	trap("a firewall without ICMPv6, with entries that were set", append(allButICMPv6("endpoint", "8080"),
		"endpoint ip link set eth0 address 02:00:00:00:02:09", "node2 ip link set cni0 address 02:00:00:00:02:01",
		"node2 ip neigh replace 10.244.2.9 lladdr 02:00:00:00:02:09 dev cni0 nud permanent",
		"endpoint ip neigh replace 10.244.2.1 lladdr 02:00:00:00:02:01 dev eth0 nud permanent")...).inIPv6(),
	trap("the node learns the other end of the tunnel from its question",
		"node1 ip6tables-nft -A INPUT -i eth0 -p ipv6-icmp --icmpv6-type 135 -j DROP").
		inIPv6().overVXLAN().forgetting(),
	trap("the client's node answers no ARP of the other node, which learns its address from its question",
		droppingAt("node1", "arp", "input", "iifname eth0 arp operation request")...).forgetting(),
	blocked("the endpoint's node asks for no neighbour among its pods", report.SegmentEndpointNode,
		"node2 sysctl -qw net.ipv4.neigh.cni0.mcast_solicit=0").forgetting().saying("mcast_solicit=0"),
	blocked("the client's node asks for no neighbour on the link", report.SegmentNetwork,
		"node1 sysctl -qw net.ipv6.neigh.eth0.mcast_solicit=0").inIPv6().forgetting(),
	blocked("the client asks for no neighbour", report.SegmentClientPod,
		"client sysctl -qw net.ipv4.neigh.eth0.mcast_solicit=0").forgetting(),
	trap("the endpoint's pod asks for no neighbour, and is asked by its node",
		"endpoint sysctl -qw net.ipv4.neigh.eth0.mcast_solicit=0").forgetting(),
	trap("a node that asks for no neighbour of another family",
		"node2 sysctl -qw net.ipv6.neigh.cni0.mcast_solicit=0").forgetting(),
	trap("neighbours are not known yet").inBoth().forgetting(),
	trap("neighbours are not known yet").overVXLAN().inBoth().forgetting(),
}
