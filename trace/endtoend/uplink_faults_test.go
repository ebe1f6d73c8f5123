// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// uplinkPorts has the endpoint's node have its link as one of two ports of a bridge; the nodes know one another.
var uplinkPorts = []string{
	"node1 ip link set eth0 address 02:00:00:00:50:01", "node2 ip link set eth0 address 02:00:00:00:50:02",
	"node2 ip link add br0 type bridge", "node2 ip link set br0 up", "node2 ip addr del 192.168.50.2/24 dev eth0",
	"node2 ip link set eth0 master br0", "node2 ip addr add 192.168.50.2/24 dev br0",
	"node2 ip link add oa type veth peer name ob", "node2 ip link set oa master br0 up", "node2 ip link set ob up",
	"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:50:02 dev eth0 nud permanent",
	"node2 ip neigh replace 192.168.50.1 lladdr 02:00:00:00:50:01 dev br0 nud permanent",
}

// uplinkAgain takes it back.
var uplinkAgain = []string{
	"node2 ip link del br0", "node2 ip link del oa", "node2 ip addr add 192.168.50.2/24 dev eth0",
	"node1 ip neigh del 192.168.50.2 dev eth0",
}

// byUplink has answers go by that bridge, on direct routes.
func byUplink(do ...string) []string {
	return slices.Concat(uplinkPorts, []string{"node2 ip route add 10.244.1.0/24 via 192.168.50.1"}, do)
}

// Entries and flags of that bridge and its port, by which frames do not come to the link.
var (
	uplinkElsewhere = []string{
		"node2 bridge link set dev eth0 learning off", "node2 bridge fdb replace 02:00:00:00:50:01 dev oa master static",
	}
	uplinkUnknown = []string{
		"node2 bridge link set dev eth0 learning off flood off", "node2 bridge fdb flush dev eth0 master dynamic",
	}
	uplinkLocked = []string{
		"node2 bridge link set dev eth0 locked on learning off", "node2 bridge fdb flush dev eth0 master dynamic",
	}
)

// uplinkFaults are of the link between the nodes where that is a port of a bridge, of a tunnel's carrier, and of
// entries that are set without being permanent.
var uplinkFaults = []fault{
	trap("the endpoint's node has its link in a bridge with another port", byUplink()...),
	trap("the endpoint's node has its link in a bridge with another port", uplinkPorts...).overVXLAN(),
	lostAnswer("the bridge of the endpoint's node sends frames to the client's elsewhere",
		byUplink(uplinkElsewhere...)...).coded(endtoend.EndToEndWrongNeighbour).saying("by its port oa").
		undoneBy(uplinkAgain...),
	lostAnswer("the bridge of the endpoint's node sends the tunnel's frames elsewhere",
		inBridge(uplinkPorts, uplinkElsewhere...)...).coded(endtoend.EndToEndWrongNeighbour).saying("by its port oa").
		overVXLAN().undoneBy(uplinkAgain...),
	unknownAt("the bridge of the endpoint's node does not know where the client's is, and does not flood",
		report.SegmentAnswer, byUplink(uplinkUnknown...)...).saying("flood off").undoneBy(uplinkAgain...),
	lostAnswer("the bridge of the endpoint's node has the client's link-layer address for its own", byUplink(
		"node2 bridge link set dev eth0 learning off",
		"node2 bridge fdb replace 02:00:00:00:50:01 dev br0 self permanent")...).
		coded(endtoend.EndToEndWrongNeighbour).saying("as its own").undoneBy(uplinkAgain...),
	lostAt("the port of the link is locked", report.SegmentNetwork, endtoend.InterfaceDown,
		byUplink(uplinkLocked...)...).saying("locked on").undoneBy(uplinkAgain...),
	lostAt("the port of the link is locked", report.SegmentNetwork, endtoend.InterfaceDown,
		inBridge(uplinkPorts, uplinkLocked...)...).overVXLAN().saying("locked on").undoneBy(uplinkAgain...),
	lostAt("the port of the link is disabled", report.SegmentNetwork, endtoend.InterfaceDown,
		byUplink("node2 bridge link set dev eth0 state 0")...).undoneBy(uplinkAgain...),
	lostAnswer("the tunnel of the endpoint's node has no carrier", "node2 ip link set flannel.1 protodown on",
		"node2 sleep 3").overVXLAN().coded(endtoend.NoCarrier).
		undoneBy("node2 ip link set flannel.1 protodown off", "node2 sleep 3"),
	lostAt("the tunnel of the client's node has no carrier", report.SegmentNetwork, endtoend.NoCarrier,
		"node1 ip link set flannel.1 protodown on", "node1 sleep 3").overVXLAN().
		undoneBy("node1 ip link set flannel.1 protodown off", "node1 sleep 3"),
	lostAt("a wrong neighbour without ARP", report.SegmentNetwork, endtoend.EndToEndWrongNeighbour,
		"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:99:99 dev eth0 nud noarp"),
	lostAt("a wrong neighbour of the pod without ARP", report.SegmentEndpointNode, endtoend.EndToEndWrongNeighbour,
		"node2 ip neigh replace 10.244.2.9 lladdr 02:00:00:00:99:99 dev cni0 nud noarp"),
}
