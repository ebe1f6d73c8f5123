// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
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

// notForNodeAddress is the remedy where kube-proxy listens at other addresses than the node's own: it opens
// health-check ports at the addresses in nodePortAddresses alone (pkg/proxy/healthcheck/service_health.go,
// newServiceHealthServer).
var notForNodeAddress = advice("kube-proxy opens health-check ports only at the node's addresses in nodePortAddresses "+
	"of its configuration: make them contain the address that load balancers ask, or let load balancers ask the other one",
	command{line: "ss -ltnp", onNode: true})

// silentProxy is the remedy where kube-proxy has the port and takes no connections.
var silentProxy = advice("find out what has stopped kube-proxy's process (SIGSTOP, a debugger, a frozen control "+
	"group), and resume it (kill -CONT), or restart it", command{line: "ps -e -o pid,stat,comm", onNode: true},
	restartProxy)

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
		if is, wrong := n.notServed(svc, port, n.healthPorts(svc)...); wrong {
			out = append(out, is)
			continue
		}
		if w == nil {
			w = n.newWorker(req, false)
		}
		if is, wrong, _ := w.blocked(svc, port); wrong {
			out = append(out, is)
		}
	}
	return out
}}

// healthAddress is the node's own address of a family at which load balancers ask for a Service; invalid where there is
// none, or where the Service has no address of that family.
func (n *node) healthAddress(svc *corev1.Service, v4 bool) netip.Addr {
	if at := n.internalIP(v4); at.IsValid() && n.hasFamily(svc, at) {
		return at
	}
	return netip.Addr{}
}

// notServed tells whether kube-proxy does not listen at a health-check port: at none of the addresses where load
// balancers ask, as far as these are known.
func (n *node) notServed(svc *corev1.Service, port uint16, at ...netip.AddrPort) (is issue, wrong bool) {
	if !n.SocketsRead {
		return is, false
	}
	var other, elsewhere, silent *host.Socket
	for i := range n.Sockets {
		switch s := &n.Sockets[i]; {
		case s.Protocol != "tcp" || s.Port != port:
		case n.isOther(s):
			other = s
		case s.Stopped || s.Full():
			silent = s
		case len(at) == 0 || slices.ContainsFunc(at, func(a netip.AddrPort) bool {
			return s.Accepts("tcp", a) || s.MayAccept("tcp", a)
		}):
			return is, false
		default:
			elsewhere = s
		}
	}
	is = issue{
		code: HealthCheckNotServed, subject: expect.NameOf(svc).String() + " " + strconv.Itoa(int(port)),
		expected: "kube-proxy listens", actual: "nothing does",
		message: fmt.Sprintf("nothing listens at port %d, where load balancers ask whether this node has endpoints of %s: "+
			"they conclude that it has none", port, expect.NameOf(svc)),
		evidence: say(snapshot.ListenFile + ": nothing at TCP port " + strconv.Itoa(int(port))),
	}
	switch {
	case silent != nil:
		is.actual, is.evidence = "it does not answer", say(snapshot.StoppedFile+": "+processOf(silent))
		is.message = fmt.Sprintf("%s, which listens at port %d, is stopped: load balancers that ask whether this node has "+
			"endpoints of %s get no answer", processOf(silent), port, expect.NameOf(svc))
		if !silent.Stopped {
			is.message = fmt.Sprintf(
				"the queue of the socket that listens at port %d is full: load balancers that ask whether "+
					"this node has endpoints of %s get no answer",
				port,
				expect.NameOf(svc),
			)
			is.evidence = say(fmt.Sprintf("%s: %d of %d connections wait at TCP port %d", snapshot.ListenFile, silent.Queue,
				silent.Backlog, port))
		}
		is.remedy = n.advise(silentProxy, &is)
	case elsewhere != nil:
		socket := netip.AddrPortFrom(elsewhere.Address, port).String()
		is.actual = "it listens at " + socket
		is.message = fmt.Sprintf("kube-proxy listens at %s alone, and load balancers ask %s whether this node has "+
			"endpoints of %s: they conclude that it has none", socket, at[0], expect.NameOf(svc))
		is.evidence = say(snapshot.ListenFile + ": " + kubeproxy.Process + " at TCP " + socket)
		is.remedy = n.advise(notForNodeAddress, &is)
	case other != nil:
		is.actual = processOf(other) + " does"
		is.message = fmt.Sprintf("%s listens at port %d, where load balancers ask whether this node has endpoints of %s: "+
			"kube-proxy cannot answer them", processOf(other), port, expect.NameOf(svc))
		is.evidence = nil
	}
	return is, true
}

// hasFamily tells whether a Service has addresses of the family of an address.
func (n *node) hasFamily(svc *corev1.Service, a netip.Addr) bool {
	return slices.ContainsFunc(n.frontends(svc), func(f expect.Frontend) bool { return f.Address.Is4() == a.Is4() })
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
		if is, _ := n.isProxy(s); !is || s.Protocol != "tcp" || s.Process != kubeproxy.Process || s.Port < firstNodePort ||
			s.Port > lastNodePort ||
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
