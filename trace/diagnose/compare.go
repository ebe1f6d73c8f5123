// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// issue is a difference before it is written up: what compare found, and what explain adds to it.
type issue struct {
	code, subject    string
	endpoints        []string // that it is about, all of them; subject may name some
	expected, actual string
	message          string
	where            netfilter.Ref
	evidence         []string
}

// compare holds what must happen against what does. It judges only what is certain; an issue is never due to something that
// could not be read.
func compare(want *expect.Path, got *tally) []issue {
	if foreign := shadow(got); foreign != nil {
		return []issue{*foreign}
	}
	switch want.Action {
	case expect.DNAT:
		return compareDNAT(want, got)
	case expect.Reject, expect.Drop:
		return compareRefusal(want, got)
	case expect.None:
		return compareNone(want, got)
	}
	return nil
}

// shadow finds a translation by a rule that is not kube-proxy's: it took the packet before kube-proxy's rules could.
func shadow(got *tally) *issue {
	for i := range got.outcomes {
		o := &got.outcomes[i]
		if !o.certain || !o.to.IsValid() || o.by.Chain == nil || ofService(o.by) {
			continue
		}
		return &issue{
			code: Shadowed, where: o.by, actual: fmt.Sprintf("%s to %s", percent(o.share), o.to),
			message:  fmt.Sprintf("%s, which is not kube-proxy's, takes the packet first and sends it to %s", o.by, o.to),
			evidence: []string{cite(o.by)},
		}
	}
	return nil
}

func compareDNAT(want *expect.Path, got *tally) []issue {
	var issues []issue
	issues = append(issues, refusals(want, got)...)
	if got.all(acceptAction) {
		return append(issues, issue{
			code: ServiceNotProgrammed, expected: describe(want), actual: "passes untranslated",
			message: "no rule translates the packet: it goes on to " + netip.AddrPortFrom(want.Frontend.Address, want.Frontend.Port).String() + " itself, where nobody answers",
		})
	}
	if len(issues) > 0 && len(got.of(string(expect.DNAT))) == 0 {
		return issues
	}
	due := 1 / float64(len(want.Endpoints))
	wanted := make(map[netip.AddrPort]bool, len(want.Endpoints))
	for i := range want.Endpoints {
		e := &want.Endpoints[i]
		wanted[e.Address] = true
		if _, possible := got.share(e.Address); !possible && !lost(got, e.Address) {
			issues = append(issues, issue{
				code: MissingEndpoint, subject: e.Address.String(), endpoints: []string{e.Address.String()}, expected: percent(due), actual: "none",
				message: "no rule leads to this endpoint",
			})
		}
	}
	for _, o := range got.of(string(expect.DNAT)) {
		if !wanted[o.to] {
			issues = append(issues, issue{
				code: StaleEndpoint, subject: o.to.String(), endpoints: []string{o.to.String()}, expected: "none", actual: percent(o.share), where: o.by,
				message: o.to.String() + " is not an endpoint to use here, yet connections are sent to it", evidence: []string{cite(o.by)},
			})
		}
	}
	if len(issues) == 0 && !got.uncertain && got.sharing() == "" {
		issues = append(issues, uneven(want, got, due)...)
	}
	return append(issues, masquerade(want, got)...)
}

// lost tells whether packets are translated to an endpoint but do not get there (dropped or without a route on the way).
func lost(got *tally, to netip.AddrPort) bool {
	for i := range got.outcomes {
		if got.outcomes[i].to == to {
			return true
		}
	}
	return false
}

// refusals finds connections that end in a drop or reject, or that have no route, although they should reach an endpoint.
func refusals(want *expect.Path, got *tally) []issue {
	var issues []issue
	for i := range got.outcomes {
		o := &got.outcomes[i]
		if !o.certain || o.share <= 0 || untranslated(o) && len(got.of(string(expect.DNAT))) > 0 {
			continue // what of the others is said of the endpoints' shares
		}
		is := issue{expected: describe(want), where: o.where, subject: addrPort(o.to)}
		if o.to.IsValid() {
			is.endpoints = []string{is.subject}
		}
		switch o.action {
		case noneAction:
			is.code, is.actual, is.message = NoRoute, "no route", "the packet is translated, but the node has "+o.why
			if !o.to.IsValid() {
				is.message = "the node has " + o.why + ": the connection fails before any rule is asked"
			}
		case string(expect.Reject):
			is.code, is.actual, is.message = RejectedCode, "rejected", o.where.String()+", which is not kube-proxy's, rejects it"
			if byKube(o.where) {
				is = kubeReject(is, o)
			}
		case string(expect.Drop):
			is.code, is.actual, is.message = DroppedCode, "dropped", o.where.String()+" drops it"
			if o.why != "" {
				is.message += ": " + o.why
			}
			switch {
			case o.reverse:
				is.code, is.message = ReversePathFilter, "the kernel drops it where it looks for a route: the way back to its source is not the way that it came"
			case byKube(o.where):
				is = kubeDrop(is, o)
			}
		default:
			continue
		}
		is.evidence = []string{cite(o.where)}
		if o.reverse {
			is.evidence = []string{o.why, o.route}
		}
		issues = foldRefusal(issues, is)
	}
	return issues
}

