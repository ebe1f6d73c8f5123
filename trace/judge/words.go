// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// maxEvidence is how many rules of a chain are quoted.
const maxEvidence = 8

// maxCited is how much of a rule is quoted: one of nftables mode names all the endpoints of a Service.
const maxCited = 600

// ruleRef is a place as the report names it; the zero RuleRef for none. Nothing in it keeps the node's rules alive.
func ruleRef(r netfilter.Ref) report.RuleRef {
	if r.Chain == nil {
		return report.RuleRef{}
	}
	t := r.Chain.Table
	out := report.RuleRef{Table: strings.Clone(t.Name), Backend: string(t.Backend), Chain: strings.Clone(r.Chain.Name)}
	if r.Rule != nil {
		out.Rule = r.Rule.Num
		if t.Backend == netfilter.BackendIPVS {
			out.Server = strings.Clone(r.Rule.Target)
		}
	}
	return out
}

// cite quotes a rule as evidence; the zero Evidence for no place.
func cite(r netfilter.Ref) report.Evidence {
	out := report.Evidence{Where: ruleRef(r)}
	if r.Rule != nil {
		out.Text = strings.Clone(short(r.Rule.Text))
	}
	return out
}

// say makes evidence of texts that name no rule; empty ones are left out.
func say(texts ...string) []report.Evidence {
	out := make([]report.Evidence, 0, len(texts))
	for _, s := range texts {
		if s != "" {
			out = append(out, report.Evidence{Text: strings.Clone(s)})
		}
	}
	return out
}

func short(text string) string {
	if len(text) <= maxCited {
		return text
	}
	end := strings.LastIndexAny(text[:maxCited], " ,")
	return text[:max(end, 0)] + " …"
}

// quote cites the first rules of a chain.
func quote(c *netfilter.Chain) []report.Evidence {
	var out []report.Evidence
	for i, r := range c.Rules {
		if i == maxEvidence {
			return append(out, say(fmt.Sprintf("… and %d more rules", len(c.Rules)-i))...)
		}
		out = append(out, cite(netfilter.Ref{Chain: c, Rule: r}))
	}
	return out
}

// describe says in a few words what should happen.
func describe(want *expect.Path) string {
	switch want.Action {
	case expect.DNAT:
		if len(want.Endpoints) == 1 {
			return "sent to " + want.Endpoints[0].Address.String()
		}
		return fmt.Sprintf("sent to one of %d endpoints", len(want.Endpoints))
	case expect.Proxy:
		return "accepted by kube-proxy itself"
	case expect.Reject:
		return "rejected"
	case expect.Drop:
		return "dropped"
	case expect.None:
	}
	return "nothing"
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", share*100) }

// addressText writes an address and port; "" for the zero AddrPort.
func addressText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// cut joins a list, and cuts a long one with a count.
func cut(list []string, limit int) string {
	if len(list) > limit {
		return strings.Join(list[:limit], ", ") + fmt.Sprintf(" and %d more", len(list)-limit)
	}
	return strings.Join(list, ", ")
}

// number writes "1 connection", "2 connections", "2 addresses".
func number(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// verb returns the singular form for one, the plural form for every other number.
func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
