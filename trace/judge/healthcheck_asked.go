// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// HealthCheckAnswer says that a health-check port answers something else than the API asks for.
const HealthCheckAnswer = "HealthCheckAnswer"

var _ = register(kind{
	code: HealthCheckAnswer, severity: mismatch, scope: onPath, by: segments,
	remedy: advice("kube-proxy on {node} does not know the Service's endpoints as the API has them, or calls itself "+
		"unhealthy: look at its log, then restart it", restartProxy),
})

// The codes of HTTP that kube-proxy answers health checks by.
const (
	endpointsCode  = 200
	noEndpointCode = 503 // it does so, too, where it calls itself unhealthy
)

// HealthQuestions are the health-check ports of the client's node that a load balancer of the Service asks: at the
// node's own address of each family that the Service has. It is empty where the Service has none.
func HealthQuestions(c *Cluster, ends *Ends) []netip.AddrPort {
	t := newTour(c, ends)
	svc := c.services[ends.Service]
	if t == nil || svc == nil {
		return nil
	}
	return t.healthPorts(svc)
}

// healthPorts are where load balancers ask the node for a Service.
func (n *node) healthPorts(svc *corev1.Service) (out []netip.AddrPort) {
	port := healthPort(svc)
	if reason, _ := n.exp.Ignored(svc); port == 0 || reason != "" {
		return nil
	}
	for _, v4 := range []bool{true, false} {
		if at := n.healthAddress(svc, v4); at.IsValid() {
			out = append(out, netip.AddrPortFrom(at, port))
		}
	}
	return out
}

// localReady counts the endpoints of a Service on the node that are ready, by family: what kube-proxy answers health
// checks by (LocalReadyEndpoints in pkg/proxy/endpointschangetracker.go: addresses, not ports; those that are
// terminating do not count).
func (n *node) localReady(svc *corev1.Service) (count [2]int) {
	seen := map[netip.Addr]bool{}
	for _, slice := range n.cluster.EndpointSlices {
		if expect.ServiceOf(slice) != expect.NameOf(svc) {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.NodeName == nil || *e.NodeName != n.Name || !expect.IsReady(e) {
				continue
			}
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && !seen[a] {
					seen[a] = true
					count[familyIndex(a.Is4())]++
				}
			}
		}
	}
	return count
}

// addHealth adds to a path from outside to a load-balancer's address what the node answers health checks: a load
// balancer sends to it for that alone. ofNode are the findings of the node, among which are those of its ports.
func (t *tour) addHealth(p *report.Path, ofNode []report.Finding) {
	svc := t.cluster.services[t.ends.Service]
	if svc == nil || p.Origin.Kind != string(expect.FromExternal) ||
		p.Frontend.Kind != string(expect.LoadBalancerIP) {
		return
	}
	at, err := netip.ParseAddr(p.Frontend.Address)
	ports := t.healthPorts(svc)
	k := slices.IndexFunc(ports, func(x netip.AddrPort) bool { return x.Addr().Is4() == at.Is4() })
	if err != nil || k < 0 {
		return
	}
	s, found := t.health(svc, ports[k])
	s.Segment, s.Place = report.SegmentHealthCheck, "node "+t.Name
	p.Segments = slices.Insert(p.Segments, 0, s)
	if !slices.ContainsFunc(ofNode, func(f report.Finding) bool { return f.Code == s.Code }) {
		more := t.findings(found)
		p.Findings = append(p.Findings, more...)
		p.Verdict = report.WithFindings(p.Verdict, more)
	}
	report.Complete(p)
}

