// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// How the chains and tables of nodehelper/program begin.
const (
	programChains = "SVCPROXY-"
	programTables = "svcproxy-"
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
