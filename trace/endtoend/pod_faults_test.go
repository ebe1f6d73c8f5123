// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// secondInterface is another interface of a pod, with a network of its own on its node.
func secondInterface(pod, node string) []string {
	return []string{
		node + " ip link add vethnet1 type veth peer name net1 netns @" + pod,
		node + " ip addr add 10.99.0.1/24 dev vethnet1", node + " ip link set vethnet1 up",
		pod + " ip addr add 10.99.0.5/24 dev net1", pod + " ip link set net1 up",
	}
}

// redirected are istio's rules of a pod, as istio-iptables writes them.
var redirected = []string{
	"endpoint iptables-nft -t nat -N ISTIO_INBOUND", "endpoint iptables-nft -t nat -N ISTIO_IN_REDIRECT",
	"endpoint iptables-nft -t nat -A PREROUTING -p tcp -j ISTIO_INBOUND",
	"endpoint iptables-nft -t nat -A ISTIO_INBOUND -p tcp -m tcp --dport 15090 -j RETURN",
	"endpoint iptables-nft -t nat -A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT",
	"endpoint iptables-nft -t nat -A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006",
}

const flannelMAC = "02:00:00:00:00:02"

// onNode is a fault of an endpoint that has its node's network namespace.
func (c fault) hostNetwork() fault {
	c.name, c.onNode = "host network: "+c.name, true
	return c
}

// listening is a fault with another listener.
func (c fault) listening(at string) fault {
	c.listen = at
	return c
}

func (c fault) saying(text string) fault {
	c.says = text
	return c
}

