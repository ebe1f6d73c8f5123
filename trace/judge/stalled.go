// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// stall is where a packet that should be translated got to among the chains of its Service port, and was not.
type stall struct {
	at       netfilter.Ref // the chain
	message  string
	evidence []report.Evidence
}

// stalled finds the chain, the furthest from the base chain, that the packet met and that is to blame that nothing
// translated it; nil where it met no chain of its Service port. What becomes of the packet afterwards is a consequence.
func (w *walked) stalled() *stall {
	names := w.mode.names()
	if broken := w.withoutTranslation(); len(broken) > 0 {
		texts := make([]string, 0, len(broken))
		for _, c := range broken {
			texts = append(texts, lacks(c, "holds no DNAT rule"))
		}
		return w.stallAt(broken[0], cut(texts, 3))
	}
	for _, at := range []struct{ prefix, lack string }{
		{names.Cluster, "has no rule that leads to an endpoint"},
		{names.Local, "has no rule that leads to an endpoint"},
		{names.External, "has no rule that leads to the endpoints"},
		{names.Firewall, "has no rule that leads to the endpoints"},
	} {
		c := w.met(at.prefix)
		if c == nil {
			continue
		}
		if leadsOn(c) {
			at.lack = "leads this packet to no endpoint"
		}
		return w.stallAt(c, lacks(c, at.lack))
	}
	return nil
}

// withoutTranslation are the chains of endpoints that the packet met and that translate nothing.
func (w *walked) withoutTranslation() []*netfilter.Chain {
	var out []*netfilter.Chain
	for _, c := range w.chains {
		if w.mode.home(c.Table) && w.mode.names().ofService(c.Name, w.mode.names().Endpoint) && !translates(c) &&
			!slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

func (w *walked) stallAt(c *netfilter.Chain, text string) *stall {
	s := &stall{at: netfilter.Ref{Chain: c}, message: text + ": nothing translates the packet"}
	for i := range w.steps {
		if x := &w.steps[i]; x.Kind == netfilter.StepCall && x.Target == c {
			s.evidence = append(s.evidence, cite(x.Ref))
			break
		}
	}
	s.evidence = append(s.evidence, quote(c)...)
	return s
}

// lacks says of a chain what it does not have; of an empty one that it is empty.
func lacks(c *netfilter.Chain, what string) string {
	if len(c.Rules) == 0 {
		return chainName(c) + " is empty"
	}
	return chainName(c) + " " + what
}

// leadsOn tells whether a chain has a rule that translates, or one that goes to another chain of a Service port.
func leadsOn(c *netfilter.Chain) bool {
	for _, r := range c.Rules {
		if slices.ContainsFunc(r.Ops, func(o netfilter.Op) bool {
			t, ok := o.(netfilter.Translator)
			return ok && len(t.Destinations()) > 0
		}) {
			return true
		}
	}
	for name := range c.JumpTargets() {
		if slices.ContainsFunc(modes, func(m mode) bool { return m.names().anyOfService(name) }) {
			return true
		}
	}
	return false
}

// blame makes of an issue one of the chain that translates nothing. after says what became of the packet; "" where the
// issue says it.
func (s *stall) blame(is *issue, after string) {
	is.where, is.message, is.evidence = s.at, s.message, s.evidence
	if after != "" {
		is.message += ", and " + after
	}
}

// consequence tells whether an issue says no more than what became of a packet that kube-proxy's rules should have
// translated and did not: what refuses it has no part in that.
func (p *pathCase) consequence(is *issue) bool {
	if p.want.Action != expect.DNAT || is.subject != "" {
		return false
	}
	switch is.code {
	case Dropped, Rejected, SourceRangesMismatch:
		return is.where.Chain != nil && !beforeDNAT(is.where)
	case NoRoute, RefusingRoute:
		return p.hook() == netfilter.Prerouting // a packet of the node itself needs a route before any rule sees it
	}
	return false
}

// explainConsequence makes of a consequence its cause.
func (p *pathCase) explainConsequence(w *walked, is *issue) {
	after := becomes(is)
	at := w.stalled()
	if at != nil && is.code == SourceRangesMismatch && at.at.Chain == w.met(p.mode.names().Firewall) {
		at.message = lacks(at.at.Chain, "has no rule for this source") + ": nothing leads it to the endpoints"
		at.blame(is, after)
		return
	}
	is.code, is.actual = ServiceNotProgrammed, "not translated, "+is.actual
	if at != nil {
		at.blame(is, after)
		return
	}
	is.where, is.evidence = netfilter.Ref{}, nil
	p.notProgrammed(w, is)
	is.message += "; " + after
}

// becomes says what became of a packet that was not translated.
func becomes(is *issue) string {
	switch {
	case is.code == NoRoute:
		return "the node has no route for it"
	case is.code == RefusingRoute:
		return is.message
	case is.actual == "rejected":
		return is.where.String() + " rejects it"
	}
	return is.where.String() + " drops it"
}

// priorityDNAT is where destinations are translated in a hook (NF_IP_PRI_NAT_DST, include/uapi/linux/netfilter_ipv4.h).
const priorityDNAT = -100

// beforeDNAT tells whether a rule is asked before kube-proxy's rules translate destinations: its chain has its place in
// the same hook, with a priority below theirs, or at a hook of a device or a bridge on the way in.
func beforeDNAT(r netfilter.Ref) bool {
	switch r.Hook {
	case netfilter.Ingress, netfilter.BridgePrerouting, netfilter.BridgeInput:
		return true
	}
	if r.Hook != netfilter.Prerouting && r.Hook != netfilter.Output {
		return false
	}
	for _, c := range r.Chain.Table.Chains {
		if c.Base != nil && c.Base.Hook == r.Hook && c.Base.Priority < priorityDNAT &&
			reachableFrom(r.Chain.Table, c)[r.Chain] {
			return true
		}
	}
	return false
}

// ofEndpoint finds the endpoint's own chain, where it is there, the chain that chooses leads to it, and it translates
// nothing.
func (p *pathCase) ofEndpoint(w *walked, is *issue) bool {
	at, err := netip.ParseAddrPort(is.subject)
	c := w.serviceChain()
	if err != nil || c == nil {
		return false
	}
	f := p.want.Frontend
	for _, name := range p.mode.names().OfEndpoint(f.Service, f.PortName, f.Protocol, at) {
		own := c.Table.Chain(name)
		if own == nil || translates(own) || !leadsTo(c, name) {
			continue
		}
		is.where = netfilter.Ref{Chain: own}
		is.message = fmt.Sprintf("%s: what %s sends there is not translated", lacks(own, "holds no DNAT rule"), chainName(c))
		is.evidence = quote(own)
		for _, r := range c.Rules {
			if r.Target == name {
				is.evidence = append([]report.Evidence{cite(netfilter.Ref{Chain: c, Rule: r})}, is.evidence...)
				break
			}
		}
		return true
	}
	return false
}
