// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What clients see of the answer of an endpoint that does not come back, and of packets that are too large.
const (
	answerGone  = "the answer does not come back"
	largeHang   = "may hang on large packets"
	withNode    = "the node's address in place of the client's"
	nothingMore = "; kube-proxy has nothing to do"
)

// clients says of each kind of finding, by issue.actual, what a client sees of its connections: of kinds of a path in
// the plural, with the verb first; of kinds of a node in a sentence of its own. "" stands for any other issue.actual.
// {actual} and {expected} are those of the issue, {node} is the node,
// Of kinds that are not here the comparison of shares tells it, or it is not known.
var clients = map[string]map[string]report.Client{
	// the rules of the node
	AcceptedWithoutEndpoints:  differing("reach what should be closed"),
	AffinityMissing:           differing("may reach another endpoint each time: there is no session affinity"),
	AffinityTimeout:           differing("may reach another endpoint after {actual}, not after {expected}"),
	AffinityUnexpected:        differing("stay with one endpoint, which the Service does not ask for"),
	BrokenRule:                differing("may not reach their endpoint: a rule is broken"),
	Dropped:                   failing("hang: dropped"),
	ForwardMethod:             failing("fail: IPVS does not translate the address ({actual})"),
	IPSetMissing:              differing("are not treated as they should be: an entry of a set is missing"),
	IPVSConntrackOff:          differing("are not masqueraded: answers that do not come back through {node} are lost"),
	expect.ReasonKubeProxyBug: differing("may not be treated as the Service asks for: kube-proxy has a bug there"),
	NoRoute:                   failing("fail: the node has no route"),
	NodePortClash:             differing("may arrive with " + withNode),
	PersistenceMismatch:       differing("reach endpoints by a session affinity of {actual}, not of {expected}"),
	PersistenceStale:          differing("may stay with an endpoint that gets no new clients"),
	ProxyNotListening:         failing("are refused: nothing listens"),
	RealServerWeightZero:      differing("do not reach an endpoint whose weight is 0"),
	RefusedWithEndpoints:      failing("are refused"),
	Rejected:                  failing("are refused"),
	SchedulerMismatch:         differing("are distributed by the scheduler {actual}, not by {expected}"),
	ServiceNotProgrammed:      failing("fail: no rule translates the address"),
	SharedFrontend:            differing("may reach endpoints of another Service that has the same address and port"),
	SourceRangesMismatch:      differing("are not treated as loadBalancerSourceRanges asks for"),
	TrafficPolicyMismatch:     differing("are not treated as the Service's traffic policy asks for"),
	VIPMissing:                failing("do not reach IPVS: the address is on no interface of {node}"),
	VirtualServerMissing:      failing("are refused: IPVS has no virtual server"),
	ConnectionForgotten:       failing("break: connection tracking forgets them at once"),
	DuplicateEndpoint:         differing("may reach an endpoint that other entries of it exclude"),
	EndpointOfNoPod:           differing("may reach no pod: none has the endpoint's address"),
	AddressOfTwoPods:          differing("may reach another pod that has the same address"),
	MirrorStale:               differing("reach the endpoints of the EndpointSlices, which Endpoints contradict"),
	FewClientPorts:            differing("fail if more than {actual} are open at a time"),
	FewSourcePorts:            differing("fail if more than {actual} are open at a time to each endpoint"),
	LoadBalancerBypassed:      differing("may fail: they do not go through the load balancer ({actual})"),
	expect.ReasonHeadless:     whole("DNS answers with the endpoints' addresses (headless)" + nothingMore),
	expect.ReasonExternalName: whole("DNS answers with the name {actual} (ExternalName)" + nothingMore),
	expect.ReasonNotForKubeProxy: whole("the Service is not for kube-proxy, which has nothing to do: what " +
		"else serves it is not judged"),

	WrongMasquerade: {
		masqueraded:    {Words: "arrive with " + withNode},
		notMasqueraded: {Words: "arrive with the client's own address: answers may not come back through {node}"},
	},
	Shadowed: {
		notMasqueraded: {Words: "arrive with the client's own address: answers may not come back through {node}"},
		"":             {Words: "reach what another rule or process than kube-proxy's leads to"},
	},

	// settings, routes and neighbours of the node
	BridgeNetfilterOff:     failing("fail: the answer comes from the endpoint's own address"),
	BridgeTakesNothing:     failing("hang: the bridge does not hand frames to the node"),
	ClientAddressTaken:     failing("fail: the node has the client's address itself"),
	EndpointAddressTaken:   failing("go to the node itself, which has the endpoint's address"),
	ForwardingOff:          failing("hang: the node does not forward packets"),
	HairpinOff:             failing("hang"),
	LeadsNowhere:           failing("hang: no host is behind the outgoing interface"),
	NeighbourBlocked:       failing("hang: the next hop's link-layer address is not found"),
	NeighbourFailed:        differing("may not arrive"),
	NoCarrier:              failing("hang: the outgoing interface has no carrier"),
	NoTunnelEnd:            failing("hang: the tunnel does not lead to the endpoint's node"),
	TunnelPacketsDropped:   failing("hang: the node drops the tunnel's packets"),
	endtoend.PMTUBlackHole: differing(largeHang),
	PodAtOtherBridge:       failing("hang: frames do not come to the pod's port"),
	PortsIsolated:          failing("hang: the bridge forwards nothing between isolated ports"),
	RefusingRoute: {
		droppedByRoute: {Words: "hang: dropped by a route", Fails: true}, "": {Words: "fail: {actual}", Fails: true},
	},
	ReversePathFilter: failing("hang: dropped by the reverse path filter"),
	RouteLocalnetOff:  failing("fail: the kernel does not let packets from 127.0.0.1 leave the node"),
	RoutedToOwnPods:   failing("hang: routed to the node's own pods"),
	WrongNeighbour:    failing("hang: sent to a wrong link-layer address"),

	// answers, and what follows the first packet
	AnswerDropped: failing("fail: " + answerGone),
	AnswerLost:    failing("fail: " + answerGone),
	ConnectionCut: failing("break after the handshake"),

	// what real connections showed
	EndpointReachableDirectly: failing("fail ({actual}), and work with the endpoint's own address"),
	EndpointRefused:           failing("are refused ({actual})"),
	EndpointSilent:            failing("get no answer ({actual})"),
	DataNotAcknowledged:       failing("hang once data is sent ({actual})"),
	EndpointTimeout:           failing("hang ({actual})"),
	EndpointUnreachable:       failing("fail ({actual})"),
	ObservedSkew:              differing("were not distributed as the rules say"),
	PacketDropped:             failing("fail ({actual})"),
	PacketLost:                failing("are lost beyond {node}"),

	// beyond the node
	endtoend.InterfaceDown:          failing("hang: an interface on the path is down"),
	endtoend.BacklogFull:            failing("hang: the queue of the endpoint's socket is full"),
	endtoend.EndToEndAnswerLost:     failing("fail: " + answerGone),
	endtoend.EndToEndWrongNeighbour: failing("hang: sent to a wrong link-layer address"),
	endtoend.EndpointListensElse:    failing("are refused: the endpoint's process listens elsewhere"),
	endtoend.EndpointNodeDrops:      failing("hang: the endpoint's node drops the packets"),
	endtoend.EndpointNodeNoRoute:    failing("fail: the endpoint's node does not reach the pod"),
	endtoend.EndpointNotListening:   failing("are refused: nothing listens at the endpoint"),
	endtoend.LinkMTUDiffers:         differing(largeHang),
	endtoend.PodDrops:               failing("hang: rules in the pod drop the packets"),
	endtoend.PodNoRoute:             failing("fail: the pod has no route"),
	endtoend.ProcessStopped:         failing("get no answer: the endpoint's process is stopped"),
	endtoend.TunnelDropped:          failing("hang: the tunnel's packets are dropped"),
	endtoend.TunnelPeerMissing:      failing("hang: the tunnel does not lead to the endpoint's node"),
	HealthCheckAnswer:               differing("may be lost: the load balancer is told that the node has endpoints"),

	// the node as a whole
	StaleService: whole("rules of {node} still take connections to Services that do not exist"),
}

