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
	largeHang   = " hang on large packets"
	withNode    = "the node's address in place of the client's"
	nothingMore = "; kube-proxy has nothing to do"
)

// clients says of each kind of finding, by issue.actual, what a client sees of its connections: of kinds of a path with
// the verb first, of several and of one; of kinds of a node in a sentence of its own. "" stands for any other
// issue.actual.
// {actual} and {expected} are those of the issue, {node} is the node,
// Of kinds that are not here the comparison of shares tells it, or it is not known.
var clients = map[string]map[string]report.Client{
	// the rules of the node
	AcceptedWithoutEndpoints: differing("reach", "reaches", " what should be closed"),
	AffinityMissing:          differing("may", "may", " reach another endpoint each time: there is no session affinity"),
	AffinityTimeout:          differing("may", "may", " reach another endpoint after {actual}, not after {expected}"),
	AffinityUnexpected:       differing("stay", "stays", " with one endpoint, which the Service does not ask for"),
	BrokenRule:               differing("may", "may", " not reach their endpoint: a rule is broken"),
	Dropped:                  failing("hang", "hangs", ": dropped"),
	ForwardMethod:            failing("fail", "fails", ": IPVS does not translate the address ({actual})"),
	IPSetMissing:             differing("are", "is", " not treated as they should be: an entry of a set is missing"),
	IPVSConntrackOff: differing(
		"are", "is", " not masqueraded: answers that do not come back through {node} are lost",
	),
	expect.ReasonKubeProxyBug: differing(
		"may", "may", " not be treated as the Service asks for: kube-proxy has a bug there",
	),
	NoRoute:       failing("fail", "fails", ": the node has no route"),
	NodePortClash: differing("may", "may", " arrive with "+withNode),
	PersistenceMismatch: differing(
		"reach", "reaches", " endpoints by a session affinity of {actual}, not of {expected}",
	),
	PersistenceStale:     differing("may", "may", " stay with an endpoint that gets no new clients"),
	ProxyNotListening:    failing("are", "is", " refused: nothing listens"),
	RealServerWeightZero: differing("do", "does", " not reach an endpoint whose weight is 0"),
	RefusedWithEndpoints: failing("are", "is", " refused"),
	Rejected:             failing("are", "is", " refused"),
	SchedulerMismatch:    differing("are", "is", " distributed by the scheduler {actual}, not by {expected}"),
	ServiceNotProgrammed: failing("fail", "fails", ": no rule translates the address"),
	SharedFrontend: differing(
		"may", "may", " reach endpoints of another Service that has the same address and port",
	),
	SourceRangesMismatch:  differing("are", "is", " not treated as loadBalancerSourceRanges asks for"),
	TrafficPolicyMismatch: differing("are", "is", " not treated as the Service's traffic policy asks for"),
	VIPMissing:            failing("do", "does", " not reach IPVS: the address is on no interface of {node}"),
	VirtualServerMissing:  failing("are", "is", " refused: IPVS has no virtual server"),
	ConnectionForgotten:   failing("break", "breaks", ": connection tracking forgets them at once"),
	DuplicateEndpoint:     differing("may", "may", " reach an endpoint that other entries of it exclude"),
	EndpointOfNoPod:       differing("may", "may", " reach no pod: none has the endpoint's address"),
	AddressOfTwoPods:      differing("may", "may", " reach another pod that has the same address"),
	MirrorStale: differing(
		"reach", "reaches", " the endpoints of the EndpointSlices, which Endpoints contradict",
	),
	FewClientPorts:            differing("fail", "fails", " if more than {actual} are open at a time"),
	FewSourcePorts:            differing("fail", "fails", " if more than {actual} are open at a time to each endpoint"),
	LoadBalancerBypassed:      differing("may", "may", " fail: they do not go through the load balancer ({actual})"),
	expect.ReasonHeadless:     whole("DNS answers with the endpoints' addresses (headless)" + nothingMore),
	expect.ReasonExternalName: whole("DNS answers with the name {actual} (ExternalName)" + nothingMore),
	expect.ReasonNotForKubeProxy: whole("the Service is not for kube-proxy, which has nothing to do: what " +
		"else serves it is not judged"),

	WrongMasquerade: {
		masqueraded: saying("arrive", "arrives", " with "+withNode),
		notMasqueraded: saying(
			"arrive", "arrives", " with the client's own address: answers may not come back through {node}",
		),
	},
	Shadowed: {
		notMasqueraded: saying(
			"arrive", "arrives", " with the client's own address: answers may not come back through {node}",
		),
		"": saying("reach", "reaches", " what another rule or process than kube-proxy's leads to"),
	},

	// settings, routes and neighbours of the node
	BridgeNetfilterOff:     failing("fail", "fails", ": the answer comes from the endpoint's own address"),
	BridgeTakesNothing:     failing("hang", "hangs", ": the bridge does not hand frames to the node"),
	ClientAddressTaken:     failing("fail", "fails", ": the node has the client's address itself"),
	EndpointAddressTaken:   failing("go", "goes", " to the node itself, which has the endpoint's address"),
	ForwardingOff:          failing("hang", "hangs", ": the node does not forward packets"),
	HairpinOff:             failing("hang", "hangs", ""),
	LeadsNowhere:           failing("hang", "hangs", ": no host is behind the outgoing interface"),
	NeighbourBlocked:       failing("hang", "hangs", ": the next hop's link-layer address is not found"),
	NeighbourFailed:        differing("may", "may", " not arrive"),
	NoCarrier:              failing("hang", "hangs", ": the outgoing interface has no carrier"),
	NoTunnelEnd:            failing("hang", "hangs", ": the tunnel does not lead to the endpoint's node"),
	TunnelPacketsDropped:   failing("hang", "hangs", ": the node drops the tunnel's packets"),
	endtoend.PMTUBlackHole: differing("may", "may", largeHang),
	PodAtOtherBridge:       failing("hang", "hangs", ": frames do not come to the pod's port"),
	PortsIsolated:          failing("hang", "hangs", ": the bridge forwards nothing between isolated ports"),
	RefusingRoute: {
		droppedByRoute: sayingFails("hang", "hangs", ": dropped by a route"), "": sayingFails("fail", "fails", ": {actual}"),
	},
	ReversePathFilter: failing("hang", "hangs", ": dropped by the reverse path filter"),
	RouteLocalnetOff:  failing("fail", "fails", ": the kernel does not let packets from 127.0.0.1 leave the node"),
	RoutedToOwnPods:   failing("hang", "hangs", ": routed to the node's own pods"),
	WrongNeighbour:    failing("hang", "hangs", ": sent to a wrong link-layer address"),

	// answers, and what follows the first packet
	AnswerDropped: failing("fail", "fails", ": "+answerGone),
	AnswerLost:    failing("fail", "fails", ": "+answerGone),
	ConnectionCut: failing("break", "breaks", " after the handshake"),

	// what real connections showed
	EndpointReachableDirectly: failing("fail", "fails", " ({actual}), and work with the endpoint's own address"),
	EndpointRefused:           failing("are", "is", " refused ({actual})"),
	EndpointSilent:            failing("get", "gets", " no answer ({actual})"),
	DataNotAcknowledged:       failing("hang", "hangs", " once data is sent ({actual})"),
	EndpointTimeout:           failing("hang", "hangs", " ({actual})"),
	EndpointUnreachable:       failing("fail", "fails", " ({actual})"),
	ObservedSkew:              differing("were", "was", " not distributed as the rules say"),
	PacketDropped:             failing("fail", "fails", " ({actual})"),
	PacketLost:                failing("are", "is", " lost beyond {node}"),

	// beyond the node
	endtoend.InterfaceDown:          failing("hang", "hangs", ": an interface on the path is down"),
	endtoend.BacklogFull:            failing("hang", "hangs", ": the queue of the endpoint's socket is full"),
	endtoend.EndToEndAnswerLost:     failing("fail", "fails", ": "+answerGone),
	endtoend.EndToEndWrongNeighbour: failing("hang", "hangs", ": sent to a wrong link-layer address"),
	endtoend.EndpointListensElse:    failing("are", "is", " refused: the endpoint's process listens elsewhere"),
	endtoend.EndpointNodeDrops:      failing("hang", "hangs", ": the endpoint's node drops the packets"),
	endtoend.EndpointNodeNoRoute:    failing("fail", "fails", ": the endpoint's node does not reach the pod"),
	endtoend.EndpointNotListening:   failing("are", "is", " refused: nothing listens at the endpoint"),
	endtoend.LinkMTUDiffers:         differing("may", "may", largeHang),
	endtoend.PodDrops:               failing("hang", "hangs", ": rules in the pod drop the packets"),
	endtoend.PodNoRoute:             failing("fail", "fails", ": the pod has no route"),
	endtoend.ProcessStopped:         failing("get", "gets", " no answer: the endpoint's process is stopped"),
	endtoend.TunnelDropped:          failing("hang", "hangs", ": the tunnel's packets are dropped"),
	endtoend.TunnelPeerMissing:      failing("hang", "hangs", ": the tunnel does not lead to the endpoint's node"),
	HealthCheckAnswer: differing(
		"may", "may", " be lost: the load balancer is told that the node has endpoints",
	),

	// the node as a whole
	StaleService: whole("rules of {node} still take connections to Services that do not exist"),
}

