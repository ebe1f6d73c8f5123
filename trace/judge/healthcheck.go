// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// Findings about the ports at which load balancers ask whether a node has endpoints (healthCheckNodePort).
const (
	HealthCheckNotServed = "HealthCheckNotServed"
	HealthCheckBlocked   = "HealthCheckBlocked"
	HealthCheckStale     = "HealthCheckStale"
)

var (
	_ = register(kind{
		code: HealthCheckNotServed, severity: warning, scope: onNode, by: healthChecks,
		remedy: advice(
			"look in kube-proxy's log on {node} for \"Failed to start healthcheck\": the port may be taken; then "+
				"restart it",
			command{line: "ss -ltnp", onNode: true},
			restartProxy,
		),
	})
	_ = register(kind{
		code: HealthCheckBlocked, severity: warning, scope: onNode, by: healthChecks,
		remedy: advice("allow the load balancer's health checks at {where}: TCP to the port, from its addresses"),
		issues: []string{"kubernetes/kubernetes#97225"},
	})
	_ = register(kind{
		code: HealthCheckStale, severity: warning, scope: onNode, by: staleHealthChecks, remedy: restart,
		issues: []string{"kubernetes/kubernetes#141272"},
	})
)

// healthPort is the health-check port of a Service; 0 where kube-proxy opens none (pkg/proxy/serviceport.go,
// newBaseServiceInfo: externalTrafficPolicy Local of a load balancer alone).
func healthPort(svc *corev1.Service) uint16 {
	p := svc.Spec.HealthCheckNodePort
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || p <= 0 || p > 65535 ||
		svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	return uint16(p)
}

// isProxy tells whether a socket is kube-proxy's, or that of a program which contains it, as far as that is known.
func (n *node) isProxy(s *host.Socket) bool {
	return s.Process == "" || s.Process == kubeproxy.Process || n.Proxy.Processes[s.Process] != 0
}

// healthChecks judges the health-check ports of the Services asked for: kube-proxy has to listen there
// (pkg/proxy/healthcheck/service_health.go), and a packet from outside has to get there.
var healthChecks = &detector{stage: stageAsked, asked: func(n *node, req *Request) []issue {
	if n.Proxy.Down() {
		return nil // which is the finding
	}
	var out []issue
	var w *worker
	for _, svc := range n.asked(req) {
		reason, _ := n.exp.Ignored(svc)
		port := healthPort(svc)
		if reason != "" || port == 0 {
			continue
		}
		if is, wrong := n.notServed(svc, port); wrong {
			out = append(out, is)
			continue
		}
		if w == nil {
			w = n.newWorker(req, false)
		}
		out = append(out, w.blocked(svc, port)...)
	}
	return out
}}

// notServed tells whether kube-proxy does not listen at a health-check port.
func (n *node) notServed(svc *corev1.Service, port uint16) (is issue, wrong bool) {
	if !n.SocketsRead {
		return is, false
	}
	var other *host.Socket
	for i := range n.Sockets {
		switch s := &n.Sockets[i]; {
		case s.Protocol != "tcp" || s.Port != port:
		case n.isProxy(s):
			return is, false
		default:
			other = s
		}
	}
	is = issue{
		code: HealthCheckNotServed, subject: expect.NameOf(svc).String() + " " + strconv.Itoa(int(port)),
		expected: "kube-proxy listens", actual: "nothing does",
		message: fmt.Sprintf("nothing listens at port %d, where load balancers ask whether this node has endpoints of %s: "+
			"they conclude that it has none", port, expect.NameOf(svc)),
		evidence: say(snapshot.ListenFile + ": nothing at TCP port " + strconv.Itoa(int(port))),
	}
	if other != nil {
		is.actual = processOf(other) + " does"
		is.message = fmt.Sprintf("%s listens at port %d, where load balancers ask whether this node has endpoints of %s: "+
			"kube-proxy cannot answer them", processOf(other), port, expect.NameOf(svc))
		is.evidence = nil
	}
	return is, true
}

// blocked walks a packet from outside to a health-check port at the node's own addresses.
func (w *worker) blocked(svc *corev1.Service, port uint16) []issue {
	for _, family := range nodestate.Families {
		at := w.internalIP(family == netfilter.IPv4)
		if !at.IsValid() || w.unread[family] != "" || w.NotAll[family] != nil || !w.hasFamily(svc, at) {
			continue
		}
		f := expect.Frontend{
			Service: expect.NameOf(svc), Kind: expect.NodePort, Address: at, Port: port, Protocol: corev1.ProtocolTCP,
		}
		from := w.stranger(f, nil)
		if !from.IsValid() {
			continue
		}
		o := w.external(&f, from)
		res := w.walker.Walk(start(f, o), netfilter.Options{Enters: w.enters(&f, &o, false)})
		if len(res.Outcomes) == 0 || slices.ContainsFunc(res.Outcomes, func(x netfilter.Outcome) bool {
			return !x.Certain || x.End != netfilter.Dropped && x.End != netfilter.Rejected
		}) {
			continue
		}
		by := res.Outcomes[0].Where
		is := issue{
			code: HealthCheckBlocked, subject: expect.NameOf(svc).String() + " " + netip.AddrPortFrom(at, port).String(),
			where: by, expected: "given to kube-proxy", actual: "dropped", evidence: []report.Evidence{cite(by)},
			message: fmt.Sprintf(
				"what comes from outside to port %d, where load balancers ask whether this node has endpoints "+
					"of %s, does not get to kube-proxy: tried with %s as the source",
				port,
				expect.NameOf(svc),
				from,
			),
		}
		if res.Outcomes[0].End == netfilter.Rejected {
			is.actual = "rejected"
		}
		if namesSources(by.Chain) {
			is.severity = note
			is.message += "; rules beside it tell sources apart, and may let the load balancer's through"
		}
		return []issue{is}
	}
	return nil
}

// hasFamily tells whether a Service has addresses of the family of an address.
func (n *node) hasFamily(svc *corev1.Service, a netip.Addr) bool {
	return slices.ContainsFunc(n.frontends(svc), func(f expect.Frontend) bool { return f.Address.Is4() == a.Is4() })
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

// firstNodePort and lastNodePort are the range of NodePorts where the API server is not told another one
// (pkg/kubeapiserver/options/options.go, DefaultServiceNodePortRange).
const firstNodePort, lastNodePort = 30000, 32767

// staleHealthChecks finds ports of the range of NodePorts at which kube-proxy listens for no Service. Load balancers
// that still ask there get an answer.
var staleHealthChecks = &detector{stage: stageBackwards, node: func(n *node) []issue {
	var found []uint16
	for i := range n.Sockets {
		s := &n.Sockets[i]
		if s.Protocol != "tcp" || s.Process != kubeproxy.Process || s.Port < firstNodePort || s.Port > lastNodePort ||
			n.survey.frontends[frontendKey{proto: netfilter.TCP, port: s.Port}] {
			continue
		}
		found = append(found, s.Port)
	}
	if len(found) == 0 {
		return nil
	}
	return []issue{{
		code: HealthCheckStale, subject: joinPorts(found, 4), expected: "a Service with this healthCheckNodePort or NodePort",
		actual: "none",
		message: "kube-proxy listens at a port that no Service has: it has not noticed that a Service was deleted, and a " +
			"load balancer that asks there takes the node for one with endpoints",
		evidence: say(snapshot.ListenFile + ": " + kubeproxy.Process + " at TCP port " + joinPorts(found, maxEvidence)),
	}}
}}