// podFaults are of the pods: their routes, neighbours, rules, interfaces and sockets.
var podFaults = []fault{
	lostAt("the queue of the pod's own address is full, and that of all addresses is not", report.SegmentEndpointPod,
		endtoend.BacklogFull).listening("full beside another"),
	{
		name: "the node's end of the pod's interface takes less than the bridge sends", listen: ":8080", works: true,
		hangs: true, segment: report.SegmentEndpointNode, code: endtoend.LinkMTUDiffers, verdict: report.SegmentUnknown,
		// A bridge whose MTU somebody has set keeps it (br_mtu_auto_adjust in net/bridge/br_if.c).
		says: "1300", do: []string{
			"client ip link set eth0 gso_max_segs 1", "node2 ip link set cni0 mtu 1499", "node2 ip link set vethpod mtu 1300",
		},
	},
	{
		name: "the node's end of the pod's interface takes less than the pod sends", listen: ":8080", works: true,
		hangs: true, segment: report.SegmentAnswer, code: endtoend.LinkMTUDiffers, verdict: report.SegmentUnknown,
		says: "1300", do: []string{
			"endpoint ip link set eth0 gso_max_segs 1", "node2 ip link set vethpod mtu 1300",
		},
	},
	unknownAt("the client's pod has a gateway that is nobody", report.SegmentClientPod,
		"client ip route replace default via 10.244.1.77").saying("10.244.1.77"),
	lostAt("the client's pod has a wrong neighbour for its gateway", report.SegmentClientPod,
		endtoend.EndToEndWrongNeighbour, "node1 sysctl -qw net.bridge.bridge-nf-call-iptables=0",
		"client ip neigh replace 10.244.1.1 lladdr 02:00:00:00:99:99 dev eth0 nud permanent").saying("02:00:00:00:99:99"),
	// Where a frame's packet is translated on the bridge, it is the bridge's own (br_nf_pre_routing_finish).
	trap("the client's pod has a wrong neighbour for its gateway, and br_netfilter translates",
		"node1 sysctl -qw net.bridge.bridge-nf-call-iptables=1",
		"client ip neigh replace 10.244.1.1 lladdr 02:00:00:00:99:99 dev eth0 nud permanent"),
	lostAt("a rule of nftables in the client's pod", report.SegmentClientPod, endtoend.PodDrops,
		"client nft add table inet guard",
		"client nft add chain inet guard out '{' type filter hook output priority 0 ';' '}'",
		"client nft add rule inet guard out ip daddr 10.96.0.10 tcp dport 80 drop"),
	unknownAt("the client's pod sends by another interface, from its address there", report.SegmentClientPod,
		append(secondInterface("client", "node1"), "client ip route replace default via 10.99.0.1 dev net1")...,
	).saying("10.99.0.5"),
	trap("the client's pod has a second interface", secondInterface("client", "node1")...),
	trap("the endpoint's pod has a second interface", secondInterface("endpoint", "node2")...),
	lostAnswer("the endpoint's pod answers by a second interface that leads nowhere",
		append(secondInterface("endpoint", "node2"), "endpoint ip route add 10.244.1.0/24 via 10.99.0.77 dev net1")...,
	).saying("10.99.0.77"),
	trap("the endpoint's pod answers by a second interface", append(secondInterface("endpoint", "node2"),
		"node2 sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.vethnet1.rp_filter=0",
		"endpoint ip route add 10.244.1.0/24 via 10.99.0.1 dev net1")...),
	lostAnswer("the endpoint's pod answers by a second interface, where the node filters strictly",
		append(secondInterface("endpoint", "node2"), "node2 sysctl -qw net.ipv4.conf.vethnet1.rp_filter=1",
			"endpoint ip route add 10.244.1.0/24 via 10.99.0.1 dev net1")...),
	lostAt("the endpoint's pod filters strictly, and has its route to the client by a second interface",
		report.SegmentEndpointPod, endtoend.PodDrops, append(secondInterface("endpoint", "node2"),
			"endpoint sysctl -qw net.ipv4.conf.eth0.rp_filter=1",
			"endpoint ip route add 10.244.1.0/24 via 10.99.0.1 dev net1")...),
	unknownAt("the endpoint's pod has a gateway that is nobody", report.SegmentAnswer,
		"endpoint ip route replace default via 10.244.2.77").saying("10.244.2.77"),
	{
		name: "the endpoint's pod has a wrong neighbour for its gateway", listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndWrongNeighbour,
		do:   []string{"endpoint ip neigh replace 10.244.2.1 lladdr 02:00:00:00:99:99 dev eth0 nud permanent"},
		says: "02:00:00:00:99:99",
	},
	lostAt("the process listens by another interface alone", report.SegmentEndpointPod, endtoend.EndpointListensElse,
		secondInterface("endpoint", "node2")...).listening("%net1"),
	lostAt("the process listens over UDP alone", report.SegmentEndpointPod, endtoend.EndpointNotListening).
		listening("udp"),
	lostAt("the process's container is paused", report.SegmentEndpointPod, endtoend.ProcessStopped).listening("frozen").
		answeringNothing().
		saying("frozen"),
	lostAt("the process is stopped", report.SegmentEndpointPod, endtoend.ProcessStopped).listening("stopped").
		answeringNothing(),
	unknownAt("a proxy of istio takes the connections, and listens", report.SegmentEndpointPod,
		redirected...).saying("(istio)").passing().listening(":15006"),
	lostAt("a proxy of istio takes the connections, and does not listen", report.SegmentEndpointPod,
		endtoend.EndpointNotListening, redirected...).saying("15006"),
	unknownAt("a proxy of istio takes what the client's pod sends", report.SegmentClientPod,
		"client iptables-nft -t nat -N ISTIO_OUTPUT", "client iptables-nft -t nat -N ISTIO_REDIRECT",
		"client iptables-nft -t nat -A OUTPUT -p tcp -j ISTIO_OUTPUT",
		"client iptables-nft -t nat -A ISTIO_OUTPUT -o lo -s 127.0.0.6/32 -j RETURN",
		"client iptables-nft -t nat -A ISTIO_OUTPUT -j ISTIO_REDIRECT",
		"client iptables-nft -t nat -A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001").saying("(istio)"),
	lostAt("the pod's rule rejects, by nftables", report.SegmentEndpointPod, endtoend.PodDrops,
		"endpoint nft add table inet guard",
		"endpoint nft add chain inet guard in '{' type filter hook input priority 0 ';' policy drop ';' '}'",
		"endpoint nft add rule inet guard in ct state established accept",
		"endpoint nft add rule inet guard in tcp dport 9090 accept",
		"endpoint nft add rule inet guard in icmp type echo-request accept"),

	fault{name: "healthy", listen: ":8080", works: true}.hostNetwork(),
	lostAt("nothing listens", report.SegmentEndpointPod, endtoend.EndpointNotListening).hostNetwork().listening(""),
	lostAt("listens on 127.0.0.1", report.SegmentEndpointPod, endtoend.EndpointListensElse).hostNetwork().
		listening("127.0.0.1:8080"),
	lostAt("the node's INPUT drops, as firewalld does", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node2 nft add table inet firewalld",
		"node2 nft add chain inet firewalld filter_INPUT '{' type filter hook input priority 10 ';' '}'",
		"node2 nft add rule inet firewalld filter_INPUT ct state established,related accept",
		"node2 nft add rule inet firewalld filter_INPUT iifname lo accept",
		"node2 nft add rule inet firewalld filter_INPUT tcp dport 22 accept",
		"node2 nft add rule inet firewalld filter_INPUT reject with icmpx admin-prohibited").hostNetwork().
		saying("firewalld"),
	lostAnswer("the node's OUTPUT drops the answer",
		"node2 iptables-nft -A OUTPUT -p tcp --sport 8080 -j DROP").hostNetwork(),
	lostAt("the reverse path filter", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node2 ip route replace 10.244.1.0/24 via 192.168.61.2", "node2 sysctl -qw net.ipv4.conf.eth0.rp_filter=1",
	).hostNetwork(),
}

