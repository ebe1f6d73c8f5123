// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// maxEvidence is how many rules of a chain are quoted.
const maxEvidence = 8

// explain walks the packet once more, looks at the rules on its way, and says where each issue comes from. Several issues with
// one cause become one.
func (j *judge) explain(svc *corev1.Service, want *expect.Path, got *tally, issues []issue) []issue {
	res := j.walker.Walk(start(want.Frontend, want.Origin), netfilter.Options{Steps: true})
	way := j.wayOf(&res)
	if is := j.policyMismatch(svc, want, way, issues); is != nil {
		return []issue{*is}
	}
	if is := j.sharedFrontend(want, got); is != nil {
		return []issue{*is}
	}
	for i := range issues {
		is := &issues[i]
		if want.Action == expect.DNAT && byKube(is.where) && !j.leadsToServices(want, way) {
			j.notProgrammed(want, way, is)
		}
		switch is.code {
		case TrafficPolicyMismatch:
			// The drop itself is right for what stays untranslated; what is missing is the short cut to all endpoints.
			if want.Action == expect.DNAT && policyOf(svc, want.Frontend.Kind) && byKube(is.where) {
				is.code = ServiceNotProgrammed
				is.message = is.where.String() + " drops it: traffic from the cluster itself should be translated before it gets there"
			}
		case ServiceNotProgrammed, AcceptedWithoutEndpoints, SourceRangesMismatch:
			if got.all(acceptAction) || is.code == ServiceNotProgrammed && byKube(is.where) {
				j.notProgrammed(want, way, is)
			}
		case RefusedWithEndpoints:
			is.evidence = append(is.evidence, j.elements(want.Frontend)...)
		case MissingEndpoint:
			missing(way, is)
		case StaleEndpoint:
			j.stale(want, is)
		case UnevenShare, AffinityMissing, AffinityUnexpected, AffinityTimeout:
			if c := way.serviceChain(); c != nil {
				is.where, is.evidence = netfilter.Ref{Chain: c}, quote(c)
			}
		case WrongMasquerade:
			is.evidence = way.masquerading()
		}
		is.evidence = slices.DeleteFunc(is.evidence, func(s string) bool { return s == "" })
	}
	return issues
}

// way is what a packet met: the steps of its walk, and the chains that it was sent to, also those without a rule.
type way struct {
	*dialect
	steps  []netfilter.Step
	chains []*netfilter.Chain
}

func (n *node) wayOf(res *netfilter.Result) *way {
	w := &way{dialect: n.dialect, steps: res.Steps}
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Kind == netfilter.StepCall {
			w.chains = append(w.chains, s.Target)
		}
	}
	return w
}

// met returns the first chain on the way that belongs to a Service port, and whose name starts with the prefix.
func (w *way) met(prefix string) *netfilter.Chain {
	for _, c := range w.chains {
		if w.home(c.Table) && w.ofService(c, prefix) {
			return c
		}
	}
	return nil
}

// services returns the chain of all Services, if it is on the way.
func (w *way) services() *netfilter.Chain {
	for _, c := range w.chains {
		if w.home(c.Table) && c.Name == w.dialect.services {
			return c
		}
	}
	return nil
}

// hookOf is where a path's packets enter.
func hookOf(want *expect.Path) netfilter.Hook {
	if want.Origin.Kind == expect.FromNode {
		return netfilter.Output
	}
	return netfilter.Prerouting
}

// leadsToServices tells whether the packet has come to the chain of all Services, or, in nftables mode, where kube-proxy refuses some
// packets before they come to it, whether it could.
func (n *node) leadsToServices(want *expect.Path, w *way) bool {
	if w.services() != nil || !n.isNFT() {
		return w.services() != nil
	}
	for _, t := range n.nftTables() {
		if t.Family&netfilter.FamilyOf(want.Frontend.Address) == 0 {
			continue
		}
		for _, c := range t.Chains {
			if c.Base != nil && c.Base.Hook == hookOf(want) && reachableFrom(t, c)[t.Chain(n.dialect.services)] {
				return true
			}
		}
	}
	return false
}

// serviceChain returns the chain that chooses among the endpoints.
func (w *way) serviceChain() *netfilter.Chain {
	if c := w.met(w.cluster); c != nil {
		return c
	}
	return w.met(w.local)
}

