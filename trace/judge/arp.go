// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ARPNotAnswered says that pods or nodes that ask for the node's link-layer address get no answer.
const ARPNotAnswered = "ARPNotAnswered"

var _ = register(kind{
	code: ARPNotAnswered, severity: note, scope: onPath, by: silentToARP,
	remedy: advice("find what has set this on {node} (/etc/sysctl.d, a load balancer's setup for direct return), and set "+
		"it back; strictARP of kube-proxy needs arp_ignore=1 and no more",
		command{line: "sysctl -a -r 'net.ipv4.conf.*.arp_'", onNode: true, when: "to see the settings"}),
})

// silentToARP makes a path Unknown on which a pod of the node, or the next hop that sends an endpoint's answers, would
// get no answer if it asked for the address that the node has there. Whether it has to ask is not known: what it has
// found before stays in its table while it is confirmed, and it also learns it when the node asks for its own
// (arp_process in net/ipv4/arp.c).
var silentToARP = &detector{stage: stageOnward, path: func(p *pathCase) []issue {
	if p.want.Action != expect.DNAT {
		return nil
	}
	is := issue{
		code: ARPNotAnswered, expected: describe(p.want), actual: mayNotArrive,
		message: "a host that asks for the node's link-layer address there gets no reply: connections work only while it " +
			"has the address from elsewhere",
	}
	known := map[hop]bool{}
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		if end.End != netfilter.Sent || !end.Packet.DNAT {
			continue
		}
		named := func() { // the text is made for few
			if to := addressText(netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort)); !slices.Contains(is.endpoints, to) {
				is.endpoints = append(is.endpoints, to)
			}
		}
		for _, h := range p.hops(&p.want.Origin, end) {
			if silent, ok := known[h]; ok {
				if silent {
					named()
				}
				continue
			}
			known[h] = false
			why := p.silentAt(h)
			evidence := say(why)
			if why == "" && p.verdict != report.Mismatch { // else no rule is asked for, which takes walks
				switch rule, unsure := p.silenced(h); {
				case rule.Chain != nil:
					is.where, evidence = rule, []report.Evidence{cite(rule)}
				case unsure != nil:
					is.message = "a host that asks for the node's link-layer address there may get no reply: connections work only " +
						"while it has the address from elsewhere"
					is.where, evidence = unsure.Where, append(evidenceOf(unsure), say(unsure.Why)...)
				}
			}
			if len(evidence) == 0 {
				continue
			}
			if fix := p.ownAgain(h.dev); fix != nil {
				is.remedy = report.Remedy{
					Text: "restore the route, and find what has removed it: the kernel adds it with the address", Commands: fix,
				}
			}
			if p.arpOff(h.dev) {
				is.remedy = report.Remedy{
					Text:     "turn ARP on again, and find what has turned it off",
					Commands: []report.Command{p.onNode("", "ip", "link", "set", "dev", h.dev, "arp", "on")},
				}
			}
			known[h] = true
			is.evidence = append(is.evidence, evidence...)
			named()
		}
	}
	if is.endpoints == nil {
		return p.betweenPods(is)
	}
	is.evidence = is.evidence[:min(len(is.evidence), maxEvidence)]
	if is.where.Chain != nil {
		is.remedy = p.advise(letResolve, &is)
		is.remedy.Commands = append(is.remedy.Commands, p.objectAt(is.where, familyOf(p.want.Frontend))...)
	}
	is.subject = cut(is.endpoints, 4)
	if p.verdict != report.Mismatch {
		p.verdict = report.Unknown
	}
	return []issue{is}
}}