// passing is a fault of which small packets come through all the same.
func (c fault) passing() fault {
	c.works = true
	return c
}

// answeringNothing is a fault of which connections are accepted, and nothing is answered.
func (c fault) answeringNothing() fault {
	c.silent = true
	return c
}

// vxlanFault is a fault of the VXLAN between the nodes.
func (c fault) overVXLAN() fault {
	c.name, c.vxlan = "VXLAN: "+c.name, true
	return c
}

// hanging is a fault of which large packets do not come through.
func (c fault) hanging() fault {
	c.hangs = true
	return c
}

// resending is a fault that loses several segments which are sent as one: alone, again, they come through, and a busy
// machine has been seen to bring all of them through so.
func (c fault) resending() fault {
	c.resends = true
	return c
}

// inIPv6 is a fault that is none in IPv4.
func (c fault) inIPv6() fault {
	c.only6 = true
	return c
}

// repairedBy says how a fault is taken back.
func (c fault) repairedBy(lines ...string) fault {
	c.undo = lines
	return c
}

// learning are the lines that make a VXLAN that floods and learns: without neighbours and entries but that for all
// frames.
func learning(to string) []string {
	return []string{
		"node1 ip link set flannel.1 type vxlan learning", "node2 ip link set flannel.1 type vxlan learning",
		"node1 ip addr add 10.245.0.1/24 dev flannel.1", "node2 ip addr add 10.245.0.2/24 dev flannel.1",
		"node1 bridge fdb del " + flannelMAC + " dev flannel.1", "node2 bridge fdb del 02:00:00:00:00:01 dev flannel.1",
		"node1 bridge fdb append 00:00:00:00:00:00 dev flannel.1 dst " + to,
		"node2 bridge fdb append 00:00:00:00:00:00 dev flannel.1 dst 192.168.50.1",
		"node1 ip route replace 10.244.2.0/24 via 10.245.0.2", "node2 ip route replace 10.244.1.0/24 via 10.245.0.1",
	}
}

// learns takes the lines of learning back.
var learns = []string{
	"node1 bridge fdb del 00:00:00:00:00:00 dev flannel.1", "node1 bridge fdb append 00:00:00:00:00:00 dev flannel.1 " +
		"dst 192.168.50.2",
}

// dualVXLAN are the lines that make interfaces of VXLAN over IPv6 besides (pkg/backend/vxlan/device.go of flannel).
var dualVXLAN = []string{
	"node1 ip link add flannel-v6.1 address 02:00:00:06:00:01 type vxlan id 1 local fd00:50::1 dstport 8472 nolearning",
	"node2 ip link add flannel-v6.1 address 02:00:00:06:00:02 type vxlan id 1 local fd00:50::2 dstport 8472 nolearning",
	"node1 ip link set flannel-v6.1 up", "node2 ip link set flannel-v6.1 up",
}

// tunnelAgain makes a node's end of the tunnel again, with other options.
func tunnelAgain(own int, options string) []string {
	return onNode(own, "ip link del flannel.1",
		"ip link add flannel.1 mtu 1430 address 02:00:00:00:00:0OWN type vxlan id 1 local 192.168.50.OWN dstport 8472 "+
			"nolearning "+options,
		"ip addr add 10.244.OWN.0/32 dev flannel.1", "ip link set flannel.1 up",
		"ip route add 10.244.PEER.0/24 via 10.244.PEER.0 dev flannel.1 onlink",
		"ip neigh replace 10.244.PEER.0 lladdr 02:00:00:00:00:0PEER dev flannel.1 nud permanent",
		"bridge fdb add 02:00:00:00:00:0PEER dev flannel.1 dst 192.168.50.PEER")
}

