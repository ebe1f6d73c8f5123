// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// SharedFrontend says that several Services have the address and port.
const SharedFrontend = "SharedFrontend"

var _ = register(kind{
	code: SharedFrontend, severity: warning, scope: onPath, by: certain,
	remedy: advice("give one of the Services another address or port: kube-proxy serves the one that it finds first"),
})

// BrokenRule says that a rule of kube-proxy's was not read as it was written.
const BrokenRule = "BrokenRule"

var _ = register(kind{
	code: BrokenRule, severity: warning, scope: onPath, by: certain,
	remedy: advice("read the node with the iptables that wrote the rules; if it stays, align the versions and restart "+
		"kube-proxy on {node}", restartProxy),
	issues: []string{"kubernetes/kubernetes#114537", "kubernetes/kubernetes#112477"},
})

// certain makes of a path Unknown, or a Warning, what was not certain to be right.
var certain = &detector{stage: stageVerdict, path: func(p *pathCase) []issue {
	var out []issue
	if (p.got.uncertain || len(p.doubts) > 0) && p.verdict != report.Mismatch {
		p.verdict = report.Unknown
		out = append(out, p.brokenRule()...)
	}
	if p.unsettled && p.verdict != report.Mismatch {
		p.verdict = report.Unknown
	}
	out = append(out, p.notAll()...)
	switch {
	case p.verdict == report.Mismatch:
	case p.want.Unsure != "":
		p.verdict = report.Unknown
		out = append(out, issue{code: NotCollected, message: p.want.Unsure})
	default:
		for _, is := range p.severalAnswers() {
			p.verdict = report.Worse(p.verdict, report.Warning)
			out = append(out, is)
		}
	}
	return out
}}

func (p *pathCase) brokenRule() []issue {
	for _, u := range p.uncertain() {
		if r := u.Where.Rule; r != nil && r.Target == "DNAT" && p.byKubeProxy(u.Where) && !masked(r) {
			return []issue{
				{
					code:     BrokenRule,
					subject:  u.Where.Chain.Name,
					where:    u.Where,
					evidence: []report.Evidence{cite(u.Where)},
					message: "kube-proxy's DNAT rule has no usable destination as it was read: an iptables of another version " +
						"wrote it, or read it",
				},
			}
		}
	}
	return p.notEvaluated()
}
