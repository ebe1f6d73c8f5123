// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// explainRules says of each issue, in modes whose rules lead to the endpoints, where it comes from. Several issues with
// one cause become one.
func (p *pathCase) explainRules(issues []issue) []issue {
	if len(issues) == 0 {
		return nil
	}
	w := p.walkedSteps()
	if is := p.policyMismatch(w, issues); is != nil {
		return []issue{*is}
	}
	for i := range issues {
		p.explainIssue(w, &issues[i])
	}
	return onceShadowed(issues)
}

func (p *pathCase) explainIssue(w *walked, is *issue) {
	if p.consequence(is) {
		p.explainConsequence(w, is)
		return
	}
	kubes := p.byKubeProxy(is.where)
	if p.want.Action == expect.DNAT && kubes && !p.mode.reachesServices(p, w) {
		p.notProgrammed(w, is)
	}
	switch is.code {
	case TrafficPolicyMismatch:
		// The drop itself is right for what stays untranslated; what is missing is the short cut to all endpoints.
		if p.want.Action == expect.DNAT && policyOf(p.svc, p.want.Frontend.Kind) && kubes {
			is.code = ServiceNotProgrammed
			is.message = is.where.String() + " drops it: traffic from the cluster itself should be translated before it " +
				"arrives there"
		}
	case ServiceNotProgrammed, AcceptedWithoutEndpoints, SourceRangesMismatch:
		if p.got.all(acceptAction) || is.code == ServiceNotProgrammed && p.byKubeProxy(is.where) {
			p.notProgrammed(w, is)
		}
	case RefusedWithEndpoints:
		is.evidence = append(is.evidence, p.mode.elements(p.node, p.want.Frontend)...)
	case MissingEndpoint:
		if c := w.serviceChain(); c != nil && !p.ofEndpoint(w, is) {
			p.mode.missing(w, c, is)
		}
	case StaleEndpoint:
		p.explainStale(is)
	case UnevenShare, AffinityMissing, AffinityUnexpected, AffinityTimeout:
		if is.code == UnevenShare && p.passedOver(is, p.endedForSome(w)) {
			return
		}
		if c := w.serviceChain(); c != nil && is.evidence == nil {
			is.where, is.evidence = netfilter.Ref{Chain: c}, quote(c)
		}
	case WrongMasquerade:
		if !p.passedOverMasquerade(w, is) {
			p.explainMasquerade(is)
		}
	}
}

// policyMismatch recognises a whole path that follows the other traffic policy: the endpoints come from the chain of
// local endpoints (KUBE-SVL, local-) where those of the cluster (KUBE-SVC, service-) are due, or the reverse.
func (p *pathCase) policyMismatch(w *walked, issues []issue) *issue {
	if p.want.Action != expect.DNAT || slices.ContainsFunc(issues, func(is issue) bool {
		return !slices.Contains(
			[]string{MissingEndpoint, StaleEndpoint, UnevenShare, WrongMasquerade, AffinityMissing},
			is.code,
		)
	}) {
		return nil
	}
	local, cluster := w.met(p.mode.names().Local), w.met(p.mode.names().Cluster)
	wantLocal := localPolicy(p.svc, p.want)
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
	is.message = fmt.Sprintf(
		"the rules follow the traffic policy %s, where the Service asks for %s",
		is.actual,
		is.expected,
	)
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

// localPolicy tells whether a path has to use the local endpoints alone. Traffic from the cluster itself to an external
// address takes the short cut to all of them (kube-proxy, pkg/proxy/iptables/proxier.go, the KUBE-EXT chain).
func localPolicy(svc *corev1.Service, want *expect.Path) bool {
	return policyOf(svc, want.Frontend.Kind) &&
		(want.Frontend.Kind == expect.ClusterIP || want.Origin.Kind == expect.FromExternal)
}

// explainStale says what the API knows of an address that connections should not go to.
func (p *pathCase) explainStale(is *issue) {
	f := p.want.Frontend
	for i := range p.svc.Spec.Ports {
		port := &p.svc.Spec.Ports[i]
		if port.Name != f.PortName || port.Protocol != f.Protocol {
			continue
		}
		for _, e := range p.exp.Endpoints(f.Service, port, familyOf(f)) {
			if e.Address.String() == is.subject {
				is.predicate, is.message = true, fmt.Sprintf(
					"is in EndpointSlice %s, but %s; connections are sent to it nevertheless",
					strings.Join(e.Slices, ", "), p.condition(&e))
				return
			}
		}
	}
	is.predicate, is.message = true, "is in no EndpointSlice of the Service, but connections are sent to it"
}

func familyOf(f expect.Frontend) corev1.IPFamily {
	if f.Address.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// condition says why an endpoint of the Service is none of this path. Hints that kube-proxy has not gone by are named:
// since it reads the zone by a handler of its own (cmd/kube-proxy/app/server.go of 1.37, NewNodeTopologyConfig), one
// that learns of the Node before the handler is registered never learns its zone.
func (p *pathCase) condition(e *expect.Endpoint) string {
	zone := ""
	if p.object != nil {
		zone = p.object.Labels[corev1.LabelTopologyZone]
	}
	switch {
	case e.Terminating:
		return "terminating"
	case !e.Ready:
		return "not ready"
	case !localPolicy(p.svc, p.want) && zone != "" && len(e.HintZones) > 0 && !slices.Contains(e.HintZones, zone):
		return fmt.Sprintf("meant for zone %s, and this node is in %s", strings.Join(e.HintZones, ", "), zone)
	case !e.Local:
		return "not to be used from this node"
	}
	return "not to be used here"
}
