// SPDX-License-Identifier: Apache-2.0

package endtoend_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// The topology: two nodes on one link, each with a bridge and a pod on it, and a host outside of the cluster, which
// both nodes have for a router.
//
//	client 10.244.1.5 ── cni0 node1 eth0 192.168.50.1 ══ 192.168.50.2 eth0 node2 cni0 ── endpoint 10.244.2.9
//	                          eth1 192.168.60.1          192.168.61.1 eth1
//	                                      └── outside 203.0.113.9 ──┘
var (
	frontend = netip.MustParseAddrPort("10.96.0.10:80")
	nodePort = netip.MustParseAddrPort("192.168.60.1:30080")
	endpoint = netip.MustParseAddrPort("10.244.2.9:8080")
	client   = netip.MustParseAddr("10.244.1.5")
	outside  = netip.MustParseAddr("203.0.113.9")
)

// six is the same topology in IPv6: what stands in place of addresses, and of commands for the other family.
var six = strings.NewReplacer(
	"10.96.0.0/12", "fd00:96::/108", "10.96.0.10:80", "[fd00:96::10]:80", "10.96.0.10", "fd00:96::10",
	"10.244.1.0/24", "fd00:244:1::/64", "10.244.2.0/24", "fd00:244:2::/64",
	"10.244.1.0/32", "fd00:244:1::/128 nodad", "10.244.2.0/32", "fd00:244:2::/128 nodad",
	"10.244.1.0", "fd00:244:1::", "10.244.2.0", "fd00:244:2::",
	"10.244.1.1/24", "fd00:244:1::1/64 nodad", "10.244.2.1/24", "fd00:244:2::1/64 nodad",
	"10.244.1.5/24", "fd00:244:1::5/64 nodad", "10.244.2.9/24", "fd00:244:2::9/64 nodad",
	"10.244.2.10", "fd00:244:2::10", "10.244.2.9:8080", "[fd00:244:2::9]:8080", "10.244.2.9", "fd00:244:2::9",
	"10.244.1.5:8080", "[fd00:244:1::5]:8080", "10.244.1.5", "fd00:244:1::5",
	"10.244.1.1", "fd00:244:1::1", "10.244.2.1", "fd00:244:2::1",
	"192.168.50.1/24", "fd00:50::1/64 nodad", "192.168.50.2/24", "fd00:50::2/64 nodad",
	"192.168.50.2:8080", "[fd00:50::2]:8080", "192.168.50.1", "fd00:50::1", "192.168.50.2", "fd00:50::2",
	"192.168.60.1/24", "fd00:60::1/64 nodad", "192.168.60.2/24", "fd00:60::2/64 nodad",
	"192.168.61.1/24", "fd00:61::1/64 nodad", "192.168.61.2/24", "fd00:61::2/64 nodad",
	"192.168.60.99", "fd00:60::99", "192.168.60.1", "fd00:60::1", "192.168.60.2", "fd00:60::2",
	"192.168.61.1", "fd00:61::1", "192.168.61.2", "fd00:61::2",
	"203.0.113.0/24", "2001:db8:113::/64", "203.0.113.9/32", "2001:db8:113::9/128 nodad", "203.0.113.9", "2001:db8:113::9",
	"127.0.0.1:8080", "[::1]:8080", "[::1]:8080", "127.0.0.1:8080",
	"ip route del default", "ip -6 route del default", "iptables-nft", "ip6tables-nft",
	"-p icmp", "-p ipv6-icmp", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "mtu 1000", "mtu 1300",
)