// refusedBeyond is what a client sees of kinds of findings beyond the node where packets are rejected, and not dropped.
var refusedBeyond = map[string]report.Client{
	endtoend.EndpointNodeDrops: {Words: "are refused: the endpoint's node rejects the packets", Fails: true},
	endtoend.PodDrops:          {Words: "are refused: rules in the pod reject the packets", Fails: true},
}

func failing(words string) map[string]report.Client {
	return map[string]report.Client{"": {Words: words, Fails: true}}
}

func differing(words string) map[string]report.Client {
	return map[string]report.Client{"": {Words: words}}
}

func whole(sentence string) map[string]report.Client {
	return map[string]report.Client{"": {Sentence: sentence}}
}

// clientOf says what a client sees of an issue.
func (n *node) clientOf(i *issue) report.Client {
	c, ok := clients[i.code][i.actual]
	if !ok {
		c = clients[i.code][""]
	}
	fill := strings.NewReplacer("{node}", n.Name, "{actual}", i.actual, "{expected}", i.expected)
	if i.actual == "" && strings.Contains(c.Words+c.Sentence, "{actual}") {
		return report.Client{}
	}
	c.Words, c.Sentence = fill.Replace(c.Words), fill.Replace(c.Sentence)
	if i.expected == string(expect.MasqHairpin) && i.actual == notMasqueraded {
		return report.Client{Words: "get no answer", Fails: true, Itself: true}
	}
	return c
}
