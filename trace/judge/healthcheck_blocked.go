// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// blocked walks a packet from outside to a health-check port at the node's own addresses, and the answer to it. Where
// it does not block, unsure says what is not known.
func (w *worker) blocked(svc *corev1.Service, port uint16) (is issue, wrong bool, unsure string) {
	for _, family := range nodestate.Families {
		at := w.healthAddress(svc, family == netfilter.IPv4)
		if !at.IsValid() {
			continue
		}
		if w.unread[family] != "" || w.NotAll[family] != nil {
			unsure = "whether packets arrive: the rules of " + family.String() + " were not read in full"
			continue
		}
		f := expect.Frontend{
			Service: expect.NameOf(svc), Kind: expect.NodePort, Address: at, Port: port, Protocol: corev1.ProtocolTCP,
		}
		from := w.stranger(f, nil)
		if !from.IsValid() {
			unsure = "whether packets arrive: no address of a client is known to try it with"
			continue
		}
		if is, wrong, why := w.blockedAt(&f, from); wrong {
			return is, true, ""
		} else if why != "" {
			unsure = why
		}
	}
	return is, false, unsure
}

// blockedAt walks the packets of a connection from outside to a health-check port: the first one and its answer, then
// those that carry the question, and kube-proxy's own answer.
func (w *worker) blockedAt(f *expect.Frontend, from netip.Addr) (is issue, wrong bool, unsure string) {
	o := w.external(f, from)
	s := start(*f, o)
	res := w.walker.Walk(s, netfilter.Options{Enters: w.enters(f, &o, false)})
	if is, wrong, unsure = w.blockedAsked(f, from, &res); wrong || unsure != "" {
		return is, wrong, unsure
	}
	end := res.Outcomes[0]
	res = w.walker.Answer(s, &end, "", netfilter.Options{})
	if is, wrong, unsure = w.blockedAnswer(f, from, s, &res); wrong || unsure != "" {
		return is, wrong, unsure
	}
	answer := res.Outcomes[0]
	left := w.walker.Left(&answer)
	res = w.walker.Follow(s, &end, netfilter.Options{Left: &left})
	if is, wrong, unsure = w.blockedAsked(f, from, &res); wrong || unsure != "" {
		return is, wrong, unsure
	}
	left = w.walker.Left(&res.Outcomes[0])
	res = w.walker.Answer(s, &end, "", netfilter.Options{Left: &left, Further: true})
	return w.blockedAnswer(f, from, s, &res)
}

// blockedBy is the issue of packets of health checks that end at an outcome of the walk.
func blockedBy(f *expect.Frontend, end *netfilter.Outcome, expected, actual, message string) issue {
	return issue{
		code: HealthCheckBlocked, subject: f.Service.String() + " " + netip.AddrPortFrom(f.Address, f.Port).String(),
		where: end.Where, expected: expected, actual: actual, evidence: []report.Evidence{cite(end.Where)}, message: message,
	}
}

// always returns what every packet comes to, with all outcomes certain and of one kind; nil where it varies.
func always(res *netfilter.Result) *netfilter.Outcome {
	if len(res.Outcomes) == 0 || slices.ContainsFunc(res.Outcomes, func(x netfilter.Outcome) bool {
		return !x.Certain || x.End != res.Outcomes[0].End
	}) {
		return nil
	}
	return &res.Outcomes[0]
}

// dependsOn says what the outcomes of a walk depend on.
func dependsOn(res *netfilter.Result) string {
	if len(res.Uncertain) == 0 {
		return "it differs from packet to packet"
	}
	u := &res.Uncertain[0]
	if u.Where.Chain != nil {
		return "it depends on " + u.Where.String() + ", which cannot be evaluated: " + u.Why
	}
	return "it depends on " + u.What + ": " + u.Why
}