// health judges a health-check port: who listens, whether packets get there, and what was answered.
func (t *tour) health(svc *corev1.Service, at netip.AddrPort) (s report.Segment, found []issue) {
	of := func(is issue) (report.Segment, []issue) {
		s := report.Segment{
			Verdict: report.SegmentWrong, Code: is.code, Message: is.message, Evidence: is.evidence,
			Owner: "the owner of the rule",
		}
		switch {
		case is.severity == note:
			s.Verdict, s.Owner = report.SegmentUnknown, ""
		case is.code != HealthCheckBlocked:
			s.Owner = "kube-proxy"
		}
		return s, []issue{is}
	}
	command := "curl -s -o /dev/null -w '%{http_code}' http://" + at.String() + "/"
	unknown := func(format string, args ...any) (report.Segment, []issue) {
		return report.Segment{
			Verdict: report.SegmentUnknown, Message: fmt.Sprintf(format, args...), Command: command, Node: t.Name,
		}, nil
	}
	code, expected := t.healthExpected(svc)
	if t.Proxy.Down() {
		return unknown("kube-proxy does not run: nothing answers health checks at %s", at)
	}
	if is, wrong := t.notServed(svc, at.Port(), at); wrong {
		return of(is)
	}
	is, wrong, unsure := t.newWorker(&Request{}, false).blocked(svc, at.Port())
	if wrong {
		return of(is)
	}
	if a := t.healthAnswer(at); a != nil {
		return t.healthAnswered(svc, a, code, expected, unknown)
	}
	if !t.SocketsRead {
		return unknown("expected at %s: %s; who listens there was not read (%s)", at, expected, snapshot.ListenFile)
	}
	if unsure != "" {
		return unknown("kube-proxy listens at %s; expected: %s; it is not known %s", at, expected, unsure)
	}
	return report.Segment{
		Verdict: report.SegmentRight, Command: command, Node: t.Name,
		Message: fmt.Sprintf("kube-proxy listens at %s; expected: %s; the answer is not known (--live asks)", at, expected),
	}, nil
}

// healthExpected is the code that kube-proxy has to answer, and why; 0 where that cannot be told.
func (t *tour) healthExpected(svc *corev1.Service) (code int, why string) {
	count := t.localReady(svc)
	n := max(count[0], count[1])
	for i, family := range []bool{true, false} {
		has := slices.ContainsFunc(t.frontends(svc), func(f expect.Frontend) bool { return f.Address.Is4() == family })
		if has && count[i] == 0 && n > 0 {
			return 0, "200 or 503, as only one family has local endpoints"
		}
	}
	if n == 0 {
		return noEndpointCode, "503, as no ready endpoint is on this node"
	}
	return endpointsCode, fmt.Sprintf("200, as %s %s on this node", number(n, "ready endpoint"), verb(n, "is", "are"))
}

// healthAnswer is what a port answered; nil where it was not asked.
func (t *tour) healthAnswer(at netip.AddrPort) *snapshot.HealthAnswer {
	if t.ends.Health == nil {
		return nil
	}
	for i := range t.ends.Health.List {
		if a := &t.ends.Health.List[i]; a.At == at {
			return a
		}
	}
	return nil
}

// healthAnswered compares an answer with what is expected.
func (t *tour) healthAnswered(
	svc *corev1.Service, a *snapshot.HealthAnswer, code int, expected string,
	unknown func(string, ...any) (report.Segment, []issue),
) (s report.Segment, found []issue) {
	name := expect.NameOf(svc).String()
	said := fmt.Sprintf("%s answers %d", a.At, a.Code)
	if a.KubeProxy {
		said += fmt.Sprintf(" (%s, %s)", a.Service, number(a.Local, "local endpoint"))
	}
	unhealthy := a.Healthy != nil && !*a.Healthy
	switch {
	case a.Code == 0:
		return unknown("%s does not answer the node itself (%s); expected: %s", a.At, a.Error, expected)
	case !a.KubeProxy:
		return unknown("%s, and not in the form of kube-proxy; expected: %s", said, expected)
	case code == 0 || a.Code == code && a.Service == name:
		return report.Segment{Verdict: report.SegmentRight, Message: said + "; expected: " + expected}, nil
	case a.Code == noEndpointCode && unhealthy:
		said += ": kube-proxy calls itself unhealthy"
	}
	is := issue{
		code: HealthCheckAnswer, subject: name + " " + a.At.String(), expected: expected, actual: fmt.Sprint(a.Code),
		message:  said + "; expected: " + expected + ": the load balancer sends here what this node drops",
		evidence: say(fmt.Sprintf("GET http://%s/: %d", a.At, a.Code)),
	}
	switch {
	case a.Service != name:
		is.message = said + ": it answers for another Service than " + name
	case code == endpointsCode:
		is.severity = warning
		is.message = said + "; expected: " + expected + ": the load balancer sends nothing to this node"
	}
	return report.Segment{
		Verdict: report.SegmentWrong, Code: is.code, Owner: "kube-proxy", Message: is.message, Evidence: is.evidence,
	}, []issue{is}
}
