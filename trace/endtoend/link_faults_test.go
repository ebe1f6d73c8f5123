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

// linkFaults are of link-layer addresses: who has them and answers for them, and which interface frames for them come
// to.
var linkFaults = []fault{
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
}