// foldRefusal keeps one issue for a place that drops the way to several endpoints.
func foldRefusal(issues []issue, is issue) []issue {
	for i := range issues {
		if o := &issues[i]; o.code == is.code && o.where == is.where && (is.where.Chain != nil || is.code == ReversePathFilter) {
			if is.subject != "" && !slices.Contains(o.endpoints, is.subject) {
				o.endpoints = append(o.endpoints, is.subject)
				o.subject = strings.Join(o.endpoints, ", ")
			}
			return issues
		}
	}
	return append(issues, is)
}

// kubeReject says what a refusal by kube-proxy's own rules means where it should not refuse.
func kubeReject(is issue, o *outcome) issue {
	if untranslated(o) {
		is.code, is.message = ServiceNotProgrammed, "no rule translates the packet: "+o.where.String()+" refuses it as one to a port that no Service has"
		return is
	}
	is.code, is.message = RefusedWithEndpoints, o.where.String()+" still refuses the connection: kube-proxy takes the Service for one without endpoints"
	return is
}

// untranslated tells whether kube-proxy's nftables mode has refused a packet because none of its rules has translated it.
func untranslated(o *outcome) bool {
	return o.where.Chain != nil && isNFTKube(o.where.Chain.Table) && o.where.Chain.Name == nftNoSuchPort
}

// Chains of nftables mode that refuse (pkg/proxy/nftables/proxier.go).
const (
	nftNoSuchPort = "cluster-ips-check" // what was not translated on its way to a cluster IP, or to where such may be
	nftNoEndpoint = "-endpoints-check"  // what has no endpoint, or no local one
)

// kubeDrop says what a drop by kube-proxy's own rules means where it should not drop.
func kubeDrop(is issue, o *outcome) issue {
	if isNFTKube(o.where.Chain.Table) {
		return nftDrop(is, o)
	}
	switch {
	case o.where.Chain.Name == "KUBE-PROXY-FIREWALL":
		is.code, is.message = SourceRangesMismatch, "the source is within loadBalancerSourceRanges (or there are none), yet "+o.where.String()+" drops it"
	case o.where.Rule != nil && strings.Contains(o.where.Rule.Comment, "no local endpoints"):
		is.code, is.message = TrafficPolicyMismatch, o.where.String()+" drops it for want of a local endpoint, which the API does not ask for"
	case o.where.Rule != nil && strings.Contains(o.where.Chain.Name, "SERVICES"):
		is.code, is.message = RefusedWithEndpoints, o.where.String()+" still drops the connection"
	}
	return is
}

func nftDrop(is issue, o *outcome) issue {
	switch c := o.where.Chain; {
	case nftDialect.ofService(c, nftDialect.firewall):
		is.code, is.message = SourceRangesMismatch, "the source is within loadBalancerSourceRanges (or there are none), yet "+o.where.String()+" drops it"
	case c.Name == nftNoSuchPort:
		is.code, is.message = ServiceNotProgrammed, "no rule translates the packet: "+o.where.String()+" drops it as one to a cluster IP that no Service has"
	case strings.HasSuffix(c.Name, nftNoEndpoint):
		is.code, is.message = TrafficPolicyMismatch, o.where.String()+" drops it for want of a local endpoint, which the API does not ask for"
	}
	return is
}

// uneven finds shares that are not what equal choice among the endpoints gives.
func uneven(want *expect.Path, got *tally, due float64) []issue {
	var off []string
	for i := range want.Endpoints {
		if s, _ := got.share(want.Endpoints[i].Address); differ(s, due) {
			off = append(off, fmt.Sprintf("%s %s", want.Endpoints[i].Address, percent(s)))
		}
	}
	if len(off) == 0 {
		return nil
	}
	is := issue{code: UnevenShare, expected: percent(due) + " each", actual: cut(off, 6), message: "the rules do not choose the endpoints with equal chance"}
	if through := got.of(acceptAction); len(through) > 0 {
		is.message += fmt.Sprintf("; %s passes untranslated", percent(through[0].share))
	}
	for i := range got.outcomes {
		if o := &got.outcomes[i]; untranslated(o) {
			is.message += fmt.Sprintf("; %s is not translated, and %s refuses it", percent(o.share), o.where)
		}
	}
	return []issue{is}
}

