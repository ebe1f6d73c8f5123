// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about what comes behind a connection's first packet.
const (
	// AnswerDropped says that a rule drops or refuses what the endpoint answers.
	AnswerDropped = "AnswerDropped"
	// AnswerLost says that the endpoint's answer does not get to the client, or not from the frontend.
	AnswerLost = "AnswerLost"
	// ConnectionCut says that a rule drops or refuses packets of established connections.
	ConnectionCut = "ConnectionCut"
	// AnswerNotEvaluated says that what becomes of answers depends on what cannot be evaluated.
	AnswerNotEvaluated = "AnswerNotEvaluated"
)

var established = advice(
	"find who owns {where}, and make it accept packets of established connections before it drops any (-m conntrack " +
		"--ctstate RELATED,ESTABLISHED -j ACCEPT at the beginning of the chain; in nftables: ct state " +
		"established,related accept)",
)

// bothDirections is the remedy where connection tracking does not take an answer for one.
var bothDirections = advice(
	"connection tracking has to see both directions in the same zone, and the routes have to lead back to "+
		"the client: look at the rules that set zones (CT --zone, ct zone set) or notrack, and at the route of the answer",
	command{line: "conntrack -L", onNode: true, when: "to see the connections with their zones"},
	command{line: "ip rule", onNode: true},
	command{line: "ip route show table all", onNode: true},
)

var (
	_ = register(kind{code: AnswerDropped, severity: mismatch, scope: onPath, by: answers, remedy: established})
	_ = register(kind{
		code: AnswerLost, severity: mismatch, scope: onPath, by: answers,
		remedy: bothDirections,
	})
	_ = register(kind{code: ConnectionCut, severity: mismatch, scope: onPath, by: answers, remedy: established})
	_ = register(kind{code: AnswerNotEvaluated, severity: note, scope: onPath, by: answersUnsure})
)

// answers looks at the answers of the endpoints that connections are sent to, and at later packets.
var answers = &detector{stage: stageAnswers, path: func(p *pathCase) []issue {
	var out []issue
	to := func(x onward) netip.AddrPort { return netip.AddrPortFrom(x.end.Packet.Dst, x.end.Packet.DstPort) }
	wrong := slices.DeleteFunc(slices.Clone(p.walkOnward()), func(x onward) bool { return x.code == "" })
	// In ipvs mode kube-proxy adds real servers in any order: the same finding of two paths reads the same.
	slices.SortStableFunc(wrong, func(a, b onward) int { return to(a).Compare(to(b)) })
	for _, x := range wrong {
		endpoint := to(x).String()
		same := func(o issue) bool { return o.code == x.code && o.where == x.at.Where && o.message == x.message() }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].endpoints = append(out[i].endpoints, endpoint)
			out[i].subject = cut(out[i].endpoints, 4)
			continue
		}
		is := issue{
			code: x.code, subject: endpoint, endpoints: []string{endpoint}, expected: describe(p.want), actual: x.actual(),
			message: x.message(), where: x.at.Where, evidence: append([]report.Evidence{cite(x.at.Where)}, say(x.packet())...),
		}
		for _, by := range x.tracked {
			is.evidence = append([]report.Evidence{cite(by)}, is.evidence...)
		}
		if r := p.lostRemedy(&x); r.text != "" {
			is.remedy = p.advise(r, &is)
		}
		if list := listChain(x.at.Where, familyOf(p.want.Frontend)); list != "" {
			is.remedy = p.advise(p.letPass(x.at.Where, command{line: list, onNode: true}), &is)
		}
		if by := x.at.By; by.String() != "" {
			is.evidence = append(say(by.String()), say(x.packet())...)
			is.remedy = p.withoutRoute(by)
		} else if p.takenFromClient(&p.want.Origin, &x.at) != "" {
			evidence, fix := p.taken(x.at.Packet.Dst)
			is.remedy = report.Remedy{Text: removeIt, Commands: fix}
			is.evidence = append(say(evidence...), say(x.packet())...)
		} else if l := p.backRoute(&p.want.Origin, x.end); x.at.End == netfilter.Sent &&
			x.at.Packet.Turn.Answers() && l.Known && l.Dev == x.at.Packet.Out &&
			l.Dev != p.want.Origin.Iface && p.want.Origin.Kind == expect.FromPod {
			is.evidence = append(say(l.By.String()), is.evidence...)
		}
		out = append(out, is)
	}
	return out
}}