// vxlanFaults are of the VXLAN between the nodes, and of the network below it.
var vxlanFaults = []fault{
	lostAt("VXLAN over IPv6 sends no checksum, and the other end wants one", report.SegmentNetwork,
		endtoend.TunnelPeerMissing, tunnelAgain(1, "udp6zerocsumtx")...).saying("udp6zerocsumrx").overVXLAN().inIPv6(),
	trap("VXLAN over IPv6 without checksums at both ends", append(tunnelAgain(1, "udp6zerocsumtx udp6zerocsumrx"),
		tunnelAgain(2, "udp6zerocsumtx udp6zerocsumrx")...)...).overVXLAN().inIPv6(),
	trap("VXLAN over IPv4 without checksums, of IPv6 at one end",
		tunnelAgain(1, "udp6zerocsumtx noudpcsum")...).overVXLAN(),
	trap("one over IPv6 has the same network and port, as flannel makes it", dualVXLAN...).overVXLAN(),
	lostAt("the other end is over IPv6 alone", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		append(dualVXLAN, "node2 ip link del flannel.1")...).saying("over IPv4").overVXLAN().
		repairedBy(tunnelAgain(2, "")[1:]...),
	lostAt("VXLAN leaves checksums inside to the other end, which does not take such", report.SegmentNetwork,
		endtoend.TunnelPeerMissing, tunnelAgain(1, "remcsumtx")...).saying("remcsumrx").overVXLAN().
		repairedBy(tunnelAgain(1, "")...),
	unknownAt("VXLAN leaves checksums inside to the other end, which takes such, if they are small",
		report.SegmentNetwork, append(tunnelAgain(1, "remcsumtx"), tunnelAgain(2, "remcsumrx")...)...).
		passing().hanging().resending().saying("remcsumtx").overVXLAN().
		repairedBy(append(tunnelAgain(1, ""), tunnelAgain(2, "")...)...),
	trap("floods and learns", learning("192.168.50.2")...).overVXLAN(),
	unknownAt("floods, and not to the endpoint's node", report.SegmentNetwork, learning("192.168.50.77")...).
		overVXLAN().repairedBy(learns...),
	lostAt("floods, and has no entry for all frames", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		append(learning("192.168.50.2"), "node1 bridge fdb del 00:00:00:00:00:00 dev flannel.1 dst 192.168.50.2")...).
		overVXLAN().repairedBy(learns[1]),
	lostAt("the peer is the client's node itself", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		"node1 bridge fdb replace "+flannelMAC+" dev flannel.1 dst 192.168.50.1").saying("node1").
		overVXLAN().repairedBy("node1 bridge fdb replace " + flannelMAC + " dev flannel.1 dst 192.168.50.2"),
	lostAt("a neighbour of which the table has no entry", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		"node1 ip neigh replace 10.244.2.0 lladdr 02:00:00:00:99:99 dev flannel.1 nud permanent").
		overVXLAN().repairedBy("node1 ip neigh replace 10.244.2.0 lladdr " + flannelMAC + " dev flannel.1 nud permanent"),
	lostAt("a neighbour and an entry for frames that nobody takes", report.SegmentNetwork,
		endtoend.EndToEndWrongNeighbour,
		"node1 ip neigh replace 10.244.2.0 lladdr 02:00:00:00:99:99 dev flannel.1 nud permanent",
		"node1 bridge fdb add 02:00:00:00:99:99 dev flannel.1 dst 192.168.50.2").
		overVXLAN().repairedBy("node1 ip neigh replace 10.244.2.0 lladdr " + flannelMAC + " dev flannel.1 nud permanent"),
	{
		name: "VXLAN: the client's node drops the answer's outer packets", vxlan: true, listen: ":8080",
		segment: report.SegmentAnswer, code: endtoend.TunnelDropped, says: "192.168.50.1 port 8472/UDP on node1",
		do: []string{"node1 iptables-nft -A INPUT -p udp --dport 8472 -j DROP"},
	},
	{
		name: "VXLAN: the endpoint's node drops the answer's outer packets", vxlan: true, listen: ":8080",
		segment: report.SegmentAnswer, code: endtoend.TunnelDropped, says: "on node2",
		do: []string{"node2 iptables-nft -A OUTPUT -p udp --dport 8472 -j DROP"},
	},
	lostAt("the endpoint's node rejects the outer packets, as ufw does", report.SegmentNetwork, endtoend.TunnelDropped,
		"node2 iptables-nft -N ufw-before-input", "node2 iptables-nft -N ufw-reject-input",
		"node2 iptables-nft -A INPUT -j ufw-before-input", "node2 iptables-nft -A INPUT -j ufw-reject-input",
		"node2 iptables-nft -A ufw-before-input -i lo -j ACCEPT",
		"node2 iptables-nft -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		"node2 iptables-nft -A ufw-before-input -p tcp -m tcp --dport 22 -j ACCEPT",
		"node2 iptables-nft -A ufw-reject-input -j REJECT").saying("ufw").overVXLAN(),
	lostAt("the endpoint's node drops the outer packets before they are tracked", report.SegmentNetwork,
		endtoend.TunnelDropped, "node2 iptables-nft -t raw -A PREROUTING -p udp --dport 8472 -j DROP").overVXLAN(),
	// The node does not even answer ARP (arp_process asks for the route).
	lostAt("the reverse path filter drops the outer packets", report.SegmentNetwork, endtoend.TunnelDropped,
		"node2 ip route add 192.168.50.1/32 via 192.168.61.2", "node2 sysctl -qw net.ipv4.conf.eth0.rp_filter=1").
		saying("dropped for its source by the reverse path filter").overVXLAN(),
	lostAt("a wrong neighbour below the tunnel", report.SegmentNetwork, endtoend.EndToEndWrongNeighbour,
		"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:99:99 dev eth0 nud permanent").overVXLAN(),
	lostAt("a route to the other node that refuses", report.SegmentNetwork, endtoend.TunnelDropped,
		"node1 ip route add blackhole 192.168.50.2/32").overVXLAN(),
	unknownAt("the tunnel's packets are larger than those of the link, and go in fragments", report.SegmentNetwork,
		"node1 ip link set eth0 mtu 1400", "node2 ip link set eth0 mtu 1400").
		overVXLAN().passing().coded(endtoend.LinkMTUDiffers),
	trap("a TTL of 1 is enough for a neighbour", "node1 ip link set flannel.1 type vxlan ttl 1").overVXLAN(),
	trap("the tunnel's packets are not tracked", "node2 iptables-nft -t raw -A PREROUTING -p udp --dport 8472 -j NOTRACK",
		"node2 iptables-nft -t raw -A OUTPUT -p udp --dport 8472 -j NOTRACK").overVXLAN(),
	trap("nodes let in the tunnel's packets of one another alone", slices.Concat(onlyFrom("node2", "192.168.50.1"),
		onlyFrom("node1", "192.168.50.2"))...).overVXLAN(),
	lostAt("the endpoint's node lets in the tunnel's packets of others alone", report.SegmentNetwork,
		endtoend.TunnelDropped, onlyFrom("node2", "192.168.50.77")...).overVXLAN(),
	{
		name: "the other node's link is down", listen: ":8080", segment: report.SegmentNetwork, code: "NoCarrier",
		do: []string{"node2 ip link set eth0 down"}, says: "NO-CARRIER",
	},
	lostAt("an entry of the tunnel's table has another port", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		"node1 bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.168.50.2 port 9999").saying("9999").overVXLAN(),
	lostAt("an entry of the tunnel's table has another network", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		"node1 bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.168.50.2 vni 77").saying("77").overVXLAN(),
	lostAt("the tunnel's source is not an address of the node", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		"node1 ip link set flannel.1 type vxlan local 192.168.50.77").saying("192.168.50.77").overVXLAN().
		undoneBy("node1 ip link set flannel.1 type vxlan local 192.168.50.1"),
	lostAnswer("the client's node has a wrong neighbour for the client's pod",
		"node1 ip neigh replace 10.244.1.5 lladdr 02:00:00:00:99:99 dev cni0 nud permanent").
		coded(endtoend.EndToEndWrongNeighbour),
}

// onlyFrom has a node let in the tunnel's packets of one address alone.
func onlyFrom(node, from string) []string {
	return []string{
		node + " iptables-nft -A INPUT -p udp -m udp --dport 8472 ! -s " + from + " -j DROP",
	}
}

// undoneBy is a fault with lines that take it back.
func (c fault) undoneBy(lines ...string) fault {
	c.undo = lines
	return c
}

// coded is a fault with a code.
func (c fault) coded(code string) fault {
	c.code = code
	return c
}
