// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// LoadBalancerBypassed says that connections from inside the cluster do not meet the load balancer whose address they
// go to, and which does something to connections.
const LoadBalancerBypassed = "LoadBalancerBypassed"

const bypassedAdvice = "have the load balancer's controller set ipMode: Proxy in the Service's status (or a hostname " +
	"in place of the address), so that nodes leave the address alone; or let clients inside the cluster use the cluster " +
	"IP, at a port that accepts what they send"

var _ = register(kind{
	code: LoadBalancerBypassed, severity: warning, scope: onPath, by: bypassedLoadBalancer,
	effect: map[string]string{"": "{actual}"},
	remedy: advice(bypassedAdvice),
	issues: []string{"kubernetes/kubernetes#66607", "hetznercloud/hcloud-cloud-controller-manager#727"},
})

// added is what a load balancer adds to connections, and how the annotations are called by which controllers of clouds
// ask for it: part of the key, or of the value.
var added = []struct {
	what  string
	marks []string
}{
	{"the PROXY protocol's header", []string{"proxy-protocol", "proxyprotocol", "proxy_protocol_v2.enabled=true"}},
	{"TLS, which the load balancer terminates", []string{"load-balancer-ssl-cert", "load-balancer-certificate"}},
}

// bypassedLoadBalancer finds paths from inside to a load balancer's address that rules short-cut, where the Service's
// annotations say that endpoints expect what only the load balancer adds.
var bypassedLoadBalancer = &detector{stage: stageSettings, path: func(p *pathCase) []issue {
	want := p.want
	if want.Frontend.Kind != expect.LoadBalancerIP || want.Origin.Kind == expect.FromExternal ||
		want.Action != expect.DNAT || len(p.got.translated()) == 0 {
		return nil
	}
	for _, a := range added {
		key := annotated(p.svc, a.marks)
		if key == "" {
			continue
		}
		return []issue{{
			code: LoadBalancerBypassed, subject: want.Frontend.Address.String(), expected: "through the load balancer",
			actual: "without " + a.what, evidence: say("annotation " + key + ": " + p.svc.Annotations[key]),
			message: fmt.Sprintf("the node's rules lead directly to the endpoints, without the load balancer: connections "+
				"from here do not have %s, which the endpoints of this Service may require", a.what),
			remedy: report.Remedy{Text: bypassedAdvice, Commands: []report.Command{{
				When: "to see what the controller has set",
				Line: report.ShellLine("kubectl", "get", "-n", p.svc.Namespace, "service/"+p.svc.Name, "-o",
					"jsonpath={.status.loadBalancer.ingress}"),
			}}},
		}}
	}
	return nil
}}

// annotated returns the first annotation of a Service whose key or value has one of some marks and that is not turned
// off; "" for none.
func annotated(svc *corev1.Service, marks []string) string {
	for _, key := range slices.Sorted(maps.Keys(svc.Annotations)) {
		value := strings.ToLower(strings.TrimSpace(svc.Annotations[key]))
		if slices.Contains([]string{"", "false", "none", "off", "no", "0", "disabled"}, value) {
			continue
		}
		if slices.ContainsFunc(marks, func(m string) bool {
			return strings.Contains(strings.ToLower(key), m) || strings.Contains(value, m)
		}) {
			return key
		}
	}
	return ""
}