// letPass is the remedy where a rule stops an answer or a later packet. What is kube-proxy's own is changed by no one
// else: it drops what connection tracking takes for invalid, and everything that others have added goes by a restart.
func (n *node) letPass(at netfilter.Ref, list command) remedy {
	switch {
	case !n.byKubeProxy(at):
		return advice(established.text, list)
	case at.Rule != nil && strings.Contains(strings.ToLower(at.Rule.Text), "invalid"):
		r := bothDirections
		r.text = "leave {where} as it is, which is kube-proxy's and drops what connection tracking takes for invalid: " +
			r.text
		return r
	}
	return advice(restart.text+"; the chain is kube-proxy's, and changed by no one else", list, restartProxy)
}

// lostRemedy is the remedy where the node's routing, not connection tracking, loses an answer; none elsewhere. When it
// is routed, its source is still the endpoint's.
func (p *pathCase) lostRemedy(x *onward) remedy {
	pkt, client := &x.at.Packet, p.want.Origin.Address
	if x.code != AnswerLost || !pkt.Dst.IsValid() {
		return remedy{}
	}
	ask := command{line: report.ShellLine(routeGet(pkt.Dst, x.end.Packet.Dst, pkt.In, 0)...), onNode: true}
	switch {
	case x.at.End == netfilter.NoRoute:
		return advice("give {node} a route to "+pkt.Dst.String()+" (for clients outside the cluster a default route, for "+
			"pods the CNI's routes), or find out who removed it", ask)
	case x.at.End == netfilter.Sent && pkt.Src == p.want.Frontend.Address && pkt.Dst == client:
		return advice("find the routing rule or the route on {node} that leads answers elsewhere, and exclude those of "+
			"Services from it", ask, command{line: "ip rule", onNode: true})
	}
	return remedy{}
}

// answersUnsure makes a path Unknown whose answers may be lost.
var answersUnsure = &detector{stage: stageOnward, path: func(p *pathCase) []issue {
	if p.verdict == report.Mismatch || p.verdict == report.Unknown {
		return nil
	}
	var out []issue
	for _, x := range p.walkOnward() {
		for _, u := range x.unsure {
			is := issue{
				code: AnswerNotEvaluated, subject: placeName(u.Where), where: u.Where, predicate: u.Where.Chain != nil,
				message: "decides about answers of endpoints or later packets, and cannot be evaluated: " + u.Why +
					p.trackingUnread(x.end),
				evidence: evidenceOf(&u), remedy: p.askLiveOf(&u),
			}
			if !is.predicate {
				is.message = "what happens to answers of endpoints or to later packets depends on " + u.What + ": " + u.Why
			}
			if !slices.ContainsFunc(out, func(o issue) bool { return o.subject == is.subject && o.message == is.message }) {
				out = append(out, is)
			}
		}
		if len(x.unsure) > 0 {
			p.verdict = report.Unknown
		}
	}
	return out[:min(len(out), maxEvidence)]
}}

// trackingUnread says that it is not known whether connection tracking has a connection of IPVS's.
func (p *pathCase) trackingUnread(end *netfilter.Outcome) string {
	if _, ok := p.net.Sysctl("net/ipv4/vs/conntrack"); ok || end == nil || !end.Packet.Virtual.IsValid() {
		return ""
	}
	return "; nor was net.ipv4.vs.conntrack collected, which decides whether IPVS's connections are tracked (" +
		snapshot.SysctlFile + ")"
}

