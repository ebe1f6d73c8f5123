// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// inBoth is a fault that is made in IPv6, too.
func (c fault) inBoth() fault {
	c.six = true
	return c
}

// calico6 puts the endpoint's pod behind a route of its own, with a link-local address for its gateway, as Calico sets
// it up: the node's end of the pair has fe80::ecee:eeff:feee:eeee.
func calico6(gateway string) []string {
	return []string{
		"node2 ip link set vethpod nomaster", "node2 ip link del cni0",
		"node2 ip addr add fe80::ecee:eeff:feee:eeee/64 dev vethpod nodad",
		"node2 ip -6 route add fd00:244:2::9/128 dev vethpod", "endpoint ip addr flush dev eth0",
		"endpoint ip addr add fe80::9/64 dev eth0 nodad", "endpoint ip -6 addr add fd00:244:2::9/128 dev eth0 nodad",
		"endpoint ip -6 route replace default via " + gateway + " dev eth0 onlink",
	}
}

// otherMAC gives an interface a link-layer address, and a neighbour that one. It is no bridge's: those have the lowest
// one of their ports (br_stp_recalculate_bridge_id in net/bridge/br_stp_if.c).
func otherMAC(at, dev, asker, address, by string) []string {
	const mac = "fe:00:00:00:61:01"
	return []string{
		at + " ip link set " + dev + " address " + mac,
		asker + " ip neigh replace " + address + " lladdr " + mac + " dev " + by + " nud permanent",
	}
}

// Interfaces of the endpoint's node as ports of a bridge, which have packets come in by it: the uplink, which keeps its
// address, and the tunnel. ARP does not work by the first.
var (
	uplinkInBridge = []string{
		"node1 ip link set eth0 address 02:00:00:00:50:01", "node2 ip link set eth0 address 02:00:00:00:50:02",
		"node2 ip link add br0 type bridge", "node2 ip link set br0 up", "node2 ip link set eth0 master br0",
		"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:50:02 dev eth0 nud permanent",
		"node2 ip neigh replace 192.168.50.1 lladdr 02:00:00:00:50:01 dev eth0 nud permanent",
	}
	tunnelInBridge = []string{
		"node2 ip link add brx type bridge", "node2 ip link set brx up", "node2 ip link set flannel.1 master brx",
	}
)

func inBridge(of []string, do ...string) []string { return append(slices.Clip(of), do...) }

// otherPort is another port of the bridge of the endpoint's pod, whose link-layer address is known.
var otherPort = []string{
	"node2 ip link add dumv type veth peer name dumw", "node2 ip link set dumv master cni0 up",
	"node2 ip link set dumw up", "endpoint ip link set eth0 address 02:00:00:00:02:09", "node2 ip neigh flush dev cni0",
}

// evpn has the endpoint's node send by a bridge whose port the tunnel is, as with EVPN.
var evpn = []string{
	"node2 ip link add brx address 02:00:00:00:00:02 type bridge", "node2 ip addr del 10.244.2.0/32 dev flannel.1",
	"node2 ip link set flannel.1 master brx", "node2 ip link set flannel.1 address 02:00:00:00:00:52",
	"node2 ip link set brx up", "node2 ip addr add 10.244.2.0/32 dev brx",
	"node2 ip route replace 10.244.1.0/24 via 10.244.1.0 dev brx onlink",
	"node2 ip neigh replace 10.244.1.0 lladdr 02:00:00:00:00:01 dev brx nud permanent",
	"node2 bridge fdb add 02:00:00:00:00:01 dev flannel.1 master static",
}

// sameMAC gives both ends of the tunnel one link-layer address.
var sameMAC = []string{
	"node2 ip link set flannel.1 down", "node2 ip link set flannel.1 address 02:00:00:00:00:01",
	"node2 ip link set flannel.1 up",
	"node1 ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent",
	"node1 bridge fdb add 02:00:00:00:00:01 dev flannel.1 dst 192.168.50.2",
	"node2 ip route replace 10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink",
	"node2 ip neigh replace 10.244.1.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent",
	"node2 bridge fdb replace 02:00:00:00:00:01 dev flannel.1 dst 192.168.50.1",
}