// betweenPods is silentToARP for an endpoint that asks for the client on the same bridge.
func (p *pathCase) betweenPods(is issue) []issue {
	if p.verdict == report.Mismatch {
		return nil
	}
	for i := range p.res.Outcomes {
		end := &p.res.Outcomes[i]
		if end.End != netfilter.Sent || !end.Packet.DNAT {
			continue
		}
		rule := p.between(end)
		if rule.Chain == nil {
			continue
		}
		is.endpoints = append(is.endpoints, addressText(netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort)))
		is.where, is.evidence = rule, []report.Evidence{cite(rule)}
	}
	if is.endpoints == nil {
		return nil
	}
	is.message = "the endpoint answers the client directly on the same bridge, and gets no reply when it asks for the " +
		"client's link-layer address: connections work only while it has the address from elsewhere"
	is.subject = cut(is.endpoints, 4)
	is.remedy = p.advise(letResolve, &is)
	is.remedy.Commands = append(is.remedy.Commands, p.objectAt(is.where, familyOf(p.want.Frontend))...)
	p.verdict = report.Unknown
	return []issue{is}
}

// silentAt is [pathCase.unanswered4] or, of IPv6, [pathCase.unanswered6].
func (p *pathCase) silentAt(h hop) string {
	return p.silent.once(h, func() string {
		if h.ip.Is4() {
			return p.unanswered4(h)
		}
		return p.unanswered6(h)
	})
}

// unanswered4 says why the node tells a neighbour none of the addresses that it has on that interface; "" where it
// tells one, where it has none there (another address is the gateway then), and where settings or addresses were not
// read.
func (p *pathCase) unanswered4(h hop) string {
	var why []string
	for _, a := range p.net.AddressesOn(h.dev) {
		if !a.Is4() || !p.asksFor(h.dev) {
			continue
		}
		answers, reason, known := p.net.AnswersARP(h.dev, a, h.ip)
		if answers || !known {
			return ""
		}
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	if why == nil {
		return ""
	}
	return fmt.Sprintf("%s by %s: %s", h.ip, h.dev, strings.Join(why, "; "))
}

// unanswered6: [host.Network.Unused]. An address of the link is not a pod's gateway where the interface has another.
func (p *pathCase) unanswered6(h hop) string {
	why := p.net.Unused(h.dev)
	if why == "" && p.arpOff(h.dev) {
		why = "ip link: " + h.dev + " has NOARP"
	}
	if why == "" {
		why = p.net.RefusesSolicitation(h.dev, h.ip)
	}
	if why == "" || !p.asksFor(h.dev) {
		return ""
	}
	return fmt.Sprintf("%s by %s: %s", h.ip, h.dev, why)
}

// silenced returns the rule that drops the questions of a neighbour for the node's link-layer address, or the answers;
// the zero Ref for none, and where that is not certain: then why, unless the kernel knows the neighbour, which has
// asked or answered before.
func (p *pathCase) silenced(h hop) (netfilter.Ref, *netfilter.Uncertain) {
	if !p.asksFor(h.dev) {
		return netfilter.Ref{}, nil
	}
	var unsure *netfilter.Uncertain
	for _, r := range p.asksOf(h) {
		x := p.passes(r)
		if x.Lost != nil {
			return x.Lost.Where, nil
		}
		if e, has := p.net.Neighbour(h.dev, h.ip); unsure == nil && len(x.Unsure) > 0 && p.net.HasNeighbours() &&
			(!has || e.Failed) {
			unsure = &x.Unsure[0]
		}
	}
	return netfilter.Ref{}, unsure
}

// ownAgain are the commands that restore the local routes of an interface's addresses which have none.
func (p *pathCase) ownAgain(dev string) (fix []report.Command) {
	for _, a := range p.net.AddressesOn(dev) {
		if p.net.Unrouted(a) {
			fix = append(fix, p.onNode("", "ip", "route", "add", "local", a.String(), "dev", dev, "table", "local", "proto",
				"kernel", "scope", "host", "src", a.String()))
		}
	}
	return fix
}

// asksFor tells whether the other end of an interface asks for addresses: a pod's, or one of an ordinary link.
func (n *node) asksFor(dev string) bool {
	return n.net.Ordinary(dev) || n.net.PodsOnly(dev, true) || n.net.Bridge(dev)
}

// arpOff tells whether an interface of an ordinary link has been set to ask and answer nobody.
func (n *node) arpOff(dev string) bool { return n.net.Ordinary(dev) && n.net.NoARP(dev) }
