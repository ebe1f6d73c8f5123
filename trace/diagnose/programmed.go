// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// How the chains and tables of nodehelper/program begin, and the device that it binds addresses to for IPVS.
const (
	programChains = "SVCPROXY-"
	programTables = "svcproxy-"
	programDevice = "svcproxy-ipvs"
)

// byProgram tells whether a rule is one that the command program has put there.
func byProgram(r netfilter.Ref) bool {
	return r.Chain != nil && (strings.HasPrefix(r.Chain.Name, programChains) ||
		r.Chain.Table.Backend == netfilter.BackendNative && strings.HasPrefix(r.Chain.Table.Name, programTables))
}

// ofService tells whether a rule is meant for Services: kube-proxy's, or one that stands in for it.
func ofService(r netfilter.Ref) bool { return byKube(r) || byProgram(r) }

// byProgramming finds out whether the command program has put a path there ahead of kube-proxy's.
func byProgramming(got *tally) *issue {
	i := slices.IndexFunc(got.outcomes, func(o outcome) bool { return byProgram(o.by) || byProgram(o.where) })
	if i < 0 {
		return nil
	}
	by := got.outcomes[i].by
	if !byProgram(by) {
		by = got.outcomes[i].where
	}
	return &issue{
		code: Programmed, where: by, evidence: []string{cite(by)},
		message: fmt.Sprintf("%s was programmed by kubectl svcproxy program; kube-proxy's own rules for it are passed over until that ends", by),
	}
}

// programServers are the frontends that the command program has given to IPVS: a rule of its own translates them to themselves, so that nobody else
// translates them (nodehelper/program/ipvs_rules.go).
func (n *node) programServers() map[frontendKey]bool {
	out := map[frontendKey]bool{}
	for _, t := range n.rules.Tables {
		if t.Name != "nat" {
			continue
		}
		for _, c := range t.Chains {
			if !strings.HasPrefix(c.Name, programChains) {
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

// programAffinity judges whether clients stay with their endpoint on a path that the command program has put there.
func (j *judge) programAffinity(want *expect.Path, got *tally) []issue {
	f := want.Frontend
	v := j.servers[frontendKey{f.Address, protocolNumber(f.Protocol), f.Port}]
	if v == nil || !slices.ContainsFunc(got.outcomes, func(o outcome) bool { return o.virtual }) {
		return j.affinity(want, got)
	}
	return j.persistence(want, v)
}
