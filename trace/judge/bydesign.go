// SPDX-License-Identifier: Apache-2.0

package judge

import (
	corev1 "k8s.io/api/core/v1"

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
