// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// By design: the API asks for it that packets are refused, or left alone. The expectation says so (expect.Path.Reason,
// expect.Node.Ignored).
var (
	_ = register(kind{code: expect.ReasonNoEndpoints, severity: note, scope: onPath, by: byDesign})
	_ = register(kind{code: expect.ReasonNoLocalEndpoints, severity: note, scope: onPath, by: byDesign})
	_ = register(kind{code: expect.ReasonSourceRange, severity: note, scope: onPath, by: byDesign})
	_ = register(kind{code: expect.ReasonNotForKubeProxy, severity: note, scope: onPath, by: byDesign})
	_ = register(kind{code: expect.ReasonHeadless, severity: note, scope: onPath, by: byDesign})
	_ = register(kind{code: expect.ReasonExternalName, severity: note, scope: onPath, by: byDesign})
	_ = register(kind{code: expect.ReasonNodePortAddress, severity: note, scope: onPath, by: byDesign})
	_ = register(kind{
		code: expect.ReasonKubeProxyBug, severity: warning, scope: onPath, by: byDesign,
		issues: []string{"kubernetes/kubernetes#121909"},
	})
)

// byDesign says of a path on which nothing is wrong why packets are refused, or left alone.
var byDesign = &detector{stage: stageByDesign, path: func(p *pathCase) []issue {
	want := p.want
	if p.verdict != report.Match || want.Reason == "" {
		return nil
	}
	p.verdict = report.ByDesign
	if want.Reason == expect.ReasonKubeProxyBug {
		p.verdict = report.Warning
	}
	is := issue{code: want.Reason, message: want.Why, expected: describe(want)}
	if want.Reason == expect.ReasonNoEndpoints {
		is.evidence = say(p.noSuchPort())
	}
	return []issue{is}
}}

// noSuchPort says that no pod which the Service selects has a container port of the name that is its targetPort: the
// controller leaves the port out of the slices then (FindPort in pkg/api/v1/pod/util.go). "" where one has it, or
// nothing tells.
func (p *pathCase) noSuchPort() string {
	f := &p.want.Frontend
	for i := range p.svc.Spec.Ports {
		port := &p.svc.Spec.Ports[i]
		if port.Name != f.PortName || port.Protocol != f.Protocol || port.TargetPort.Type != intstr.String ||
			len(p.svc.Spec.Selector) == 0 {
			continue
		}
		selector, selected := labels.SelectorFromSet(p.svc.Spec.Selector), 0
		for _, pod := range p.cluster.Pods {
			if pod.Namespace != p.svc.Namespace || !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			selected++
			for k := range pod.Spec.Containers {
				if slices.ContainsFunc(pod.Spec.Containers[k].Ports, func(c corev1.ContainerPort) bool {
					return c.Name == port.TargetPort.StrVal && c.Protocol == port.Protocol
				}) {
					return ""
				}
			}
		}
		if selected > 0 {
			return fmt.Sprintf("targetPort %s: of %s that the Service selects, as far as pods were read, no container has a "+
				"port of that name and protocol", port.TargetPort.StrVal, number(selected, "pod"))
		}
	}
	return ""
}

// leftAlone answers for a Service that kube-proxy programs nothing for.
func (n *node) leftAlone(svc *corev1.Service, reason, why string, req *Request) judged {
	client := n.clientOf(&issue{code: reason, actual: svc.Spec.ExternalName})
	p := report.Path{
		Verdict: report.ByDesign, Expected: report.Expected{Action: string(expect.None)},
		Frontend: report.Frontend{Kind: string(svc.Spec.Type), Address: svc.Spec.ClusterIP},
		Findings: n.findings([]issue{{code: reason, message: why, client: client}}),
	}
	if reason == expect.ReasonHeadless {
		p.Frontend = report.Frontend{Kind: reason}
	}
	if req.PerPathService {
		p.Service = &report.ObjectRef{Namespace: svc.Namespace, Name: svc.Name}
	}
	return judged{Path: p}
}