// walkOnward walks the answers and the later packets of each endpoint that connections are sent to.
func (p *pathCase) walkOnward() []onward {
	// Where kube-proxy sends packets without a local endpoint all the same, no answer comes back by the node.
	if p.want.Action != expect.DNAT || p.want.Unsure != "" || p.settled ||
		p.want.Reason == expect.ReasonNoLocalEndpoints {
		return nil
	}
	if p.onward != nil {
		return *p.onward
	}
	out := []onward{}
	s, client, lists := start(p.want.Frontend, p.want.Origin), "", ""
	if p.want.Origin.Kind == expect.FromPod {
		client = p.want.Origin.Iface
	}
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		if end.End != netfilter.Sent && end.End != netfilter.Delivered ||
			!end.Packet.DNAT && !end.Packet.Virtual.IsValid() {
			continue
		}
		x, left := p.onwardBy(&s, end, client, lists)
		for _, hop := range end.Hops {
			by := *end
			by.Packet.Out, by.Packet.NextHop = hop.Out, hop.NextHop
			var y onward
			y, left = p.onwardBy(&s, &by, client, left)
			x = eitherWay(x, y)
		}
		lists = left
		if x.bad() {
			out = append(out, x)
		}
	}
	if u := p.another(s, lists); u != nil && len(out) == 0 {
		out = append(out, onward{unsure: u})
	}
	p.onward = &out
	return out
}

// answerBy walks an answer to an outcome that comes in by an interface, which is certain or not.
func (p *pathCase) answerBy(
	s *netfilter.Start, end *netfilter.Outcome, in string, certain bool, opt netfilter.Options,
) onward {
	x := p.answerOf(s, end, in, opt)
	if opt.Further || p.want.Frontend.Protocol == corev1.ProtocolUDP {
		x = p.mayBeOffloaded(x, s, end, in)
	}
	if !certain && x.code != "" {
		x = p.answerOf(s, end, netfilter.UnknownIface, opt)
		if !x.bad() {
			x.unsure = []netfilter.Uncertain{{What: "the interface by which they come in", Why: "the route to " +
				end.Packet.Dst.String() + " is by " + in + ", and the answer may come by another one"}}
		}
	}
	return x
}

// onwardBy is what becomes of the packets behind the first at an end of the walk. lists are those of sets that packets
// have changed, before it and behind it.
func (p *pathCase) onwardBy(
	s *netfilter.Start, end *netfilter.Outcome, client, lists string,
) (x onward, left string) {
	in, certain := p.answersBy(end)
	passed := p.walker.Passes(*s, end, in, client)
	first := p.walker.Left(end)
	if !passed.Answer || !passed.Rest {
		return p.onwardWalked(s, end, in, certain, passed, first, lists)
	}
	if u := p.strays(end, in, certain); u != nil {
		return onward{unsure: []netfilter.Uncertain{*u}}.of(end), lists
	}
	return onward{end: end}, first.With(lists + passed.Lists).Lists
}

// onwardWalked is onwardBy where the short check of the walker does not settle it.
func (p *pathCase) onwardWalked(
	s *netfilter.Start, end *netfilter.Outcome, in string, certain bool, passed netfilter.Passed,
	first netfilter.Left, lists string,
) (x onward, left string) {
	answer := onward{left: []netfilter.Left{passed.Left}}
	if !passed.Answer {
		if answer = p.answerBy(s, end, in, certain, netfilter.Options{}); answer.bad() {
			return answer.of(end), lists
		}
	}
	if u := p.strays(end, in, certain); u != nil {
		return onward{unsure: []netfilter.Uncertain{*u}}.of(end), lists
	}
	lists = first.With(lists + passed.Lists).Lists
	if passed.Rest {
		return onward{end: end}, lists
	}
	f := follower{pathCase: p, s: s, end: end, in: in, certain: certain, first: first, answer: &answer}
	x = f.all()
	for _, l := range x.left {
		lists = l.With(lists).Lists
	}
	return x.of(end), lists
}

// strays says why an endpoint's answer may not come back; nil for nothing.
func (p *pathCase) strays(end *netfilter.Outcome, in string, certain bool) *netfilter.Uncertain {
	if u := p.clientsOwn(); u != nil {
		return u
	}
	if u := p.answerRefused(end, in, certain); u != nil {
		return u
	}
	return p.astray(end)
}