// masquerade compares who has the source address translated. A CNI may do so for reasons of its own; only kube-proxy's own
// translation can be one too many, while any will do where one is due.
func masquerade(want *expect.Path, got *tally) []issue {
	var missing, needless []string
	for i := range want.Endpoints {
		e := &want.Endpoints[i]
		for _, o := range got.of(string(expect.DNAT)) {
			if o.to != e.Address {
				continue
			}
			due := want.Masquerade == expect.MasqAlways || want.Masquerade == expect.MasqHairpin && want.Origin.Address == e.Address.Addr()
			switch {
			case want.Masquerade == expect.MasqUnknown:
			case due && !o.masq && !o.inside:
				missing = append(missing, e.Address.String())
			case !due && o.masq && o.masqBy.Chain == nil:
				needless = append(needless, e.Address.String())
			}
		}
	}
	var issues []issue
	if len(missing) > 0 {
		why := "the endpoint's answer will not come back through this node"
		if want.Masquerade == expect.MasqHairpin {
			why = "a pod that reaches itself through the Service gets no answer (hairpin)"
		}
		issues = append(issues, issue{
			code: WrongMasquerade, subject: cut(missing, 4), endpoints: missing, expected: string(want.Masquerade), actual: "Never",
			message: "the source address is not translated: " + why,
		})
	}
	if len(needless) > 0 {
		issues = append(issues, issue{
			code: WrongMasquerade, subject: cut(needless, 4), endpoints: needless, expected: string(want.Masquerade), actual: "Always",
			message: "kube-proxy's rules translate the source address: the endpoint sees the node in place of the client",
		})
	}
	return issues
}

func compareRefusal(want *expect.Path, got *tally) []issue {
	is := issue{expected: describe(want)}
	if to := got.of(string(expect.DNAT)); len(to) > 0 {
		is.code, is.where = AcceptedWithoutEndpoints, to[0].by
		is.actual, is.evidence = "sent to "+cut(targets(to), 4), []string{cite(to[0].by)}
		is.message = "it should be refused (" + want.Why + "), yet it is sent to " + cut(targets(to), 4)
		switch want.Reason {
		case expect.ReasonNoLocalEndpoints:
			is.code = TrafficPolicyMismatch
		case expect.ReasonSourceRange:
			is.code = SourceRangesMismatch
		}
		return []issue{is}
	}
	if len(got.of(acceptAction)) > 0 {
		is.code, is.actual = AcceptedWithoutEndpoints, "passes untranslated"
		if want.Reason == expect.ReasonSourceRange {
			is.code = SourceRangesMismatch
		}
		is.message = "it should be refused (" + want.Why + "), yet no rule does so: the client hangs or reaches what should be closed"
		return []issue{is}
	}
	return differentRefusal(want, got)
}

// differentRefusal finds a packet that is refused, but in another way: silently where an answer is due, or the reverse. That
// it is somebody else's rule that refuses it in the same way changes nothing for the client.
func differentRefusal(want *expect.Path, got *tally) []issue {
	other := expect.Drop
	if want.Action == expect.Drop {
		other = expect.Reject
	}
	if os := got.of(string(other)); len(os) > 0 {
		o := os[0]
		if o.reverse {
			return []issue{{
				code: ReversePathFilter, expected: describe(want), actual: "dropped", evidence: []string{o.why, o.route},
				message: fmt.Sprintf("the kernel drops it where it looks for a route, ahead of the rules that refuse it (%s): the client waits in vain", want.Why),
			}}
		}
		is := issue{code: DroppedCode, expected: describe(want), actual: strings.ToLower(string(other)) + "ed", where: o.where, evidence: []string{cite(o.where)}}
		if other == expect.Drop {
			is.actual = "dropped"
		}
		is.message = fmt.Sprintf("%s: %s, where %s is due (%s)", o.where, is.actual, strings.ToLower(string(want.Action)), want.Why)
		switch {
		case ofService(o.where):
			is.code = TrafficPolicyMismatch
		case other == expect.Reject:
			is.code = RejectedCode
		}
		return []issue{is}
	}
	return nil
}

// compareNone looks at a frontend that kube-proxy leaves alone: nothing of kube-proxy's may touch it.
func compareNone(want *expect.Path, got *tally) []issue {
	for _, o := range got.of(string(expect.DNAT)) {
		return []issue{{
			code: AcceptedWithoutEndpoints, expected: "nothing", actual: "sent to " + o.to.String(), where: o.by, evidence: []string{cite(o.by)},
			message: "kube-proxy should leave this address alone (" + want.Why + "), yet its rules translate it",
		}}
	}
	return nil
}

func targets(os []*outcome) []string {
	out := make([]string, len(os))
	for i, o := range os {
		out[i] = o.to.String()
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

func addrPort(a netip.AddrPort) string {
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

// cite quotes a rule as evidence.
func cite(r netfilter.Ref) string {
	switch {
	case r.Chain == nil:
		return ""
	case r.Rule == nil:
		return r.String()
	}
	return r.String() + ": " + short(r.Rule.Text)
}

// maxCited is how much of a rule is quoted: one of nftables mode names all the endpoints of a Service.
const maxCited = 600

func short(text string) string {
	if len(text) <= maxCited {
		return text
	}
	cut := strings.LastIndexAny(text[:maxCited], " ,")
	return text[:max(cut, 0)] + " …"
}

func protocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return netfilter.UDP
	case corev1.ProtocolSCTP:
		return netfilter.SCTP
	case corev1.ProtocolTCP:
	}
	return netfilter.TCP
}
