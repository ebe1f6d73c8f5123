// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// ofTranslation are the findings about where nat, or IPVS, sends connections: no rule of another table can make that
// right. What is refused, let through or masqueraded other tables decide as well: they may drop a packet, or mark it.
var ofTranslation = []string{
	MissingEndpoint, StaleEndpoint, UnevenShare, ServiceNotProgrammed, NotProgrammed, FamilyMissing, Shadowed,
	TrafficPolicyMismatch, AffinityMissing, AffinityUnexpected, AffinityTimeout,
	VIPMissing, VirtualServerMissing, RealServerWeightZero, SchedulerMismatch, PersistenceMismatch, ForwardMethod,
}

// provable leaves out what a path's walk does not prove, because tables were not read that its packets meet.
func (p *pathCase) provable(found []report.Finding) []report.Finding {
	x := p.NotAll[netfilter.FamilyOf(p.want.Frontend.Address)]
	if x == nil {
		return found
	}
	nat := len(x.Tables) > 0 && !x.Has("nat")
	translated := p.want.Action == expect.DNAT || len(p.got.translated()) > 0
	return slices.DeleteFunc(found, func(f report.Finding) bool {
		if f.Severity != report.Error || nat && translated && slices.Contains(ofTranslation, f.Code) {
			return false
		}
		if p.unsaid == "" && f.Code != NotProgrammed && f.Code != FamilyMissing {
			p.unsaid = strings.TrimSpace(f.Code + " " + f.Subject)
		}
		return true
	})
}

// notAll makes a path Unknown that would be right if the tables that were not read had nothing against it.
func (p *pathCase) notAll() []issue {
	x := p.NotAll[netfilter.FamilyOf(p.want.Frontend.Address)]
	if x == nil || p.verdict == report.Mismatch {
		return nil
	}
	p.verdict = report.Unknown
	message := x.String()
	if p.unsaid != "" {
		message += "; the tables that were read show " + p.unsaid + ", if nothing in the others changes that"
	}
	return []issue{{code: NotCollected, message: message}}
}

// holes tells whether a part is missing of the tables in which the mode keeps the chains of Services.
func (n *node) holes(f netfilter.Family) bool {
	return n.NotAll[f].Has("nat") || slices.ContainsFunc(n.Rules.Tables, func(t *netfilter.Table) bool {
		return n.mode.home(t) && t.Family&f != 0 && t.Holes != ""
	})
}

// masked tells whether somebody has made the destination of a rule unreadable ("x.x.x.x:80", "<address>:80"): what
// kube-proxy or an iptables of another version writes there has no letters but those of IPv6 addresses.
func masked(r *netfilter.Rule) bool {
	_, to, ok := strings.Cut(r.Text, "--to-destination ")
	to, _, _ = strings.Cut(to, " ")
	return ok && strings.Trim(strings.ToLower(to), "0123456789abcdef.:[]-") != ""
}
