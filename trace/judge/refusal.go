// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Findings about connections that are refused, or that should be.
const (
	Dropped                  = "Dropped"
	Rejected                 = "Rejected"
	NoRoute                  = "NoRoute"
	RefusingRoute            = "RefusingRoute"
	RefusedWithEndpoints     = "RefusedWithEndpoints"
	AcceptedWithoutEndpoints = "AcceptedWithoutEndpoints"
	SourceRangesMismatch     = "SourceRangesMismatch"
	TrafficPolicyMismatch    = "TrafficPolicyMismatch"
)

// droppedByRoute is issue.actual where packets are lost without a word.
const droppedByRoute = "dropped by a route"

const lookAtRoutes = "look at the CNI's routes on {node}, and restart its pod there: it sets them"

var foreignRule = advice("find who owns {where}, and make it allow Service traffic", command{chain: true})

var (
	_ = register(kind{
		code: Dropped, severity: mismatch, scope: onPath, by: comparison, remedy: foreignRule,
		issues: []string{"kubernetes/kubernetes#39823", "projectcalico/calico#4927"},
	})
	_ = register(kind{
		code: Rejected, severity: mismatch, scope: onPath, by: comparison, remedy: foreignRule,
		issues: []string{"firewalld/firewalld#767"},
	})
	_ = register(kind{
		code: NoRoute, severity: mismatch, scope: onPath, by: comparison,
		remedy: advice(lookAtRoutes),
	})
	_ = register(kind{
		code: RefusingRoute, severity: mismatch, scope: onPath, by: comparison,
		remedy: advice("find out who created the routing rule or the route on {node}, and exclude Service traffic from it"),
	})
	_ = register(kind{
		code: RefusedWithEndpoints, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
		issues: []string{"kubernetes/kubernetes#28674"},
	})
	_ = register(kind{
		code: AcceptedWithoutEndpoints, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
		issues: []string{"kubernetes/kubernetes#67875"},
	})
	_ = register(kind{
		code: SourceRangesMismatch, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
		issues: []string{"kubernetes/kubernetes#110289"},
	})
	_ = register(kind{
		code: TrafficPolicyMismatch, severity: mismatch, scope: onPath, by: comparison, remedy: restart,
		issues: []string{"kubernetes/kubernetes#66354"},
	})
)

// refusals finds connections that end in a drop or reject, or that have no route, although they should reach an
// endpoint.
func refusals(n *node, want *expect.Path, got *outcomes) []issue {
	var issues []issue
	for i := range got.list {
		o := &got.list[i]
		switch o.action {
		case noneAction, string(expect.Reject), string(expect.Drop):
		default:
			continue
		}
		if !o.certain || o.share <= 0 || n.notTranslated(o) && len(got.translated()) > 0 {
			continue // what of the others is said of the endpoints' shares
		}
		is := issue{expected: describe(want), where: o.where, subject: addressText(o.to)}
		if o.to.IsValid() {
			is.endpoints = []string{is.subject}
		}
		switch o.action {
		case noneAction:
			is.code, is.actual, is.message = NoRoute, "no route", "the packet is translated, but the node has "+o.why
			how, _ := n.failure(want, o)
			if is.message += ": " + how; !o.to.IsValid() {
				is.message = "the node has " + o.why + ", before any rule is evaluated: " + how
			}
			if text := o.decided.String(); text != "" {
				n.refusing(&is, want, o)
				issues = foldRefusal(issues, is)
				continue
			}
			to := o.to.Addr()
			if !to.IsValid() {
				to = want.Frontend.Address
			}
			if to.IsValid() {
				show := command{line: "ip route get " + to.WithZone("").String(), onNode: true}
				is.remedy = n.advise(advice(lookAtRoutes, show), &is)
			}
		case string(expect.Reject):
			is.code, is.actual, is.message = Rejected, "rejected", o.where.String()+", which is not kube-proxy's, rejects it"
		case string(expect.Drop):
			is.code, is.actual, is.message = Dropped, "dropped", o.where.String()+" drops it"
			if o.why != "" {
				is.message += ": " + o.why
			}
		default:
			continue
		}
		is.evidence = []report.Evidence{cite(o.where)}
		switch {
		case o.reverse:
			is.code, is.evidence = ReversePathFilter, say(o.why, o.route)
			is.message = "the kernel drops it when it looks up the route: the route back to its source does not use the " +
				"interface on which it arrived"
			if o.decided != (host.Decision{}) {
				is.message = "the kernel drops it when it looks up the route: no packet can be sent to its source by the route back"
				is.remedy = n.withoutRoute(o.decided)
				is.remedy.Text += loosenessIsNone
			}
		case o.atOwner == kubeProxy:
			is = n.writerOf(o.where).refusal(is, o)
		case o.where.Chain != nil && o.where.Hook.OfLink():
			is.remedy = n.advise(foreignRule, &is)
			is.remedy.Commands = n.objectAt(o.where, familyOf(want.Frontend))
		}
		issues = foldRefusal(issues, is)
	}
	return issues
}