// fault is a state of the topology: what is done to it, and what has to be said of a connection.
type fault struct {
	name    string
	vxlan   bool
	tunnel  string // one of tunnels, in place of VXLAN and direct routes
	listen  string // "": nobody does; full: the queue is
	outside bool   // the client is the host outside, and connects to the NodePort of node1
	local   bool   // the endpoint is the pod on node1, as with externalTrafficPolicy Local
	do      []string
	segment string // "": all are right
	code    string
	verdict report.SegmentVerdict
	known   string   // the code where the kernel shows what is otherwise unknown: for how long it does, varies
	says    string   // part of the segment's message, evidence or owner
	works   bool     // small packets come through all the same
	hangs   bool     // and large ones do not
	resends bool     // they may, in segments that are sent again
	silent  bool     // connections are accepted, and nothing is answered
	six     bool     // it is made in IPv6, too
	only6   bool     // it is made in IPv6 alone
	udp     bool     // the frontend and the endpoint are of UDP
	onNode  bool     // the endpoint has its node's network namespace
	routed  bool     // the endpoint's node has a route to it by a veth pair, and no bridge, as Calico sets it up
	shared  bool     // an address of the pods is somebody else's, too: the namespaces are found by others
	forgets bool     // what was found of neighbours is forgotten before it is read
	undo    []string // in place of what takes do back
	add     []string // beside it
}

// at is where the endpoint listens.
func (c *fault) at() netip.AddrPort {
	switch {
	case c.local:
		return netip.AddrPortFrom(client, endpoint.Port())
	case c.onNode:
		return netip.AddrPortFrom(nodeNames["node2"], endpoint.Port())
	}
	return endpoint
}

// protocol is that of the frontend, as rules name it.
func (c *fault) protocol() string {
	if c.udp {
		return "udp"
	}
	return "tcp"
}

// namespace is that of the process that listens.
func (c *fault) namespace() string {
	switch {
	case c.local:
		return "client"
	case c.onNode:
		return "node2"
	}
	return "endpoint"
}

// Rules as kube-proxy's for a NodePort, to either endpoint; and for the source address.
const (
	toEndpoint = "node1 iptables-nft -t nat -A PREROUTING -d 192.168.60.1 -p tcp --dport 30080 -j DNAT --to-destination " +
		"10.244.2.9:8080"
	toLocal = "node1 iptables-nft -t nat -A PREROUTING -d 192.168.60.1 -p tcp --dport 30080 -j DNAT --to-destination " +
		"10.244.1.5:8080"
	masquerade = "node1 iptables-nft -t nat -A POSTROUTING -d 10.244.2.9 -j MASQUERADE"
)