// clientBridge has the client's pod send by a bridge whose port its interface is.
var clientBridge = []string{
	"client ip link add k6t type bridge", "client ip addr flush dev eth0", "client ip link set eth0 master k6t",
	"client ip addr add 10.244.1.5/24 dev k6t", "client ip link set k6t up", "node1 ip neigh flush dev cni0",
}

// clientAgain takes clientBridge back.
var clientAgain = []string{
	"client ip link del k6t", "client ip addr add 10.244.1.5/24 dev eth0", "client ip route add default via 10.244.1.1",
	"node1 ip neigh flush nud all dev cni0",
}

// linkFaults are of link-layer addresses: who has them and answers for them, and which interface frames for them come
// to.
var linkFaults = []fault{
	unknownAt("the pod's gateway is a link-local address that nobody has", report.SegmentAnswer,
		"endpoint ip -6 route replace default via fe80::1 dev eth0").saying("behind the bridge cni0").inIPv6(),
	unknownAt("the client's gateway is a link-local address that nobody has", report.SegmentClientPod,
		"client ip -6 route replace default via fe80::1 dev eth0").saying("behind the bridge cni0").inIPv6(),
	unknownAt("the pod's gateway is an address of another interface of the node", report.SegmentAnswer,
		"endpoint ip -6 route replace default via fd00:61::1 dev eth0 onlink").saying("node2 on cni0").inIPv6(),
	trap("the pod's gateway is a link-local address of the bridge", "node2 ip addr add fe80::1/64 dev cni0 nodad",
		"endpoint ip -6 route replace default via fe80::1 dev eth0").inIPv6(),
	lostAnswer("Calico's gateway for IPv6 is not the address of the pod's interface",
		calico6("fe80::ecee:eeff:feee:eee0")...).saying("fe80::ecee:eeff:feee:eee0").inIPv6(),
	lostAnswer("the pod of Calico has an address of another interface for its gateway", calico6("fd00:61::1")...).
		saying("node2 on vethpod").inIPv6(),
	trap("Calico's gateway for IPv6", calico6("fe80::ecee:eeff:feee:eeee")...).inIPv6(),
	trap("the node answers for the pod's gateway in IPv6, too", append(calico6("fd00:244:2::1"),
		"node2 sysctl -qw net.ipv6.conf.vethpod.proxy_ndp=1 net.ipv6.neigh.vethpod.proxy_delay=0",
		"node2 ip -6 neigh add proxy fd00:244:2::1 dev vethpod")...).inIPv6(),
	lostAnswer("the node has an entry for the pod's gateway that does not count", append(calico6("fd00:244:2::1"),
		"node2 ip -6 neigh add proxy fd00:244:2::1 dev vethpod")...).saying("proxy_ndp=0").inIPv6(),

	unknownAt("the node's neighbour for the pod has the address of another interface of the pod behind the same bridge",
		report.SegmentEndpointNode, "node2 ip link add vethnet1 type veth peer name net1 netns @endpoint",
		"endpoint ip link set net1 address 02:00:00:00:02:10", "endpoint ip link set net1 up",
		"node2 ip link set vethnet1 master cni0", "node2 ip link set vethnet1 up",
		"node2 ip neigh replace 10.244.2.9 lladdr 02:00:00:00:02:10 dev cni0 nud permanent").passing().saying("net1").
		undoneBy("node2 ip neigh del 10.244.2.9 dev cni0", "node2 ip link del vethnet1"),
	lostAnswer("the pod's neighbour for its gateway has the address of another interface of the node",
		otherMAC("node2", "eth1", "endpoint", "10.244.2.1", "eth0")...).saying("the address of eth1").
		coded(endtoend.EndToEndWrongNeighbour).inBoth(),
	lostAnswer("the routed pod's neighbour for its gateway has the address of another interface of the node",
		otherMAC("node2", "eth1", "endpoint", "169.254.1.1", "eth0")...).saying("the address of eth1").
		coded(endtoend.EndToEndWrongNeighbour).routedTo(),
	lostAt("the client's neighbour for its gateway has the address of another interface of the node",
		report.SegmentClientPod, endtoend.EndToEndWrongNeighbour,
		append([]string{"node1 sysctl -qw net.bridge.bridge-nf-call-iptables=0"},
			otherMAC("node1", "eth1", "client", "10.244.1.1", "eth0")...)...),
	trap("the pod's neighbour for its gateway has the address of the node's end of the pair",
		otherMAC("node2", "vethpod", "endpoint", "10.244.2.1", "eth0")...).inBoth(),
	lostAnswer("the pod's neighbour for its gateway has the address of another port of the bridge",
		append([]string{
			"node2 ip link add vethx type veth peer name ethx netns @outside", "node2 ip link set vethx master cni0 up",
		}, otherMAC("node2", "vethx", "endpoint", "10.244.2.1", "eth0")...)...).
		coded(endtoend.EndToEndWrongNeighbour),
	trap("the pod's neighbour for its gateway has the address of a macvlan on the bridge", append([]string{
		"node2 ip link add mv0 link cni0 type macvlan mode bridge", "node2 ip link set mv0 up",
	}, otherMAC("node2", "mv0", "endpoint", "10.244.2.1", "eth0")...)...),
	lostAt("the other node's neighbour has the address of an interface on another link", report.SegmentNetwork,
		endtoend.EndToEndWrongNeighbour, otherMAC("node2", "eth1", "node1", "192.168.50.2", "eth0")...).
		saying("the address of eth1").inBoth(),
	lostAnswer("the answer's neighbour has the address of an interface on another link",
		otherMAC("node1", "eth1", "node2", "192.168.50.1", "eth0")...).saying("the address of eth1").
		coded(endtoend.EndToEndWrongNeighbour).inBoth(),
	lostAt("the neighbour has the address of another interface of the other node", report.SegmentNetwork,
		endtoend.EndToEndWrongNeighbour, append(otherMAC("node2", "eth1", "node1", "10.244.2.0", "flannel.1"),
			"node1 bridge fdb add fe:00:00:00:61:01 dev flannel.1 dst 192.168.50.2")...).saying("the address of eth1").
		overVXLAN().undoneBy("node1 ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent"),

	trap("the uplink is a bridge's port, and a rule drops what comes in by the port",
		inBridge(uplinkInBridge, "node2 iptables-nft -A FORWARD -i eth0 -j DROP")...),
	lostAt("the uplink is a bridge's port, and a rule drops what comes in by the bridge", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, inBridge(uplinkInBridge, "node2 iptables-nft -A FORWARD -i br0 -j DROP")...),
	lostAt("the uplink is a bridge's port, and the bridge filters strictly", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, inBridge(uplinkInBridge, "node2 sysctl -qw net.ipv4.conf.br0.rp_filter=1")...),
	lostAt("the uplink is a bridge's port, and the bridge does not forward", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, inBridge(uplinkInBridge, "node2 sysctl -qw net.ipv4.conf.br0.forwarding=0")...),
	lostAt("the uplink is a bridge's port, and the bridge is down", report.SegmentNetwork, endtoend.InterfaceDown,
		inBridge(uplinkInBridge, "node2 ip link set br0 down")...).saying("br0 of node2 is down"),
	lostAt("the uplink is a bridge's port that is disabled", report.SegmentNetwork, endtoend.InterfaceDown,
		inBridge(uplinkInBridge, "node2 ip link add dumv type veth peer name dumw",
			"node2 ip link set dumv master br0 up", "node2 ip link set dumw up",
			"node2 bridge link set dev eth0 state 0")...).saying("takes nothing"),
	lostAnswer("the uplink of the client's node is a bridge's port, and the bridge filters strictly",
		"node1 ip link set eth0 address 02:00:00:00:50:01", "node2 ip link set eth0 address 02:00:00:00:50:02",
		"node1 ip link add br0 type bridge", "node1 ip link set br0 up", "node1 ip link set eth0 master br0",
		"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:50:02 dev eth0 nud permanent",
		"node2 ip neigh replace 192.168.50.1 lladdr 02:00:00:00:50:01 dev eth0 nud permanent",
		"node1 sysctl -qw net.ipv4.conf.br0.rp_filter=1"),
	trap("the tunnel is a bridge's port", tunnelInBridge...).overVXLAN().inBoth(),
	trap("the tunnel is a bridge's port, and a rule drops what comes in by the port", inBridge(tunnelInBridge,
		"node2 iptables-nft -A FORWARD -i flannel.1 -j DROP", "node2 sysctl -qw net.bridge.bridge-nf-call-iptables=0")...).
		overVXLAN(),
	lostAt("the tunnel is a bridge's port, and a rule drops what comes in by the bridge", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, inBridge(tunnelInBridge, "node2 iptables-nft -A FORWARD -i brx -j DROP")...).
		overVXLAN().inBoth(),
	lostAt("the tunnel is a bridge's port, and the bridge does not forward", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, inBridge(tunnelInBridge, "node2 sysctl -qw net.ipv4.conf.brx.forwarding=0")...).
		overVXLAN(),
	lostAt("the tunnel is a bridge's port, and the bridge filters strictly", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, inBridge(tunnelInBridge, "node2 sysctl -qw net.ipv4.conf.brx.rp_filter=1")...).
		overVXLAN(),
	lostAt("the tunnel is a bridge's port, and the bridge is down", report.SegmentNetwork, endtoend.InterfaceDown,
		inBridge(tunnelInBridge, "node2 ip link set brx down")...).saying("brx of node2 is down").overVXLAN(),
	lostAnswer("the tunnel of the client's node is a bridge's port, and the bridge filters strictly",
		"node1 ip link add brx type bridge", "node1 ip link set brx up", "node1 ip link set flannel.1 master brx",
		"node1 sysctl -qw net.ipv4.conf.brx.rp_filter=1").overVXLAN(),
	trap("the tunnel is a port of a bridge that has the address", evpn...).overVXLAN(),
	lostAnswer("the tunnel is a port of a bridge that has the address, and has no entry for the answer",
		append(slices.Clip(evpn), "node2 bridge fdb del 02:00:00:00:00:01 dev flannel.1 dst 192.168.50.1 self")...).
		coded(endtoend.TunnelPeerMissing).overVXLAN().
		undoneBy(append([]string{"node2 ip link del brx"}, tunnelAgain(2, "")...)...),

	lostAt("both ends of the tunnel have one link-layer address", report.SegmentNetwork,
		endtoend.EndToEndWrongNeighbour, sameMAC...).saying("the same link-layer address").overVXLAN().inBoth().
		repairedBy(append(tunnelAgain(2, ""),
			"node1 ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent")...),
	lostAt("the tunnel's interface asks for no addresses", report.SegmentNetwork, endtoend.TunnelPeerMissing,
		"node1 ip link set flannel.1 arp off").saying("NOARP").overVXLAN().
		repairedBy("node1 ip link set flannel.1 arp on",
			"node1 ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent"),

	lostAt("the bridge's table has the pod behind another port", report.SegmentEndpointNode,
		endtoend.EndpointNodeNoRoute, append(slices.Clip(otherPort), "node2 bridge link set dev vethpod learning off",
			"node2 bridge fdb replace 02:00:00:00:02:09 dev dumv master static")...).saying("dumv").inBoth().
		undoneBy("node2 ip link del dumv", "node2 bridge link set dev vethpod learning on"),
	lostAt("another port of the bridge has the pod's link-layer address", report.SegmentEndpointNode,
		endtoend.EndpointNodeNoRoute, append(slices.Clip(otherPort), "node2 ip link set dumv address 02:00:00:00:02:09")...).
		saying("dumv").undoneBy("node2 ip link del dumv"),
	unknownAt("another pod on the bridge has the pod's link-layer address", report.SegmentEndpointNode,
		append(slices.Clip(otherPort), "node2 ip link set dumw address 02:00:00:00:02:09",
			"node2 bridge link set dev vethpod learning off",
			"node2 bridge fdb replace 02:00:00:00:02:09 dev dumv master dynamic")...).saying("dumv").
		undoneBy("node2 ip link del dumv", "node2 bridge link set dev vethpod learning on"),
	lostAt("the port to the pod neither learns nor floods", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"endpoint ip link set eth0 address 02:00:00:00:02:09",
		"node2 ip neigh replace 10.244.2.9 lladdr 02:00:00:00:02:09 dev cni0 nud permanent",
		"node2 bridge link set dev vethpod flood off learning off").saying("flood off"),
	trap("the port to the pod floods nothing, and learns", "node2 bridge link set dev vethpod flood off bcast_flood off",
		"node2 ip neigh flush dev cni0").inBoth(),
	trap("the table of the bridge is set, and the port neither learns nor floods",
		"endpoint ip link set eth0 address 02:00:00:00:02:09", "node2 ip neigh flush dev cni0",
		"node2 bridge link set dev vethpod flood off learning off",
		"node2 bridge fdb replace 02:00:00:00:02:09 dev vethpod master static").inBoth(),
	trap("the bridge's table has the pod behind another port, and learns", append(slices.Clip(otherPort),
		"node2 bridge fdb replace 02:00:00:00:02:09 dev dumv master static", "node2 ip neigh flush dev cni0")...),

	lostAt("the source is translated to an address of the endpoint's node", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops,
		"node1 iptables-nft -t nat -A POSTROUTING -d 10.244.2.9 -j SNAT --to-source 192.168.50.2").
		saying("192.168.50.2 dev eth0"),
	lostAt("the source is translated to the pod's gateway", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node1 iptables-nft -t nat -A POSTROUTING -d 10.244.2.9 -j SNAT --to-source 10.244.2.1").
		saying("dev cni0").overVXLAN(),
	lostAt("both nodes have one tunnel address, and the client is masqueraded", report.SegmentEndpointNode,
		endtoend.EndpointNodeDrops, masquerade, "node2 ip addr add 10.244.1.0/32 dev flannel.1").
		saying("10.244.1.0 dev flannel.1").overVXLAN(),
	lostAnswer("the endpoint's node has the client's address itself, and accepts that",
		"node2 ip addr add 10.244.1.5/32 dev lo", "node2 sysctl -qw net.ipv4.conf.eth0.accept_local=1").
		saying("10.244.1.5 dev lo").sharing(),

	trap("the pod has its address on lo, too", "endpoint ip addr add 10.244.2.9/32 dev lo"),
	trap("the pod has its address on a bridge whose port its interface is, as with KubeVirt",
		"endpoint ip link add k6t type bridge", "endpoint ip addr flush dev eth0", "endpoint ip link set eth0 master k6t",
		"endpoint ip addr add 10.244.2.9/24 dev k6t", "endpoint ip link set k6t up",
		"endpoint ip route add default via 10.244.2.1", "node2 ip neigh flush dev cni0"),
	trap("the pod has its address on a macvlan", "endpoint ip link add mv0 link eth0 type macvlan mode bridge",
		"endpoint ip addr flush dev eth0", "endpoint ip addr add 10.244.2.9/24 dev mv0", "endpoint ip link set mv0 up",
		"endpoint ip route add default via 10.244.2.1", "node2 ip neigh flush dev cni0"),
	lostAt("the pod has its address on a bridge that is down", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"endpoint ip link add k6t type bridge", "endpoint ip addr flush dev eth0", "endpoint ip link set eth0 master k6t",
		"endpoint ip addr add 10.244.2.9/24 dev k6t", "node2 ip neigh flush dev cni0").saying("k6t").
		undoneBy("endpoint ip link del k6t", "endpoint ip addr add 10.244.2.9/24 dev eth0",
			"endpoint ip route add default via 10.244.2.1", "node2 ip neigh flush dev cni0"),
	trap("the client's pod sends by a bridge of its own", append(slices.Clip(clientBridge),
		"client ip route add default via 10.244.1.1")...),
	lostAnswer("the client's pod sends by a bridge of its own, and its node has a wrong neighbour for it",
		append(slices.Clip(clientBridge), "client ip route add default via 10.244.1.1",
			"node1 ip neigh replace 10.244.1.5 lladdr 02:00:00:00:99:99 dev cni0 nud permanent")...).
		coded(endtoend.EndToEndWrongNeighbour).undoneBy(clientAgain...),
	unknownAt("the client's pod sends by a bridge of its own, by a gateway that is nobody", report.SegmentClientPod,
		append(slices.Clip(clientBridge), "client ip route add default via 10.244.1.77")...).saying("10.244.1.77").
		undoneBy(clientAgain...),
}
