// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// smallPods are pods whose interfaces take less than those of the nodes.
var smallPods = []string{
	"client ip link set eth0 mtu 1300", "endpoint ip link set eth0 mtu 1300", "node1 ip link set vethpod mtu 1300",
	"node2 ip link set vethpod mtu 1300",
}

// silentUplinks are smaller links between the nodes, of which nobody tells: messages of either node about large packets
// are dropped.
func silentUplinks(do ...string) []string {
	return slices.Concat(smallUplinks, []string{
		"node1 iptables-nft -A OUTPUT -p icmp -j DROP", "node2 iptables-nft -A OUTPUT -p icmp -j DROP",
	}, do)
}

// sizeFaults are of how large packets are which the ends send, by their links, their routes, and what each tells the
// other one; and of how many nodes may forward them.
var sizeFaults = []fault{
	trap("pods are smaller than links that differ", append(slices.Clip(smallPods), "node2 ip link set eth0 mtu 1400")...),
	trap("pods are smaller than links that differ for answers", append(slices.Clip(smallPods),
		"node1 ip link set eth0 mtu 1400")...),
	trap("pods are smaller than a link that does not take all of the tunnel", append(slices.Clip(smallPods),
		"node1 ip link set eth0 mtu 1400", "node2 ip link set eth0 mtu 1400")...).overVXLAN(),
	{
		name: "pods are as large as a link, and larger than its other end", listen: ":8080", works: true, hangs: true,
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown, code: endtoend.LinkMTUDiffers, says: "1400",
		do: []string{"client ip link set eth0 gso_max_segs 1", "node2 ip link set eth0 mtu 1400"},
	},
	trap("the pods' routes take no more than the link", silentUplinks(
		"client ip route replace default via 10.244.1.1 mtu 1300",
		"endpoint ip route replace default via 10.244.2.1 mtu 1300")...),
	trap("the pods' routes announce no larger segments than the link takes", silentUplinks(
		"client ip route replace default via 10.244.1.1 advmss 1200",
		"endpoint ip route replace default via 10.244.2.1 advmss 1200")...),
	trap("the endpoint's route takes no more than the link", silentUplinks(
		"endpoint ip route replace default via 10.244.2.1 mtu 1300")...),
	trap("the client's route takes no more than the link, and the endpoint is told", silentUplinks(
		"client ip route replace default via 10.244.1.1 mtu 1300")...),
	tooLarge("the client's route takes no more than the link, and announces more", report.SegmentAnswer,
		slices.Concat(smallUplinks, []string{
			"client ip route replace default via 10.244.1.1 mtu lock 1300 advmss 1460",
			"node2 iptables-nft -A OUTPUT -p icmp -j DROP",
		})...).saying("node node2"),
	trap("rules of the endpoint's pod make segments smaller", silentUplinks(
		"endpoint iptables-nft -t mangle -A POSTROUTING -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1200",
		"endpoint iptables-nft -t mangle -A PREROUTING -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1200",
	)...),
	tooLarge("a rule makes segments smaller, and the link behind takes smaller ones still", report.SegmentAnswer,
		silentUplinks("node2 iptables-nft -t mangle -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN "+
			"-j TCPMSS --set-mss 1400")...).saying("node node2"),
	tooLarge("a rule of nft makes segments smaller, and the link behind takes smaller ones still", report.SegmentAnswer,
		silentUplinks("node2 nft add table ip m",
			"node2 nft add chain ip m f '{' type filter hook forward priority 0 ';' '}'",
			"node2 nft add rule ip m f tcp flags syn tcp option maxseg size set 1400")...).saying("node node2"),
	trap("a rule of nft makes segments small enough", silentUplinks(
		"node2 nft add table ip m", "node2 nft add chain ip m f '{' type filter hook forward priority 0 ';' '}'",
		"node2 nft add rule ip m f tcp flags syn tcp option maxseg size set 1200")...),
	trap("the client's pod raises a TTL of 1", "client sysctl -qw net.ipv4.ip_default_ttl=1",
		"client iptables-nft -t mangle -A POSTROUTING -j TTL --ttl-set 64"),
	trap("the client's pod raises a TTL of 1 by nftables", "client sysctl -qw net.ipv4.ip_default_ttl=1",
		"client nft add table ip m", "client nft add chain ip m p '{' type filter hook output priority 0 ';' '}'",
		"client nft add rule ip m p ip ttl set 64"),
	trap("the client's node raises a TTL of 2 as it sends", "client sysctl -qw net.ipv4.ip_default_ttl=2",
		"node1 iptables-nft -t mangle -A POSTROUTING -o eth0 -j TTL --ttl-set 64"),
	trap("the client's node raises a TTL of 1 before it forwards", "client sysctl -qw net.ipv4.ip_default_ttl=1",
		"node1 iptables-nft -t mangle -A PREROUTING -i cni0 -j TTL --ttl-inc 9"),
	trap("the endpoint's node raises a TTL of 1 of answers", "endpoint sysctl -qw net.ipv4.ip_default_ttl=1",
		"node2 iptables-nft -t mangle -A PREROUTING -i cni0 -j TTL --ttl-set 64"),
	trap("the client's node raises a TTL of 2 of answers", "endpoint sysctl -qw net.ipv4.ip_default_ttl=2",
		"node1 iptables-nft -t mangle -A PREROUTING -i eth0 -j TTL --ttl-set 64"),
	lostAt("the client's node raises a TTL of 1 behind where it forwards", report.SegmentNetwork,
		endtoend.EndpointNodeDrops, "client sysctl -qw net.ipv4.ip_default_ttl=1",
		"node1 iptables-nft -t mangle -A POSTROUTING -o eth0 -j TTL --ttl-set 64"),
	lostAt("the client's node raises a TTL by too little", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, "client sysctl -qw net.ipv4.ip_default_ttl=1",
		"node1 iptables-nft -t mangle -A PREROUTING -i cni0 -j TTL --ttl-inc 1"),
	lostAnswer("the client's node raises a TTL of 2 of answers behind where it forwards",
		"endpoint sysctl -qw net.ipv4.ip_default_ttl=2",
		"node1 iptables-nft -t mangle -A POSTROUTING -o cni0 -j TTL --ttl-set 64"),
}