// faults are made for real by TestAgainstTheKernel, and read from what it recorded by TestRecordedTopologies.
var faults = []fault{
	{name: "healthy, direct routes", six: true, listen: ":8080", works: true},
	{name: "healthy, VXLAN", six: true, vxlan: true, listen: "10.244.2.9:8080", works: true},
	{
		name: "healthy, the answer's neighbour is not known yet", listen: ":8080", works: true,
		do: []string{"node2 ip neigh flush all"},
	},
	{
		name: "listens on 127.0.0.1", six: true, listen: "127.0.0.1:8080",
		segment: report.SegmentEndpointPod, code: endtoend.EndpointListensElse,
	},
	{
		name: "listens on IPv6 only", six: true, listen: "[::1]:8080",
		segment: report.SegmentEndpointPod, code: endtoend.EndpointListensElse,
	},
	{
		name: "listens at another port", listen: ":9090", segment: report.SegmentEndpointPod,
		code: endtoend.EndpointListensElse,
	},
	{name: "nothing listens", segment: report.SegmentEndpointPod, code: endtoend.EndpointNotListening},
	{name: "the queue is full", listen: "full", segment: report.SegmentEndpointPod, code: endtoend.BacklogFull},
	{
		name: "the pod's firewall drops",
		six:  true, listen: ":8080", segment: report.SegmentEndpointPod, code: endtoend.PodDrops,
		do: []string{"endpoint iptables-nft -A INPUT -p tcp --dport 8080 -j DROP"},
	},
	{
		name: "no route in the client's pod",
		six:  true, listen: ":8080", segment: report.SegmentClientPod, code: endtoend.PodNoRoute,
		do: []string{"client ip route del default"},
	},
	{
		name: "the client's pod drops", listen: ":8080", segment: report.SegmentClientPod, code: endtoend.PodDrops,
		do: []string{"client iptables-nft -A OUTPUT -d 10.96.0.0/12 -j DROP"},
	},
	{
		name: "no route in the endpoint's pod", listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndAnswerLost, do: []string{"endpoint ip route del default"},
	},
	{
		name: "no entry of the tunnel's table", six: true, vxlan: true, listen: ":8080", segment: report.SegmentNetwork,
		code: endtoend.TunnelPeerMissing, do: []string{"node1 bridge fdb del 02:00:00:00:00:02 dev flannel.1"},
	},
	{
		name: "no entry of the tunnel's table for the answer", vxlan: true, listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.TunnelPeerMissing, do: []string{"node2 bridge fdb del 02:00:00:00:00:01 dev flannel.1"},
	},
	{
		name: "a firewall drops the tunnel's packets",
		six:  true, vxlan: true, listen: ":8080", segment: report.SegmentNetwork,
		code: endtoend.TunnelDropped, do: []string{"node2 iptables-nft -A INPUT -p udp --dport 8472 -j DROP"},
	},
	{
		name: "the tunnel's other end is down", vxlan: true, listen: ":8080", segment: report.SegmentNetwork,
		code: endtoend.TunnelPeerMissing, do: []string{"node2 ip link set flannel.1 down"},
		undo: []string{
			"node2 ip link set flannel.1 up", "node2 ip neigh replace 10.244.1.0 lladdr 02:00:00:00:00:01 dev flannel.1 " +
				"nud permanent",
		},
	},
	{
		name: "FORWARD drops on the endpoint's node", six: true, listen: ":8080", segment: report.SegmentEndpointNode,
		code: endtoend.EndpointNodeDrops, do: []string{"node2 iptables-nft -A FORWARD -d 10.244.2.9 -j DROP"},
	},
	{
		name: "the endpoint's node does not forward",
		six:  true, vxlan: true, listen: ":8080", segment: report.SegmentEndpointNode,
		code: endtoend.EndpointNodeDrops, do: []string{"node2 sysctl -qw net.ipv4.ip_forward=0"},
	},
	{
		name: "the answer is dropped on the endpoint's node", six: true, listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndAnswerLost, do: []string{"node2 iptables-nft -A FORWARD -s 10.244.2.9 -j DROP"},
	},
	{
		name: "no route for the answer on the endpoint's node", listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndAnswerLost, do: []string{"node2 ip route del 10.244.1.0/24", "node2 ip route del default"},
	},
	{
		name: "a wrong neighbour", listen: ":8080", segment: report.SegmentNetwork, code: endtoend.EndToEndWrongNeighbour,
		do: []string{"node1 ip neigh replace 192.168.50.2 lladdr 02:00:00:00:99:99 dev eth0 nud permanent"},
	},
	{
		name: "a wrong neighbour for the pod", listen: ":8080", segment: report.SegmentEndpointNode,
		code: endtoend.EndToEndWrongNeighbour,
		do:   []string{"node2 ip neigh replace 10.244.2.9 lladdr 02:00:00:00:99:99 dev cni0 nud permanent"},
	},
	{
		name: "the endpoint's node has a smaller MTU", six: true, listen: ":8080", segment: report.SegmentNetwork,
		code: endtoend.LinkMTUDiffers, verdict: report.SegmentUnknown, works: true, hangs: true,
		// veth lets packets pass that are still to be cut (is_skb_forwardable), as no hardware does.
		do: []string{"client ip link set eth0 gso_max_segs 1", "node2 ip link set eth0 mtu 1000"},
	},
	{
		name: "the network between the nodes has a smaller MTU than the pods, of which they are told", six: true,
		listen: ":8080", works: true,
		do: []string{"node1 ip link set eth0 mtu 1300", "node2 ip link set eth0 mtu 1300"},
	},
	{
		name:   "the network between the nodes has a smaller MTU than the pods, of which the endpoint is not told",
		listen: ":8080", works: true, hangs: true, segment: report.SegmentAnswer, code: endtoend.PMTUBlackHole,
		verdict: report.SegmentUnknown,
		do: []string{
			"node1 ip link set eth0 mtu 1300", "node2 ip link set eth0 mtu 1300",
			"node2 iptables-nft -A OUTPUT -p icmp -m icmp --icmp-type 3/4 -j DROP",
		},
	},
	{
		name:   "the network between the nodes has a smaller MTU than the pods, and segments are made to fit",
		listen: ":8080", works: true,
		do: []string{
			"node1 ip link set eth0 mtu 1300", "node2 ip link set eth0 mtu 1300",
			"node2 iptables-nft -A OUTPUT -p icmp -j DROP",
			"node2 iptables-nft -t mangle -A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
		},
	},
	{
		name: "the client's node drops the tunnel's packets", vxlan: true, listen: ":8080", segment: report.SegmentNetwork,
		code: endtoend.TunnelDropped, do: []string{"node1 iptables-nft -A OUTPUT -p udp --dport 8472 -j DROP"},
	},
	{
		name: "the tunnel's table leads to an address that nobody has", vxlan: true, listen: ":8080",
		segment: report.SegmentNetwork, verdict: report.SegmentUnknown,
		do: []string{"node1 bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.168.50.77"},
	},
	{
		name: "a wrong neighbour for the answer", listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndWrongNeighbour,
		do:   []string{"node2 ip neigh replace 192.168.50.1 lladdr 02:00:00:00:99:99 dev eth0 nud permanent"},
	},
	{
		name: "the client's node drops the answer", listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndAnswerLost, do: []string{"node1 iptables-nft -A FORWARD -s 10.244.2.9 -j DROP"},
	},
	{
		name: "the client's pod drops the answer", listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndAnswerLost, do: []string{"client iptables-nft -A INPUT -p tcp --sport 80 -j DROP"},
	},
	{
		name: "the endpoint's pod drops its answers", listen: ":8080", segment: report.SegmentAnswer,
		code: endtoend.EndToEndAnswerLost, do: []string{"endpoint iptables-nft -A OUTPUT -p tcp --sport 8080 -j DROP"},
	},
	{
		name: "the reverse path filter of the endpoint's node", listen: ":8080", segment: report.SegmentEndpointNode,
		code: endtoend.EndpointNodeDrops, do: []string{
			"node2 ip route replace 10.244.1.0/24 via 192.168.61.2", "node2 sysctl -qw net.ipv4.conf.eth0.rp_filter=1",
		},
	},
	{
		name: "the pod's interface is down", listen: ":8080", segment: report.SegmentEndpointNode,
		code: endtoend.EndpointNodeNoRoute, do: []string{"node2 ip link set vethpod down"},
	},
	{
		name: "the endpoint's node has a route that refuses", listen: ":8080", segment: report.SegmentEndpointNode,
		code: endtoend.EndpointNodeNoRoute, do: []string{"node2 ip route add unreachable 10.244.2.9"},
	},
	{
		name: "trap: a rule for another port, and one for a pod beside it", listen: ":8080", works: true,
		do: []string{
			"endpoint iptables-nft -A INPUT -p tcp --dport 8081 -j DROP",
			"node2 iptables-nft -A FORWARD -d 10.244.2.10 -j DROP",
			"client iptables-nft -A INPUT -p tcp --dport 22 -j DROP",
		},
	},
	{
		name: "trap: only connections that are established pass back", six: true, listen: ":8080", works: true, do: []string{
			"node2 iptables-nft -P FORWARD DROP",
			"node2 iptables-nft -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			"node2 iptables-nft -A FORWARD -d 10.244.2.9 -p tcp --dport 8080 -j ACCEPT",
			"client iptables-nft -P INPUT DROP",
			"client iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
			"client iptables-nft -A INPUT -p icmp -j ACCEPT", // IPv6 asks for neighbours by it
		},
	},
	{
		name: "trap: the client is masqueraded", six: true, vxlan: true, listen: ":8080", works: true,
		do: []string{"node1 iptables-nft -t nat -A POSTROUTING -d 10.244.2.9 -j MASQUERADE"},
	},
	{name: "outside: healthy, direct routes", six: true, outside: true, listen: ":8080", works: true, do: []string{
		toEndpoint, masquerade,
	}},
	{name: "outside: healthy, VXLAN", vxlan: true, outside: true, listen: ":8080", works: true, do: []string{
		toEndpoint, masquerade,
	}},
	{
		name: "outside: the source address is kept, and the endpoint is on another node",
		six:  true, outside: true, listen: ":8080",
		do: []string{toEndpoint}, segment: report.SegmentAnswer, code: endtoend.EndToEndAnswerLost,
		add: []string{masquerade},
	},
	{
		name: "outside: the source address is kept, by a VXLAN", vxlan: true, outside: true, listen: ":8080",
		do: []string{toEndpoint}, segment: report.SegmentAnswer, code: endtoend.EndToEndAnswerLost,
		add: []string{masquerade},
	},
	{
		name:    "trap: outside: the source address is kept, and the answer goes by the node that the request came in to",
		outside: true, listen: ":8080", works: true,
		do: []string{toEndpoint, "node2 ip route add 203.0.113.0/24 via 192.168.50.1"},
	},
	{
		name: "outside: to an endpoint on the node itself, with the client's address", six: true, outside: true, local: true,
		listen: ":8080", works: true, do: []string{toLocal},
	},
	{
		name: "outside: the pod lets in the cluster alone", outside: true, local: true, listen: ":8080",
		do: []string{
			toLocal, "client iptables-nft -A INPUT ! -s 10.244.1.0/24 -p tcp -j DROP",
		}, segment: report.SegmentEndpointPod, code: endtoend.PodDrops,
	},
	{
		name: "trap: outside: the pod lets in the node alone, and the source is translated", outside: true,
		listen: ":8080", works: true, do: []string{
			toEndpoint, masquerade, "endpoint iptables-nft -A INPUT ! -s 192.168.50.1 -p tcp -j DROP",
		},
	},
	{
		name: "outside: nobody listens on the node itself", outside: true, local: true, do: []string{toLocal},
		segment: report.SegmentEndpointPod, code: endtoend.EndpointNotListening,
	},
	{
		name: "outside: the node that the request came in to drops the answer", outside: true, listen: ":8080",
		do: []string{
			toEndpoint, masquerade, "node1 iptables-nft -A FORWARD -s 10.244.2.9 -m conntrack --ctstate ESTABLISHED -j DROP",
		}, segment: report.SegmentAnswer, code: endtoend.EndToEndAnswerLost,
	},
	{
		name: "outside: the endpoint's node lets in the pods' network alone", outside: true, listen: ":8080",
		do: []string{
			toEndpoint, "node2 iptables-nft -A FORWARD -d 10.244.2.9 ! -s 10.244.1.0/24 -j DROP",
		}, add: []string{masquerade}, segment: report.SegmentEndpointNode, code: endtoend.EndpointNodeDrops,
	},
	{
		name: "outside: the node has no route back", six: true, outside: true, local: true, listen: ":8080",
		do: []string{toLocal, "node1 ip route add blackhole 203.0.113.0/24"}, segment: report.SegmentAnswer,
		code: endtoend.EndToEndAnswerLost,
	},
	{
		name: "outside: the router does not answer", outside: true, local: true, listen: ":8080",
		do: []string{toLocal, "node1 ip route replace default via 192.168.60.99"}, segment: report.SegmentAnswer,
		verdict: report.SegmentUnknown,
	},
}

