// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// comparison compares what must happen with what does. It judges only what is certain; an issue is never due to
// something that could not be read.
var comparison = &detector{
	stage: stageCompare,
	path:  func(p *pathCase) []issue { return compare(p.node, p.want, &p.got) },
}

func compare(n *node, want *expect.Path, got *outcomes) []issue {
	if foreign := shadow(got); foreign != nil {
		// Where all that it sends goes to the same endpoints in the same shares, what counts is where packets end.
		// Clients that are to stay with an endpoint do so by kube-proxy's rules.
		stay := want.AffinitySeconds > 0 && len(want.Endpoints) > 1
		if want.Action == expect.DNAT && !got.uncertain && !stay && len(compareDNAT(n, want, got)) == 0 {
			foreign.severity = warning
			foreign.message += ", which is what kube-proxy's rules do now: it does not follow when endpoints change"
		}
		return []issue{*foreign}
	}
	switch want.Action {
	case expect.DNAT:
		return compareDNAT(n, want, got)
	case expect.Reject, expect.Drop:
		return compareRefusal(want, got)
	case expect.None:
		return compareNone(want, got)
	}
	return nil
}

// compareDNAT compares a path that must lead to endpoints.
func compareDNAT(n *node, want *expect.Path, got *outcomes) []issue {
	issues := refusals(n, want, got)
	if got.all(acceptAction) {
		return append(issues, issue{
			code: ServiceNotProgrammed, expected: describe(want), actual: "is not translated",
			message: "no rule translates the packet: it continues to " +
				netip.AddrPortFrom(want.Frontend.Address, want.Frontend.Port).String() + " itself, where nothing answers",
		})
	}
	if len(issues) > 0 && len(got.translated()) == 0 {
		return issues
	}
	issues = append(issues, missingEndpoints(want, got)...)
	issues = append(issues, staleEndpoints(want, got)...)
	if len(issues) == 0 && !got.uncertain && got.sharing() == "" {
		issues = append(issues, uneven(n, want, got)...)
	}
	return append(issues, masquerading(want, got)...)
}

// compareNone looks at a frontend that kube-proxy leaves alone: nothing of kube-proxy's may touch it.
func compareNone(want *expect.Path, got *outcomes) []issue {
	for _, o := range got.translated() {
		return []issue{
			{
				code:     AcceptedWithoutEndpoints,
				expected: "nothing",
				actual:   "sent to " + o.to.String(),
				where:    o.by,
				evidence: []report.Evidence{cite(o.by)},
				message:  "kube-proxy should leave this address alone (" + want.Why + "), yet its rules translate it",
			},
		}
	}
	return nil
}

// Shadowed says that a translation by a rule that is not kube-proxy's took the packet before kube-proxy's rules could,
// or a process other than kube-proxy listens where kube-proxy should.
const Shadowed = "Shadowed"

var _ = register(kind{
	code: Shadowed, severity: mismatch, scope: onPath, by: comparison,
	effect: map[string]string{notMasqueraded: "not masqueraded"},
	remedy: advice(
		"find who owns {where}: a hostPort, a port forward or another proxy takes this address and port first; give one of "+
			"the two another address or port", command{chain: true},
	),
	issues: []string{"kubernetes/kubernetes#66103", "containernetworking/plugins#269"},
})

func shadow(got *outcomes) *issue {
	for i := range got.list {
		o := &got.list[i]
		if !o.certain || !o.to.IsValid() || o.by.Chain == nil || o.byOwner != others {
			continue
		}
		return &issue{
			code: Shadowed, where: o.by, actual: fmt.Sprintf("%s to %s", percent(o.share), o.to),
			message:  fmt.Sprintf("%s, which is not kube-proxy's, takes the packet first and sends it to %s", o.by, o.to),
			evidence: []report.Evidence{cite(o.by)},
		}
	}
	return nil
}
