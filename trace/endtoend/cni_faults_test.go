// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// restored is what has rules as another program writes them on the endpoint's node, from testdata.
func restored(name string) []string {
	return []string{"node2 iptables-nft-restore testdata/" + name + ".rules"}
}

// routedTo is a fault whose endpoint is behind a route of its own, as with Calico and the VPC CNI of AWS.
func (c fault) routedTo() fault {
	c.routed = true
	return c
}

// kubeRouter are the rules of a pod's ingress policy as kube-router's netpol controller writes them
// (pkg/controllers/netpol/pod.go, policy.go): the policy's set has one address, the client's or another one.
func kubeRouter(allowed string) []string {
	return append([]string{
		"node2 ipset create KUBE-SRC-A2F4CPRDRZ4ZO4HE hash:ip",
		"node2 ipset add KUBE-SRC-A2F4CPRDRZ4ZO4HE " + allowed,
		"node2 ipset create KUBE-DST-J5ZKAFHHCBKXBTDS hash:ip",
		"node2 ipset add KUBE-DST-J5ZKAFHHCBKXBTDS 10.244.2.9",
	}, restored("kube-router")...)
}

// calico are the rules of a pod's ingress policy as Felix writes them (felix/rules): the set of the policy's sources
// has one address.
func calico(allowed string) []string {
	return append([]string{
		"node2 ipset create cali40s:9ErVC8RzMzNk-rJz hash:net",
		"node2 ipset add cali40s:9ErVC8RzMzNk-rJz " + allowed,
	}, restored("calico")...)
}

// firewalld is the forward hook of the table that firewalld writes where no zone forwards (firewalld/src/firewall/core/
// nftables.py).
var firewalld = []string{
	"node2 nft add table inet firewalld",
	"node2 nft add chain inet firewalld filter_FORWARD '{' type filter hook forward priority 10 ';' '}'",
	"node2 nft add rule inet firewalld filter_FORWARD ct state established,related accept",
	"node2 nft add rule inet firewalld filter_FORWARD ct status dnat accept",
	"node2 nft add rule inet firewalld filter_FORWARD iifname lo accept",
	"node2 nft add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited",
}

// docker has FORWARD drop what is not Docker's, as it does since 1.13.
var docker = restored("docker")