// nodeNames are those of the nodes by the addresses that they have on their link.
var nodeNames = map[string]netip.Addr{
	"node1": netip.MustParseAddr("192.168.50.1"), "node2": netip.MustParseAddr("192.168.50.2"),
}

// view is what is read of the topology.
type view struct {
	read func(name string) *nodestate.State
	v6   bool
}

// as is an address of the topology in the family that it is made in.
func (v *view) as(a netip.Addr) netip.Addr {
	if v.v6 {
		return netip.MustParseAddr(six.Replace(a.String()))
	}
	return a
}

func (v *view) port(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(v.as(a.Addr()), a.Port())
}

// connection is one of the client's pod to an address and port, over what is read now, without endpoints.
func (v *view) connection(proto uint8, to netip.AddrPort) *endtoend.Connection {
	return &endtoend.Connection{
		Start: netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
			Family: netfilter.FamilyOf(to.Addr()), Proto: proto, Src: v.as(client), Dst: to.Addr(), DstPort: to.Port(),
			In: "cni0",
		}},
		Client: &endtoend.Node{State: v.read("node1"), Pods: map[string]*endtoend.Pod{
			"shop/client": {State: v.read("client")},
		}},
		Pod:    "shop/client",
		Walker: func(s *nodestate.State) *netfilter.Walker { return judge.NewWalker(s, s.Host) },
		NodeAt: func(a netip.Addr) string {
			for name, key := range nodeNames {
				if v.as(key) == a {
					return name
				}
			}
			return ""
		},
		Cite: func(r netfilter.Ref) report.Evidence {
			e := report.Evidence{Where: report.RuleRef{Table: r.Chain.Table.Name, Chain: r.Chain.Name}}
			if r.Rule != nil {
				e.Where.Rule, e.Text = r.Rule.Num, r.Rule.Text
			}
			return e
		},
	}
}