// masquerading quotes the rules on the way that have to do with masquerading.
func (w *way) masquerading() []string {
	var out []string
	for i := range w.steps {
		s := &w.steps[i]
		if s.Ref.Rule == nil || !marksOrMasquerades(s) {
			continue
		}
		if line := cite(s.Ref); !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		c := w.met(w.external)
		if c == nil {
			c = w.serviceChain()
		}
		if c != nil {
			return append([]string{"no rule on the way " + w.marks}, quote(c)...)
		}
	}
	return out
}

// marksOrMasquerades tells whether a step marks a packet for masquerade, or translates its source.
func marksOrMasquerades(s *netfilter.Step) bool {
	switch s.Kind {
	case netfilter.StepCall:
		return s.Target.Name == markChain
	case netfilter.StepMark:
		return byKube(s.Ref) && !s.Mark.Connection
	case netfilter.StepTranslate:
		return s.NAT.Side == netfilter.Source
	default:
		return false
	}
}

// markChain is the chain of iptables and ipvs mode that marks for masquerade (pkg/proxy/iptables/proxier.go, kubeMarkMasqChain).
const markChain = "KUBE-MARK-MASQ"

// quote cites the first rules of a chain.
func quote(c *netfilter.Chain) []string {
	var out []string
	for i, r := range c.Rules {
		if i == maxEvidence {
			return append(out, fmt.Sprintf("… and %d more rules", len(c.Rules)-i))
		}
		out = append(out, cite(netfilter.Ref{Chain: c, Rule: r}))
	}
	return out
}

// policyMismatch recognises a whole path that follows the other traffic policy: the endpoints come from the chain of local
// endpoints (KUBE-SVL, local-) where those of the cluster (KUBE-SVC, service-) are due, or the reverse.
func (j *judge) policyMismatch(svc *corev1.Service, want *expect.Path, w *way, issues []issue) *issue {
	if want.Action != expect.DNAT || slices.ContainsFunc(issues, func(is issue) bool {
		return !slices.Contains([]string{MissingEndpoint, StaleEndpoint, UnevenShare, WrongMasquerade, AffinityMissing}, is.code)
	}) {
		return nil
	}
	local, cluster := w.met(w.local), w.met(w.cluster)
	wantLocal := localPolicy(svc, want)
	is := issue{code: TrafficPolicyMismatch, expected: "Cluster", actual: "Local"}
	switch {
	case wantLocal && cluster != nil && local == nil:
		is.expected, is.actual, is.where = is.actual, is.expected, netfilter.Ref{Chain: cluster}
	case !wantLocal && local != nil && cluster == nil:
		is.where = netfilter.Ref{Chain: local}
	default:
		return nil
	}
	is.evidence = quote(is.where.Chain)
	is.message = fmt.Sprintf("the rules follow the traffic policy %s, where the Service asks for %s", is.actual, is.expected)
	return &is
}