// cniFaults are what CNI plugins and firewalls set up on the endpoint's node, and what is wrong there.
var cniFaults = []fault{
	trap("kube-router's policy lets the client in", kubeRouter("10.244.1.5")...),
	lostAt("kube-router's policy does not let the client in", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		kubeRouter("10.244.1.6")...).saying("a NetworkPolicy (kube-router)"),
	trap("Calico's policy lets the client in", calico("10.244.1.5")...).routedTo(),
	lostAt("Calico's policy does not let the client in", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		calico("10.244.1.6")...).saying("a NetworkPolicy (Calico)").routedTo(),
	lostAt("Calico does not know the pod's interface", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		append(calico("10.244.1.5"), "node2 iptables-nft -D cali-to-wl-dispatch 1")...).
		saying("cali-to-wl-dispatch").routedTo(),
	lostAt("firewalld rejects what is forwarded", report.SegmentEndpointNode, endtoend.EndpointNodeDrops, firewalld...).
		saying("firewalld"),
	lostAt("Docker has FORWARD drop", report.SegmentEndpointNode, endtoend.EndpointNodeDrops, docker...).
		saying("policy"),
	lostAt("ufw has FORWARD drop", report.SegmentEndpointNode, endtoend.EndpointNodeDrops, restored("ufw")...).
		saying("ufw"),
	fault{name: "healthy, the pod has a route of its own", listen: ":8080", works: true}.routedTo(),
	lostAt("the route to the pod is missing", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"node2 ip route del 10.244.2.9/32 dev vethpod").saying("blackhole").routedTo(),
	lostAnswer("the node does not answer for the pod's gateway",
		"node2 sysctl -qw net.ipv4.conf.vethpod.proxy_arp=0", "endpoint ip neigh flush dev eth0").
		saying("169.254.1.1").routedTo(),
	trap("the node answers for the pod's gateway by an entry, not by proxy_arp",
		"node2 ip neigh add proxy 169.254.1.1 dev vethpod", "node2 sysctl -qw net.ipv4.conf.vethpod.proxy_arp=0",
		"endpoint ip neigh flush dev eth0").routedTo(),
	lostAnswer("the node answers for another address than the pod's gateway",
		"node2 ip neigh add proxy 169.254.1.2 dev vethpod", "node2 sysctl -qw net.ipv4.conf.vethpod.proxy_arp=0",
		"endpoint ip neigh flush dev eth0").saying("169.254.1.1").routedTo(),
	unknownAt("the node answers for the pod's gateway too late", report.SegmentAnswer,
		"node2 sysctl -qw net.ipv4.neigh.vethpod.proxy_delay=1000000", "endpoint ip neigh flush dev eth0").
		saying("proxy_delay=1000000").routedTo(),
	trap("the node answers late for the pod's gateway, which the pod knows",
		"node2 sysctl -qw net.ipv4.neigh.vethpod.proxy_delay=1000000",
		"endpoint ip neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
		"node2 ip link set vethpod address ee:ee:ee:ee:ee:ee").routedTo(),
	lostAnswer("the node takes the pod's gateway to be on the pod's own link",
		"node2 sysctl -qw net.ipv4.conf.vethpod.medium_id=-1", "endpoint ip neigh flush dev eth0").
		saying("169.254.1.1").routedTo(),
	trap("the node answers for the pod's gateway by proxy_arp_pvlan",
		"node2 sysctl -qw net.ipv4.conf.vethpod.proxy_arp=0", "node2 sysctl -qw net.ipv4.conf.vethpod.proxy_arp_pvlan=1",
		"node2 ip route add 169.254.1.1 dev vethpod", "endpoint ip neigh flush dev eth0").routedTo(),
	lostAt("the route leads to the interface of another pod", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"node2 ip link add vethold type veth peer name vetholdpeer", "node2 ip link set vethold up",
		"node2 ip link set vetholdpeer up", "node2 ip route replace 10.244.2.9/32 dev vethold").
		saying("vethold").routedTo(),
	lostAnswer("policy routing as of the VPC CNI, whose table has no route",
		"node2 ip link set vethpod address ee:ee:ee:ee:ee:ee",
		"endpoint ip neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
		"node2 ip rule add from 10.244.2.9 lookup 2 prio 1536", "node2 ip route add unreachable default table 2").
		routedTo(),
	trap("policy routing as of the VPC CNI", "node2 ip rule add to 10.244.2.9 lookup main prio 512",
		"node2 ip rule add from 10.244.2.9 lookup 2 prio 1536",
		"node2 ip route add default via 192.168.50.1 dev eth0 table 2").routedTo(),
	trap("nobody answers for the pod's gateway, whose entry is set, as with the VPC CNI",
		"node2 ip link set vethpod address ee:ee:ee:ee:ee:ee", "node2 sysctl -qw net.ipv4.conf.vethpod.proxy_arp=0",
		"endpoint ip neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent").routedTo(),
	lostAt("the bridge of the pods drops by nftables", report.SegmentEndpointNode, endtoend.EndpointNodeDrops,
		"node2 nft add table bridge guard",
		"node2 nft add chain bridge guard post '{' type filter hook postrouting priority 0 ';' '}'",
		"node2 nft add rule bridge guard post oifname vethpod ip daddr 10.244.2.9 tcp dport 8080 drop"),
	lostAnswer("the bridge of the pods drops the answer by nftables", "node2 nft add table bridge guard",
		"node2 nft add chain bridge guard pre '{' type filter hook prerouting priority -300 ';' '}'",
		"node2 nft add rule bridge guard pre iifname vethpod ip saddr 10.244.2.9 tcp sport 8080 drop"),
	lostAt("the route to the pods is missing", report.SegmentEndpointNode, endtoend.EndpointNodeNoRoute,
		"node2 ip route add unreachable 10.244.2.0/25"),
	lostAt("the route to the pods is gone, and the default one leads elsewhere", report.SegmentEndpointNode,
		endtoend.EndpointNodeNoRoute, "node2 ip route del 10.244.2.0/24"),
}