// segments follows a connection over what is read now.
func (v *view) segments(of *fault) []report.Segment {
	to, name := frontend, report.SegmentClientNode
	if of.outside {
		to, name = nodePort, report.SegmentEntryNode
	}
	proto := netfilter.TCP
	if of.udp {
		proto = netfilter.UDP
	}
	c := v.connection(proto, v.port(to))
	if of.outside {
		c.Start.Packet.Src, c.Start.Packet.In = v.as(outside), "eth1"
		c.Pod, c.Outside, c.Enters = "", true, true
	}
	c.Nodes = map[string]*endtoend.Node{"node1": c.Client, "node2": {
		State: v.read("node2"), Pods: map[string]*endtoend.Pod{"shop/web": {State: v.read("endpoint")}},
	}}
	c.Endpoints = []endtoend.Endpoint{{At: v.port(endpoint), Pod: "shop/web", Node: "node2"}}
	switch {
	case of.local:
		c.Endpoints = []endtoend.Endpoint{{At: v.port(of.at()), Pod: "shop/client", Node: "node1"}}
	case of.onNode:
		c.Endpoints = []endtoend.Endpoint{{At: v.port(of.at()), Pod: "shop/web", Node: "node2", HostNetwork: true}}
	}
	return c.Segments(&report.Segment{
		Segment: name, Place: "node node1", Verdict: report.SegmentRight, Message: "judged elsewhere",
	})
}

