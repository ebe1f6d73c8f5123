// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// SharedFrontend says that several Services have the address and port.
const SharedFrontend = "SharedFrontend"

var _ = register(kind{
	code: SharedFrontend, severity: warning, scope: onPath, by: certain,
	remedy: advice("give one of the Services another address or port: kube-proxy serves whichever it comes across first"),
})

// sharedFrontend recognises an address and port that several Services claim: kube-proxy programs all of them, and the
// one that comes first takes the packets.
func (p *pathCase) sharedFrontend() *issue {
	for _, other := range p.survey.owners[keyOf(p.want.Frontend)] {
		if other.Service == p.want.Frontend.Service {
			continue
		}
		theirs := p.exp.Path(other, p.want.Origin)
		if len(compare(p.node, &theirs, &p.got)) == 0 {
			return &issue{
				code: SharedFrontend, subject: other.Service.String(), expected: describe(p.want), actual: describe(&theirs),
				predicate: true, message: "has the same address and port, and takes the packets",
			}
		}
	}
	return nil
}

// sharing returns another Service's frontend with the same address and port, nil when there is none.
func (p *pathCase) sharing() *expect.Frontend {
	others := p.survey.owners[keyOf(p.want.Frontend)]
	for i := range others {
		if others[i].Service != p.want.Frontend.Service {
			return &others[i]
		}
	}
	return nil
}

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
	if p.got.uncertain && p.verdict != report.Mismatch {
		p.verdict = report.Unknown
		out = append(out, p.brokenRule()...)
	}
	shared := p.sharing()
	switch {
	case shared != nil && p.verdict == report.Match:
		p.verdict = report.Warning
		out = append(out, issue{
			code: SharedFrontend, subject: shared.Service.String(), expected: describe(p.want),
			predicate: true, message: "has the same address and port; this one takes the packets",
		})
	case shared == nil && p.want.Unsure != "" && p.verdict != report.Mismatch:
		p.verdict = report.Unknown
		out = append(out, issue{code: NotCollected, message: p.want.Unsure})
	}
	return out
}}

func (p *pathCase) brokenRule() []issue {
	for _, u := range p.res.Uncertain {
		if u.Where.Rule != nil && u.Where.Rule.Target == "DNAT" && p.byKubeProxy(u.Where) {
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
	return nil
}
