// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// NotJudged says that no path of a Service was judged, or not all of them: it is too large, or the judgement was ended.
const NotJudged = "NotJudged"

var _ = register(kind{
	code: NotJudged, severity: note, scope: onPath, by: limits,
	remedy: advice("give the Service fewer ports, addresses, source ranges or endpoints, or divide it: until then the "+
		"rules for it have to be read by people", command{line: "kubectl get service,endpointslices -n {subject}"}),
})

// ended is why Services were not judged when Request.Done was closed.
const ended = "the judgement was ended before"

var errStopped = errors.New("the judgement was ended")

// stopped returns whether the judgement has to end.
func (n *node) stopped() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// notJudged is the path that stands for those of a Service that were not judged.
func (n *node) notJudged(svc *corev1.Service, why string, req *Request) judged {
	name := expect.NameOf(svc)
	p := report.Path{
		Verdict: report.Unknown,
		Frontend: report.Frontend{
			Kind: string(cmp.Or(svc.Spec.Type, corev1.ServiceTypeClusterIP)), Address: svc.Spec.ClusterIP,
		},
		Findings: n.findings([]issue{{code: NotJudged, subject: svc.Namespace, message: fmt.Sprintf("%s: %s", name, why)}}),
	}
	if why == ended {
		p.Findings[0].Remedy, p.Findings[0].Commands = "", nil
	}
	p.Findings[0].Subject = name.String()
	if req.PerPathService {
		p.Service = &report.ObjectRef{Namespace: svc.Namespace, Name: svc.Name}
	}
	return judged{Path: p}
}

// inOrder are the places of Services in a list, those that cost little first: where the judgement is ended before all
// are judged, it is the dear ones that are not.
func (n *node) inOrder(services []*corev1.Service) []int {
	out := make([]int, len(services))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return n.exp.Cost(services[a]) - n.exp.Cost(services[b]) })
	return out
}

// due returns whether kube-proxy may have written rules for an address and port, that of a NodePort without address:
// for a Service that is judged or for one that is not.
func (n *node) due(k frontendKey) bool {
	return n.survey.frontends[k] || n.exp.Claimed(k.addr, k.port, protocolOf(k.proto))
}

func protocolOf(p uint8) corev1.Protocol {
	switch p {
	case netfilter.UDP:
		return corev1.ProtocolUDP
	case netfilter.SCTP:
		return corev1.ProtocolSCTP
	}
	return corev1.ProtocolTCP
}

// keepNotJudged takes out of a set of names of chains those that may be for an endpoint of a Service that is not
// judged, of which no endpoint is known: their rules name such a Service in their comments, or none, as on nodes with
// many endpoints.
func (n *node) keepNotJudged(gone map[string]bool) {
	ports := map[string]bool{}
	n.eachPortServed(func(svc *corev1.Service, port *corev1.ServicePort) {
		if n.exp.Beyond(svc) != "" {
			ports[kubeproxy.ServicePortName(svc.Namespace, svc.Name, port.Name)] = true
		}
	})
	names := n.mode.names()
	for _, t := range n.Rules.Tables {
		for _, c := range t.Chains {
			if !gone[c.Name] || !names.ofService(c.Name, names.Endpoint) {
				continue
			}
			i := slices.IndexFunc(c.Rules, func(r *netfilter.Rule) bool { return r.Comment != "" })
			if i < 0 || ports[ownerInComment(c.Rules[i])] {
				delete(gone, c.Name)
			}
		}
	}
}