// refusedBeyond is what a client sees of kinds of findings beyond the node where packets are rejected, and not dropped.
var refusedBeyond = map[string]report.Client{
	endtoend.EndpointNodeDrops: sayingFails("are", "is", " refused: the endpoint's node rejects the packets"),
	endtoend.PodDrops:          sayingFails("are", "is", " refused: rules in the pod reject the packets"),
}

// saying is what is said of several connections and of one, by the verbs of both and the rest.
func saying(several, one, rest string) report.Client {
	return report.Client{Words: report.Phrase{Several: several + rest, One: one + rest}}
}

// sayingFails is saying where the connections do not work.
func sayingFails(several, one, rest string) report.Client {
	c := saying(several, one, rest)
	c.Fails = true
	return c
}

func failing(several, one, rest string) map[string]report.Client {
	return map[string]report.Client{"": sayingFails(several, one, rest)}
}

func differing(several, one, rest string) map[string]report.Client {
	return map[string]report.Client{"": saying(several, one, rest)}
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
	if i.actual == "" && strings.Contains(c.Words.Several+c.Sentence, "{actual}") {
		return report.Client{}
	}
	c.Words.Several, c.Words.One = fill.Replace(c.Words.Several), fill.Replace(c.Words.One)
	c.Sentence = fill.Replace(c.Sentence)
	if i.expected == string(expect.MasqHairpin) && i.actual == notMasqueraded {
		c = sayingFails("get", "gets", " no answer")
		c.Itself = true
	}
	return c
}