// blockedAsked judges what becomes of the load balancer's question.
func (w *worker) blockedAsked(
	f *expect.Frontend, from netip.Addr, res *netfilter.Result,
) (is issue, wrong bool, unsure string) {
	end := always(res)
	if end == nil {
		return is, false, "whether packets arrive: " + dependsOn(res)
	}
	is = blockedBy(f, end, "given to kube-proxy", "dropped", fmt.Sprintf(
		"what comes from outside to port %d, where load balancers ask whether this node has endpoints of %s, does not get "+
			"to kube-proxy: tried with %s as the source", f.Port, f.Service, from,
	))
	switch to := netip.AddrPortFrom(end.Packet.Dst, end.Packet.DstPort); end.End {
	case netfilter.Dropped:
	case netfilter.Rejected:
		is.actual = "rejected"
	case netfilter.Delivered, netfilter.Sent:
		if !end.Packet.DNAT && !end.Packet.Virtual.IsValid() {
			return is, false, notDelivered(end)
		}
		is.where, is.actual = end.Packet.DNATBy, "sent to "+to.String()
		is.evidence = []report.Evidence{cite(end.Packet.DNATBy)}
		is.message += ", and sent to " + to.String()
		is.remedy = w.advise(advice("find who owns {where}, and make it leave the port to kube-proxy"), &is)
		return is, true, ""
	default:
		return is, false, "whether packets arrive: " + end.Why
	}
	if namesSources(end.Where.Chain) {
		is.severity = note
		is.message += "; rules beside it tell sources apart, and may let the load balancer's through"
	}
	return is, true, ""
}

// notDelivered says of a packet for an address of the node's own that it leaves the node.
func notDelivered(end *netfilter.Outcome) string {
	if end.End == netfilter.Delivered {
		return ""
	}
	return "whether packets arrive: by the routes that were read they leave the node by " + end.Packet.Out
}

// blockedAnswer judges what becomes of kube-proxy's answer. By which way it goes to the load balancer is not known: a
// route that is missing for a sample is none for all.
func (w *worker) blockedAnswer(
	f *expect.Frontend, from netip.Addr, s netfilter.Start, res *netfilter.Result,
) (is issue, wrong bool, unsure string) {
	end := always(res)
	if end == nil {
		return is, false, "whether its answers arrive: " + dependsOn(res)
	}
	switch end.End {
	case netfilter.Dropped, netfilter.Rejected:
	case netfilter.NoRoute:
		return is, false, "whether its answers arrive: the node has no route to " + from.String() +
			", which stands for the load balancer"
	default:
		if netfilter.Answered(s, end) {
			return is, false, ""
		}
		return is, false, "whether its answers arrive: their source is " +
			netip.AddrPortFrom(end.Packet.Src, end.Packet.SrcPort).String()
	}
	is = blockedBy(f, end, "answered", "the answer is dropped", fmt.Sprintf(
		"what kube-proxy answers at port %d, where load balancers ask whether this node has endpoints of %s, does not "+
			"leave the node: tried with %s as the load balancer", f.Port, f.Service, from,
	))
	is.remedy = w.advise(advice("allow the answers to load balancers' health checks at {where}: TCP from the port"), &is)
	return is, true, ""
}

// namesSources tells whether a chain, or one that it leads to, tells packets apart by their source, or by sets. Chains
// of kube-proxy's and the kubelet's are left aside: they let no source in.
func namesSources(c *netfilter.Chain) bool {
	if c == nil {
		return false
	}
	bases := []*netfilter.Chain{c}
	for _, other := range c.Table.Chains {
		if other.Base != nil && c.Base == nil && reachableFrom(c.Table, other)[c] {
			bases = append(bases, other)
		}
	}
	for chain := range reachableFrom(c.Table, bases...) {
		if !strings.HasPrefix(chain.Name, kubeproxy.PrefixOwn) &&
			slices.ContainsFunc(chain.Rules, func(r *netfilter.Rule) bool {
				terms := nodestate.SourcesOf(c.Table, r)
				return len(terms.Ranges) > 0 || len(terms.Sets) > 0
			}) {
			return true
		}
	}
	return false
}
