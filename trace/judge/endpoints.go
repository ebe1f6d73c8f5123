// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about which endpoints connections are sent to.
const (
	MissingEndpoint = "MissingEndpoint"
	StaleEndpoint   = "StaleEndpoint"
	UnevenShare     = "UnevenShare"
)

var _ = register(kind{
	code: MissingEndpoint, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
	issues: []string{"kubernetes/kubernetes#121362"},
})

// missingEndpoints finds endpoints that no rule leads to.
func missingEndpoints(want *expect.Path, got *outcomes) []issue {
	var out []issue
	for i := range want.Endpoints {
		at := want.Endpoints[i].Address
		if _, possible := got.share(at); !possible && !lostOnTheWay(got, at) {
			out = append(out, issue{
				code:      MissingEndpoint,
				subject:   at.String(),
				endpoints: []string{at.String()},
				expected:  percent(due(want)),
				actual:    "none",
				message:   "no rule leads to this endpoint",
			})
		}
	}
	return out
}

// leadsElsewhere says of a Service's chain that it leads to so many endpoints, none of which is missing.
func leadsElsewhere(c *netfilter.Chain, others int) string {
	if others == 0 {
		return chainName(c) + " leads to no endpoint"
	}
	return chainName(c) + " leads to " + number(others, "other endpoint") + " only"
}

// due is the share of each endpoint.
func due(want *expect.Path) float64 { return 1 / float64(len(want.Endpoints)) }

// lostOnTheWay tells whether packets are translated to an endpoint but do not get there: they are dropped, or have no
// route.
func lostOnTheWay(got *outcomes, to netip.AddrPort) bool {
	return slices.ContainsFunc(got.list, func(o outcome) bool { return o.to == to })
}

var _ = register(kind{
	code: StaleEndpoint, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
	issues: []string{"kubernetes/kubernetes#28674", "kubernetes/kubernetes#67875"},
})

// staleEndpoints finds destinations that are not endpoints of the path.
func staleEndpoints(want *expect.Path, got *outcomes) []issue {
	var out []issue
	for _, o := range got.translated() {
		if !want.Uses(o.to) {
			out = append(out, issue{
				code:      StaleEndpoint,
				subject:   o.to.String(),
				endpoints: []string{o.to.String()},
				expected:  "none",
				actual:    percent(o.share),
				where:     o.by,
				predicate: true,
				message:   "is not an endpoint to use here, but connections are sent to it",
				evidence:  []report.Evidence{cite(o.by)},
			})
		}
	}
	return out
}

var _ = register(kind{
	code: UnevenShare, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
	issues: []string{"kubernetes/kubernetes#121362"},
})

// uneven finds shares that are not what equal choice among the endpoints gives.
func uneven(n *node, want *expect.Path, got *outcomes) []issue {
	var off, endpoints []string
	for i := range want.Endpoints {
		at := want.Endpoints[i].Address
		if s, _ := got.share(at); differ(s, due(want)) {
			off = append(off, fmt.Sprintf("%s %s", at, percent(s)))
			endpoints = append(endpoints, at.String())
		}
	}
	if len(off) == 0 {
		return nil
	}
	is := issue{
		code: UnevenShare, endpoints: endpoints, expected: percent(due(want)) + " each", actual: cut(off, 6),
		message: "the rules do not choose the endpoints with equal chance",
	}
	if through := got.of(acceptAction); len(through) > 0 {
		is.message += fmt.Sprintf("; %s is not translated", percent(through[0].share))
	}
	for i := range got.list {
		if o := &got.list[i]; o.certain && n.notTranslated(o) {
			is.message += fmt.Sprintf("; %s is not translated, and %s refuses it", percent(o.share), o.where)
		}
	}
	return []issue{is}
}
