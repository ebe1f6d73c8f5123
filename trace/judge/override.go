// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/kubeproxy"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Programmed says that the command program serves the frontend ahead of kube-proxy.
const Programmed = "Programmed"

var _ = register(kind{
	code:     Programmed,
	severity: note,
	scope:    onPath,
	by:       byProgram,
	remedy: advice("nothing to do while it is meant to be so",
		command{line: "kubectl svcproxy cleanup --running --node {node}", when: "to end it before its time"}),
})

// byProgram finds out whether the command program has put a path there ahead of kube-proxy's.
var byProgram = &detector{stage: stageProgrammed, path: func(p *pathCase) []issue {
	i := p.ofProgram()
	if i < 0 {
		return nil
	}
	by := p.got.list[i].by
	if p.got.list[i].byOwner != program {
		by = p.got.list[i].where
	}
	if is, ok := p.orphan(by); ok {
		return []issue{is}
	}
	return []issue{
		{
			code:     Programmed,
			where:    by,
			evidence: []report.Evidence{cite(by)},
			message: fmt.Sprintf(
				"%s was programmed by kubectl svcproxy program; kube-proxy's own rules for it are bypassed until that ends",
				by,
			),
		},
	}
}}

// ofProgram returns an outcome that a rule of the command program decides; -1 where none does.
func (p *pathCase) ofProgram() int {
	return slices.IndexFunc(p.got.list, func(o outcome) bool { return o.byOwner == program || o.atOwner == program })
}

// programmed tells whether rules of the command program decide.
func (p *pathCase) programmed() bool { return p.ofProgram() >= 0 }

// programServers are the frontends that the command program has given to IPVS: a rule of its own translates them to
// themselves, so that nobody else translates them (nodehelper/program/ipvs_rules.go).
func (n *node) programServers() map[frontendKey]bool {
	out := map[frontendKey]bool{}
	for _, t := range n.Rules.Tables {
		if t.Name != "nat" {
			continue
		}
		for _, c := range t.Chains {
			if !strings.HasPrefix(c.Name, kubeproxy.ProgramChainPrefix) {
				continue
			}
			for _, r := range c.Rules {
				if at := r.Key; at.Dst.IsValid() && at.DstPort != 0 && r.NAT == netip.AddrPortFrom(at.Dst, at.DstPort) {
					out[frontendKey{at.Dst, at.Proto, at.DstPort}] = true
				}
			}
		}
	}
	return out
}

// programmedAffinity judges whether clients stay with their endpoint on a path that the command program has put there.
func (p *pathCase) programmedAffinity() []issue {
	v := p.survey.servers[keyWithAddress(p.want.Frontend)]
	if v == nil || !slices.ContainsFunc(p.got.list, func(o outcome) bool { return o.virtual }) {
		return p.ruleAffinity()
	}
	return p.persistence(v)
}
