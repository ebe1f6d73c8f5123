// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"

	"github.com/svcproxy/kubectl-svcproxy/trace/endtoend"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

var _ = register(kind{
	code: endtoend.PMTUBlackHole, severity: warning, scope: onPath,
	remedy: advice(
		"let the node's own ICMP messages pass to pods (type 3 code 4; of IPv6 ICMPv6 type 2), or give the pods' network "+
			"the smallest MTU on the path (the CNI's configuration)",
		command{line: "ip link", onNode: true},
	),
	by: &detector{stage: stageSettings, path: (*pathCase).blackHole},
})

// blackHole finds endpoints that large packets of a pod do not get to: they leave by an interface of a smaller MTU, and
// the message that says so does not come back to the pod.
func (p *pathCase) blackHole() []issue {
	if p.holes == nil {
		found := append(p.findHoles(), p.narrowLinks()...)
		p.holes = &found
	}
	return *p.holes
}

// smallerLinks are what may take smaller packets than an end sends, of requests and of answers.
var smallerLinks = []struct {
	find  func(p *pathCase, o *expect.Origin, end *netfilter.Outcome) (limit int, evidence []string)
	about netfilter.Turn
	who   string
}{
	{(*pathCase).smallerMTU, netfilter.Later, "pod"},
	{(*pathCase).smallerMTUBack, netfilter.Reply, "endpoint"},
}

func (p *pathCase) findHoles() []issue {
	o := &p.want.Origin
	if p.want.Action != expect.DNAT || p.want.Unsure != "" || o.Kind != expect.FromPod {
		return nil
	}
	var like issue
	sure, may := p.stoppedEnds(func(e *netfilter.Outcome) *obstacle {
		if e.End != netfilter.Sent || !e.Packet.DNAT || e.Packet.Virtual.IsValid() {
			return nil
		}
		at := e
		for i := range smallerLinks {
			x := &smallerLinks[i]
			limit, evidence := x.find(p, o, at)
			if evidence == nil || at.Packet.Clamped && clampedTo(&at.Packet) <= limit {
				continue
			}
			if at == e { // a walk replaces the list that it is in
				end := *e
				at = &end
			}
			where, by, why := p.messageLost(at, x.about)
			if why == "" {
				continue
			}
			if like.code == "" {
				dev := at.Packet.Out
				if x.about == netfilter.Reply {
					dev = o.Iface
				}
				like = issue{
					code: endtoend.PMTUBlackHole, where: where, expected: describe(p.want), actual: "large packets do not arrive",
					message: fmt.Sprintf("%s, by which the %s would learn that its packets are too large for %s: %s", why,
						x.who, dev, tooLargeFor(&at.Packet, x.who)),
					evidence: append(by, say(evidence...)...),
				}
			}
			return stoppedBy(evidence...)
		}
		return nil
	})
	if len(sure) == 0 {
		if len(may) == 0 {
			return nil
		}
		return p.doubted(like, may)
	}
	for i := range sure {
		to := sure[i].to()
		like.endpoints = union(like.endpoints, []string{addressText(to)})
	}
	like.subject = cut(like.endpoints, 4)
	return []issue{like}
}

// clampedTo is how large packets of a connection are of which a rule has made the segments smaller; 0 where they fit
// the node's links.
func clampedTo(x *netfilter.Packet) int {
	if x.MSS == 0 {
		return 0
	}
	return endtoend.PacketOf(int(x.MSS), x.Dst)
}

// tooLargeFor says what happens to packets of a sender that are too large. Linux forbids that routers fragment
// datagrams, unless the sender's socket or its namespace asks otherwise (ip_dont_fragment in include/net/ip.h).
// Larger ones than its own interface takes are fragmented by the sender itself, and the fragments again.
func tooLargeFor(x *netfilter.Packet, sender string) string {
	if x.Proto == netfilter.TCP {
		return "connections hang once it sends more than fits into one"
	}
	lost := "datagrams that do not fit, and that the " + sender + "'s own interface takes whole, are lost"
	if x.Family == netfilter.IPv4 {
		lost += ", unless the " + sender + " allows routers to fragment them, which Linux does not by default"
	}
	return lost
}

// messageLost says why the message that a packet was too large does not come back to the pod, or that an answer was to
// the endpoint, as far as that is certain; "" where it may.
func (p *pathCase) messageLost(
	end *netfilter.Outcome, about netfilter.Turn,
) (where netfilter.Ref, by []report.Evidence, why string) {
	s, dev := start(p.want.Frontend, p.want.Origin), p.want.Origin.Iface
	if about == netfilter.Reply {
		dev = end.Packet.Out
	}
	res := p.walker.TooBig(s, end, about, p.ownAddress(dev, end.Packet.Dst.Is4()))
	if res.Ended != "" {
		return where, nil, ""
	}
	message := netfilter.TooBigName(end.Packet.Family)
	for i := range res.Outcomes {
		switch x := &res.Outcomes[i]; {
		case !x.Certain, x.End != netfilter.Dropped && x.End != netfilter.Rejected && x.End != netfilter.NoRoute:
			return netfilter.Ref{}, nil, ""
		case why != "":
		case x.End == netfilter.NoRoute:
			by, why = say(x.By.String()), "the node has no usable route for "+message
		default:
			where, by = x.Where, []report.Evidence{cite(x.Where)}
			why = fmt.Sprintf("%s drops %s", x.Where, message)
		}
	}
	return where, by, why
}