// refusing says which routing rule and route refuse a packet, and how to remove them.
func (n *node) refusing(is *issue, want *expect.Path, o *outcome) {
	by := o.decided
	is.code, is.actual, is.evidence = RefusingRoute, "refused by a route", say(by.String())
	how, hangs := n.failure(want, o)
	what, how := "the node's routing refuses it", "; "+how
	if hangs {
		is.actual, what = droppedByRoute, "the node's routing drops it"
	}
	if keeps := "keeps the packet on the node"; strings.HasSuffix(o.why, keeps) {
		is.actual, how, what = "kept by a route", "", "a route "+keeps+", though the address is not one of its own"
	}
	if is.message = "the packet is translated, but " + what + ": " + by.String() + how; !o.to.IsValid() {
		is.message = what + ": " + by.String() + how
	}
	is.remedy = n.withoutRoute(by)
}

// withoutRoute is the remedy where a routing rule or a route decides what it should not.
func (n *node) withoutRoute(by host.Decision) report.Remedy {
	out := report.Remedy{
		Text: "remove what is not meant for Service traffic, and find out who created it (a CNI, a VPN, a cloud's agent), " +
			"as it comes back otherwise",
	}
	for _, c := range []struct {
		words []string
		when  string
	}{
		{by.DeleteRule(), "where the routing rule is not meant for these packets"},
		{by.DeleteRoute(), "where the route is not meant to be there"},
	} {
		if c.words != nil {
			out.Commands = append(out.Commands, report.Command{
				Line: report.ShellLine(c.words...), Node: n.Name, When: c.when,
			})
		}
	}
	if len(out.Commands) == 1 {
		out.Commands[0].When = ""
	}
	return out
}

// notTranslated tells whether a packet was refused behind the rules that should have translated it, and did not.
func (n *node) notTranslated(o *outcome) bool {
	if o.to.IsValid() || o.reverse || o.where.Chain == nil ||
		o.action != string(expect.Drop) && o.action != string(expect.Reject) {
		return false
	}
	return n.untranslated(o) || !beforeDNAT(o.where)
}

// foldRefusal keeps one issue for a place that drops packets to several endpoints.
func foldRefusal(issues []issue, is issue) []issue {
	for i := range issues {
		o := &issues[i]
		if o.code != is.code || o.where != is.where || is.where.Chain == nil && is.code != ReversePathFilter &&
			(is.code != RefusingRoute || !slices.Equal(o.evidence, is.evidence)) {
			continue
		}
		if is.subject != "" && !slices.Contains(o.endpoints, is.subject) {
			o.endpoints = append(o.endpoints, is.subject)
			o.subject = strings.Join(o.endpoints, ", ")
		}
		return issues
	}
	return append(issues, is)
}

// compareRefusal compares a path that must be refused.
func compareRefusal(want *expect.Path, got *outcomes) []issue {
	is := issue{expected: describe(want)}
	if to := got.translated(); len(to) > 0 {
		is.code, is.where = AcceptedWithoutEndpoints, to[0].by
		for _, o := range to {
			is.endpoints = append(is.endpoints, o.to.String())
		}
		is.actual, is.evidence = "sent to "+cut(is.endpoints, 4), []report.Evidence{cite(to[0].by)}
		is.message = "it should be refused (" + want.Why + "), yet it is sent to " + cut(is.endpoints, 4)
		switch want.Reason {
		case expect.ReasonNoLocalEndpoints:
			is.code = TrafficPolicyMismatch
		case expect.ReasonSourceRange:
			is.code = SourceRangesMismatch
		}
		return []issue{is}
	}
	if len(got.of(acceptAction)) > 0 {
		is.code, is.actual = AcceptedWithoutEndpoints, "is not translated"
		if want.Reason == expect.ReasonSourceRange {
			is.code = SourceRangesMismatch
		}
		is.message = "it should be refused (" + want.Why + "), yet no rule does so: the client hangs or reaches what " +
			"should be closed"
		return []issue{is}
	}
	return differentRefusal(want, got)
}

// differentRefusal finds a packet that is refused, but in another way: silently where an answer is due, or the reverse.
// That it is somebody else's rule that refuses it in the same way changes nothing for the client.
func differentRefusal(want *expect.Path, got *outcomes) []issue {
	other, actual := expect.Drop, "dropped"
	if want.Action == expect.Drop {
		other, actual = expect.Reject, "rejected"
	}
	os := got.of(string(other))
	if len(os) == 0 {
		return nil
	}
	o := os[0]
	if o.reverse {
		return []issue{
			{
				code:     ReversePathFilter,
				expected: describe(want),
				actual:   "dropped",
				evidence: say(o.why, o.route),
				message: fmt.Sprintf(
					"the kernel drops it when it looks up the route, before the rules that refuse it (%s): the client gets no answer",
					want.Why,
				),
			},
		}
	}
	is := issue{
		code:     Dropped,
		expected: describe(want),
		actual:   actual,
		where:    o.where,
		evidence: []report.Evidence{cite(o.where)},
	}
	is.message = fmt.Sprintf(
		"%s: %s, where %s was expected (%s)",
		o.where,
		is.actual,
		strings.ToLower(string(want.Action)),
		want.Why,
	)
	switch {
	case o.atOwner != others:
		is.code = TrafficPolicyMismatch
	case other == expect.Reject:
		is.code = Rejected
	}
	return []issue{is}
}
