// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

const (
	podMAC    = "02:00:00:00:02:09"
	bridgeMAC = "02:00:00:00:02:01"
)

// acquainted are the lines by which the endpoint's node and its pod, whose interface is dev, need not ask for one
// another.
func acquainted(dev string) []string {
	return []string{
		"node2 ip link set cni0 address " + bridgeMAC, "endpoint ip link set " + dev + " address " + podMAC,
		"node2 ip neigh replace 10.244.2.9 lladdr " + podMAC + " dev cni0 nud permanent",
		"endpoint ip neigh replace 10.244.2.1 lladdr " + bridgeMAC + " dev " + dev + " nud permanent",
	}
}

// onTop has the endpoint's pod have its address on another interface than its end of the pair: a bridge (KubeVirt), a
// macvlan.
func onTop(dev string, made ...string) []string {
	return slices.Concat([]string{"endpoint ip addr flush dev eth0"}, made, []string{
		"endpoint ip addr add 10.244.2.9/24 dev " + dev, "endpoint ip link set " + dev + " up",
		"endpoint ip route add default via 10.244.2.1",
	}, acquainted(dev))
}

// offTop takes that back.
func offTop(dev string) []string {
	return []string{
		"endpoint ip link del " + dev, "endpoint ip addr add 10.244.2.9/24 dev eth0",
		"node2 ip neigh del 10.244.2.9 dev cni0",
	}
}

var (
	ownBridge = []string{
		"endpoint ip link add k6t-eth0 type bridge", "endpoint ip link set eth0 master k6t-eth0",
	}
	locked    = "node2 bridge link set dev vethpod locked on learning off"
	unlocked  = "node2 bridge link set dev vethpod locked off learning on"
	forgotten = "node2 bridge fdb del " + podMAC + " dev vethpod master || true"
	byMacvlan = []string{
		"node2 ip addr flush dev cni0",
		"node2 ip link add vrrp.1 link cni0 address 00:00:5e:00:01:01 type macvlan mode bridge",
		"node2 ip addr add 10.244.2.1/24 dev vrrp.1", "node2 ip link set vrrp.1 up",
	}
	offMacvlan = []string{
		"node2 ip link del vrrp.1", "node2 ip addr add 10.244.2.1/24 dev cni0",
		"node2 sysctl -qw net.ipv4.conf.cni0.rp_filter=0", "endpoint ip neigh flush all",
	}
	bridgeFilters = "node2 sysctl -qw net.ipv4.conf.cni0.rp_filter=2" // it has no address
)

// bridgeFaults are of what frames pass between a node and its pod: ports of bridges that are locked or do not forward,
// a bridge or a macvlan of the pod's own; and of routes by next hop objects.
var bridgeFaults = []fault{
	lostAnswer("the pod's port is locked, and its bridge does not know the pod",
		append(acquainted("eth0"), locked, forgotten)...).saying("locked").undoneBy(unlocked),
	lostAnswer("the pod's port is locked, and its bridge knows another one there", append(acquainted("eth0"), locked,
		forgotten, "node2 bridge fdb replace 02:00:00:00:77:77 dev vethpod master static")...).saying("locked").
		undoneBy(unlocked),
	trap("the pod's port is locked, and its bridge knows the pod", append(acquainted("eth0"), locked,
		"node2 bridge fdb replace "+podMAC+" dev vethpod master static")...),
	trap("the pod has a bridge of its own", onTop("k6t-eth0", ownBridge...)...),
	lostAt("the pod's own bridge does not forward", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		append(onTop("k6t-eth0", ownBridge...), "endpoint bridge link set dev eth0 state 0")...).
		saying("k6t-eth0").undoneBy(offTop("k6t-eth0")...),
	unknownAt("the pod's own bridge has a locked port", report.SegmentEndpointNode,
		append(onTop("k6t-eth0", ownBridge...), "endpoint bridge link set dev eth0 locked on learning off",
			"endpoint bridge fdb del "+bridgeMAC+" dev eth0 master || true")...).
		saying("k6t-eth0 is locked").undoneBy(offTop("k6t-eth0")...),
	lostAt("the pod's macvlan takes frames from others alone", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		onTop("mv0", "endpoint ip link add mv0 link eth0 type macvlan mode source",
			"endpoint ip link set mv0 type macvlan macaddr add 02:00:00:00:77:77")...).saying("mode source").
		undoneBy(offTop("mv0")...),
	trap("the pod's macvlan takes frames from the node", onTop("mv0",
		"endpoint ip link add mv0 link eth0 type macvlan mode source",
		"endpoint ip link set mv0 type macvlan macaddr add "+bridgeMAC)...),
	trap("the pod's gateway is on a macvlan of the bridge", byMacvlan...),
	trap("the pod's gateway is on a macvlan of the bridge, which filters loosely",
		append(slices.Clip(byMacvlan), bridgeFilters)...),
	trap("the pod's gateway is on a macvlan of the bridge", byMacvlan...).forgetting(),
	trap("the pod's gateway is on a macvlan of the bridge, which answers nothing",
		append(slices.Clip(byMacvlan), bridgeFilters)...).forgetting(),
	lostAnswer("the answer comes in by a macvlan of the bridge, and a rule drops that",
		append(slices.Clip(byMacvlan), bridgeFilters, "node2 iptables-nft -A FORWARD -i vrrp.1 -j DROP")...).
		saying("FORWARD").undoneBy(append(slices.Clip(offMacvlan), "node2 iptables-nft -D FORWARD -i vrrp.1 -j DROP")...),
	trap("a route by a next hop object that the kernel does not list",
		"node1 sysctl -qw net.ipv4.nexthop_compat_mode=0", "node1 ip nexthop add id 7 via 192.168.50.2 dev eth0",
		"node1 ip route replace 10.244.2.0/24 nhid 7"),
}