// policyOf tells whether the Service's traffic policy for a kind of frontend is Local.
func policyOf(svc *corev1.Service, kind expect.FrontendKind) bool {
	if kind == expect.ClusterIP {
		p := svc.Spec.InternalTrafficPolicy
		return p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal
	}
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// localPolicy tells whether a path has to use the local endpoints alone. Traffic from the cluster itself to an external address
// takes the short cut to all of them (kube-proxy, pkg/proxy/iptables/proxier.go, the KUBE-EXT chain).
func localPolicy(svc *corev1.Service, want *expect.Path) bool {
	return policyOf(svc, want.Frontend.Kind) && (want.Frontend.Kind == expect.ClusterIP || want.Origin.Kind == expect.FromExternal)
}

// notProgrammed finds out how much is missing: this Service, the jump to all Services, a family, or everything.
func (j *judge) notProgrammed(want *expect.Path, w *way, is *issue) {
	f := netfilter.FamilyOf(want.Frontend.Address)
	if !j.programmed[f] {
		is.code, is.message = NotProgrammed, "the node has no rules of kube-proxy's at all"
		if j.programmed[netfilter.Inet&^f] {
			is.code = FamilyMissing
			is.message = fmt.Sprintf("kube-proxy has programmed %s on this node, but not %s", netfilter.Inet&^f, f)
		}
		return
	}
	for i := range w.steps {
		if s := &w.steps[i]; s.Kind == netfilter.StepNotrack {
			is.code, is.where, is.evidence = Shadowed, s.Ref, []string{cite(s.Ref)}
			is.message = s.Ref.String() + " takes the packet out of connection tracking: no NAT rule sees it"
			return
		}
	}
	hook := hookOf(want)
	if want.Action == expect.DNAT && !j.leadsToServices(want, w) {
		is.code = NotProgrammed
		is.message = fmt.Sprintf("%s does not lead to %s: no Service works for packets that enter there", w.baseChain(hook), w.dialect.services)
		return
	}
	if c := w.serviceChain(); c != nil && len(c.Rules) == 0 {
		is.where, is.message = netfilter.Ref{Chain: c}, chainName(c)+" is empty: nothing translates the packet"
	} else if c := w.met(w.external); c != nil && want.Action == expect.DNAT {
		is.where, is.message, is.evidence = netfilter.Ref{Chain: c}, chainName(c)+" leads to no endpoint", quote(c)
	} else if want.Action == expect.DNAT {
		is.message = "no rule of KUBE-SERVICES or KUBE-NODEPORTS leads from this frontend to the Service's chain"
		if j.isNFT() {
			is.message = j.noElement(want.Frontend)
			is.evidence = append(is.evidence, j.elements(want.Frontend)...)
		}
	}
}

// missing says what the chain that should lead to an endpoint holds in its place.
func missing(w *way, is *issue) {
	c := w.serviceChain()
	if c == nil {
		return
	}
	if isNFTKube(c.Table) {
		missingNFT(w, c, is)
		return
	}
	is.where, is.evidence = netfilter.Ref{Chain: c}, nil
	leads := 0
	var empty []string
	for _, r := range c.Rules {
		for _, op := range r.Ops {
			jump, ok := op.(netfilter.Jumper)
			if !ok || !strings.HasPrefix(jump.JumpsTo(), "KUBE-SEP-") {
				continue
			}
			leads++
			if leads <= maxEvidence {
				is.evidence = append(is.evidence, cite(netfilter.Ref{Chain: c, Rule: r}))
			}
			if sep := c.Table.Chain(jump.JumpsTo()); sep != nil && !translates(sep) && !slices.Contains(empty, sep.Name) {
				empty = append(empty, sep.Name)
			}
		}
	}
	is.message = fmt.Sprintf("%s: %d rules lead to endpoints, none to this one", chainName(c), leads)
	if len(empty) > 0 {
		is.message = fmt.Sprintf("%s leads to %s, which translates nothing", chainName(c), cut(empty, 3))
	}
}

func translates(c *netfilter.Chain) bool {
	return slices.ContainsFunc(c.Rules, func(r *netfilter.Rule) bool { return r.NAT.IsValid() })
}

// stale says what the API knows of an address that connections should not go to.
func (j *judge) stale(want *expect.Path, is *issue) {
	for i := range j.services[want.Frontend.Service].Spec.Ports {
		port := &j.services[want.Frontend.Service].Spec.Ports[i]
		family := corev1.IPv4Protocol
		if want.Frontend.Address.Is6() {
			family = corev1.IPv6Protocol
		}
		if port.Name != want.Frontend.PortName || port.Protocol != want.Frontend.Protocol {
			continue
		}
		for _, e := range j.exp.Endpoints(want.Frontend.Service, port, family) {
			if e.Address.String() == is.subject {
				is.message = fmt.Sprintf("%s is in EndpointSlice %s, but %s; yet connections are sent to it", is.subject, strings.Join(e.Slices, ", "), condition(&e))
				return
			}
		}
	}
	is.message = is.subject + " is in no EndpointSlice of the Service, yet connections are sent to it"
}

func condition(e *expect.Endpoint) string {
	switch {
	case e.Terminating:
		return "terminating"
	case !e.Ready:
		return "not ready"
	case !e.Local:
		return "not to be used from this node"
	}
	return "not to be used here"
}

// sharedFrontend recognises an address and port that several Services claim: kube-proxy programs all of them, and the one that
// comes first takes the packets.
func (j *judge) sharedFrontend(want *expect.Path, got *tally) *issue {
	for _, other := range j.owners[keyOf(want.Frontend)] {
		if other.Service == want.Frontend.Service {
			continue
		}
		theirs := j.exp.Path(other, want.Origin)
		if len(compare(&theirs, got)) == 0 {
			return &issue{
				code: SharedFrontend, subject: other.Service.String(), expected: describe(want), actual: describe(&theirs),
				message: fmt.Sprintf("Service %s has the same address and port, and takes the packets", other.Service),
			}
		}
	}
	return nil
}

// sharing returns another Service's frontend with the same address and port, nil when there is none.
func (j *judge) sharing(f *expect.Frontend) *expect.Frontend {
	others := j.owners[keyOf(*f)]
	for i := range others {
		if others[i].Service != f.Service {
			return &others[i]
		}
	}
	return nil
}