// check compares what is said with what has to be: the segment is the one that the fault is in, and those before it are
// right.
func (c *fault) check(t *testing.T, segments []report.Segment) {
	t.Helper()
	want, count := c.verdict, 6
	if want == "" {
		want = report.SegmentWrong
	}
	if c.outside {
		count = 5
	}
	at := slices.IndexFunc(segments, func(s report.Segment) bool { return s.Verdict != report.SegmentRight })
	switch {
	case c.segment == "" && at >= 0:
		t.Errorf("%+v", segments[at])
	case c.segment == "" && len(segments) != count:
		t.Errorf("%d segments: %+v", len(segments), segments)
	case c.segment == "":
	case at < 0:
		t.Errorf("all are right: %+v", segments)
	default:
		s := segments[at]
		if c.known != "" && s.Segment == c.segment && s.Code == c.known && s.Verdict == report.SegmentWrong {
			return
		}
		isWrong := want == report.SegmentWrong
		if s.Segment != c.segment || s.Code != c.code || s.Verdict != want || s.Lost != isWrong ||
			isWrong && slices.ContainsFunc(segments[at+1:], func(s report.Segment) bool {
				return s.Verdict != report.SegmentRight || s.Endpoint != ""
			}) {
			t.Errorf("%+v", segments[at:])
		}
		if text := fmt.Sprintf("%+v", s); !strings.Contains(text, c.says) {
			t.Errorf("%s does not say %q", text, c.says)
		}
	}
}