// answerRefused says which setting stops the endpoint's answer if it comes in by the interface that the packet has left
// by; nil for none, and where that is certain: ForwardingOff is found there.
func (p *pathCase) answerRefused(end *netfilter.Outcome, in string, certain bool) *netfilter.Uncertain {
	o, dst := &p.want.Origin, end.Packet.Dst
	if certain || in == netfilter.UnknownIface || end.End != netfilter.Sent || o.Kind == expect.FromNode ||
		p.sameBridge(o, end) {
		return nil
	}
	key, unread := p.offFor(in, dst.Is4())
	if key == "" && unread == "" {
		return nil
	}
	if unread != "" {
		return &netfilter.Uncertain{
			What: "whether the node forwards them", Why: unread + " was not collected (" + snapshot.SysctlFile + ")",
		}
	}
	return &netfilter.Uncertain{
		What: "the interface by which they come in",
		Why: "the route to " + dst.String() + " is by " + in + ", and what comes in there is not forwarded: " + key +
			"=0",
	}
}

// answersBy returns the interface by which the endpoint's answer comes in: that by which the packet has left. It is
// certain where the endpoint is a pod of this node, and where the answer goes to an address of that interface.
func (p *pathCase) answersBy(end *netfilter.Outcome) (in string, certain bool) {
	pkt := &end.Packet
	switch {
	case end.End == netfilter.Delivered:
		return "", true
	case pkt.Out == "" || pkt.Out == netfilter.UnknownIface:
		return netfilter.UnknownIface, true
	case p.local(pkt.Dst):
		return pkt.Out, true
	}
	return pkt.Out, pkt.SNAT && slices.Contains(p.net.AddressesOn(pkt.Out), pkt.Src)
}

// answerOf walks the answer to an outcome.
func (p *pathCase) answerOf(s *netfilter.Start, end *netfilter.Outcome, in string, opt netfilter.Options) onward {
	o := &p.want.Origin
	if in == o.Iface && p.neighbours(o, end) {
		opt.Bridge = in
	}
	res := p.walker.Answer(*s, end, in, opt)
	dropped, lost := AnswerDropped, AnswerLost
	if opt.Further {
		dropped, lost = ConnectionCut, ConnectionCut
	}
	x := p.judgeOnward(&res, dropped, lost, func(back *netfilter.Outcome) (string, bool) {
		pkt := &back.Packet
		if why := p.takenFromClient(o, back); why != "" {
			return why, false
		}
		at := "it arrives from " + netip.AddrPortFrom(pkt.Src, pkt.SrcPort).String()
		switch {
		case pkt.Tracking == netfilter.NotOurs || pkt.Tracking == netfilter.Invalid:
			return "connection tracking does not find its connection (another zone, or not tracked), so that nothing " +
				"translates it back", netfilter.Answered(*s, back)
		case pkt.Untracked && !end.Packet.Untracked:
			return "it is not tracked, so that nothing translates it back", netfilter.Answered(*s, back)
		case !netfilter.Answered(*s, back):
			return at + " for " + pkt.Dst.String() + ", which is not what the client waits for", false
		case o.Kind == expect.FromPod && pkt.Out != o.Iface && pkt.Out != netfilter.UnknownIface &&
			o.Iface != netfilter.UnknownIface:
			return "it leaves by " + pkt.Out + ", and the client is at " + o.Iface, false
		}
		return "", true
	})
	if o.Sample && x.code != "" && x.at.End == netfilter.NoRoute && p.isForMany(o.Address) {
		x.code, x.at, x.why = "", netfilter.Outcome{}, "" // it stands for clients at the edge of a range
	}
	x.citeTracking(end, res.Outcomes, func() netfilter.Result {
		opt.Steps = true
		return p.walker.Answer(*s, end, in, opt)
	})
	return x
}

// neighbours tells whether an endpoint answers a client on the same bridge as its neighbour: both are in one of the
// bridge's subnets, and the client's address was not translated.
func (p *pathCase) neighbours(o *expect.Origin, end *netfilter.Outcome) bool {
	return p.sameBridge(o, end) && !end.Packet.SNAT && p.net.Together(o.Iface, o.Address, end.Packet.Dst)
}
