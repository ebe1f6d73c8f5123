// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
)

// judge walks packets on one node. It is for one goroutine.
type judge struct {
	*node
	walker *netfilter.Walker
	req    *Request
}

// start puts a packet on its way from an origin to a frontend.
func start(f expect.Frontend, o expect.Origin) netfilter.Start {
	s := netfilter.Start{Hook: netfilter.Prerouting, Packet: netfilter.Packet{
		Family: netfilter.FamilyOf(f.Address), Proto: protocolNumber(f.Protocol),
		Src: o.Address, Dst: f.Address, DstPort: f.Port, In: o.Iface,
	}}
	if o.Kind == expect.FromNode {
		s.Hook, s.Packet.In = netfilter.Output, ""
	}
	return s
}

// path judges one frontend from one origin.
func (j *judge) path(svc *corev1.Service, f expect.Frontend, o expect.Origin) report.Path {
	want := j.exp.Path(f, o)
	var p report.Path
	if why := j.blind(f, o); why != "" {
		p.Verdict = report.Unknown
		p.Findings = []report.Finding{j.finding(NotCollected, "", issue{message: why})}
		j.describe(&p, svc, &want)
		return p
	}

	named := j.req.From != nil && j.req.From.Address.IsValid()
	res := j.walker.Walk(start(f, o), netfilter.Options{Steps: j.req.Steps, Enters: j.enters(&f, &o, named)})
	got := tallyOf(f, &res)
	var issues []issue
	if cache := nodeLocalDNS(&want, &res, &got); cache != nil {
		issues = []issue{*cache}
	} else if is, unsure, ok := j.byProcess(&want, &got); ok {
		issues = is
		if unsure != "" {
			want.Unsure = unsure
		}
		if ours := byProgramming(&got); ours != nil {
			issues = append(issues, *ours)
		}
	} else if want.Unsure == "" || j.sharing(&f) != nil {
		// An expectation that is not certain proves nothing, neither a match nor a mismatch.
		issues = compare(&want, &got)
		issues = append(issues, j.hairpin(&want, &got)...)
		ours := byProgramming(&got)
		switch {
		case ours != nil:
			issues = append(append(issues, j.programAffinity(&want, &got)...), *ours)
		case j.isIPVS():
			issues = j.virtual(&want, &got, issues)
		default:
			issues = append(issues, j.affinity(&want, &got)...)
			if len(issues) > 0 {
				issues = j.explain(svc, &want, &got, issues)
			}
		}
		issues = append(issues, j.settings(&want, &res)...)
	}
	for _, is := range issues {
		p.Findings = append(p.Findings, j.finding(is.code, is.subject, is))
	}
	j.conclude(&p, &want, &got, &res)
	j.observe(&p, &want, &got)
	if p.Verdict != report.Match || j.req.Matching {
		j.describe(&p, svc, &want)
		p.Actual = j.actualOf(&want, &got, &res)
		if j.req.Steps {
			p.Steps = stepsOf(&res)
			j.confirm(&p, &want, &res)
		}
	}
	return p
}

// describe fills in what the path is and what it should be.
func (j *judge) describe(p *report.Path, svc *corev1.Service, want *expect.Path) {
	f, o := &want.Frontend, &want.Origin
	p.Frontend = report.Frontend{Kind: string(f.Kind), Address: f.Address.String(), Port: int32(f.Port), Protocol: string(f.Protocol), PortName: f.PortName}
	p.Origin = report.Origin{Kind: string(o.Kind), Pod: o.Pod}
	if o.Address.IsValid() {
		p.Origin.Address = o.Address.String()
	}
	p.Expected = expectedOf(want)
	if j.req.PerPathService {
		p.Service = &report.ObjectRef{Namespace: svc.Namespace, Name: svc.Name}
	}
}

// conclude gives the path its verdict, and its by-design answer.
func (j *judge) conclude(p *report.Path, want *expect.Path, got *tally, res *netfilter.Result) {
	p.Verdict = report.WithFindings(report.Match, p.Findings)
	if got.uncertain && p.Verdict != report.Mismatch {
		p.Verdict = report.Unknown
		if broken := brokenRule(res); broken != nil {
			p.Findings = append(p.Findings, j.finding(BrokenRule, broken.subject, *broken))
		}
	}
	if shared := j.sharing(&want.Frontend); shared != nil && p.Verdict == report.Match {
		p.Verdict = report.Warning
		p.Findings = append(p.Findings, j.finding(SharedFrontend, shared.Service.String(), issue{
			expected: describe(want),
			message:  fmt.Sprintf("Service %s has the same address and port; this one takes the packets", shared.Service),
		}))
	} else if want.Unsure != "" && shared == nil && p.Verdict != report.Mismatch {
		p.Verdict = report.Unknown
		p.Findings = append(p.Findings, j.finding(NotCollected, "", issue{message: want.Unsure}))
	}
	if p.Verdict == report.Match && want.Reason != "" {
		p.Verdict = report.ByDesign
		p.Findings = append(p.Findings, report.Finding{Code: want.Reason, Severity: report.Info, Message: want.Why, Expected: describe(want)})
	}
	if p.Verdict == report.Match && slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == NodeLocalDNS }) {
		p.Verdict = report.ByDesign
	}
}

// blind says why a path cannot be judged at all.
func (j *judge) blind(f expect.Frontend, o expect.Origin) string {
	if why := j.unread[netfilter.FamilyOf(f.Address)]; why != "" {
		return why
	}
	if !o.Address.IsValid() {
		return fmt.Sprintf("no source address is known for a packet from %s: the node's addresses and pod network were not collected", o.Kind)
	}
	return ""
}

// hairpin walks packets from the endpoints on this node to themselves: kube-proxy has to translate their source.
func (j *judge) hairpin(want *expect.Path, got *tally) []issue {
	if want.Origin.Kind != expect.FromPod || want.Action != expect.DNAT || j.req.From != nil {
		return nil
	}
	var missing []string
	for i := range want.Endpoints {
		e := &want.Endpoints[i]
		if _, possible := got.share(e.Address); !e.Local || !possible {
			continue
		}
		if local, known := j.net.Local(e.Address.Addr()); !known || local {
			continue
		}
		self := want.Origin
		self.Address, self.Pod = e.Address.Addr(), ""
		res := j.walker.Walk(start(want.Frontend, self), netfilter.Options{Only: e.Address})
		for _, o := range tallyOf(want.Frontend, &res).outcomes {
			if o.to == e.Address && o.certain && !o.masq && !o.inside {
				missing = append(missing, e.Address.String())
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []issue{{
		code: WrongMasquerade, subject: cut(missing, 4), endpoints: missing, expected: string(expect.MasqHairpin), actual: "Never",
		message: "a pod that reaches itself through the Service gets no answer: its source address is not translated (hairpin)",
	}}
}

// affinity walks the packet of a returning client for every endpoint that a first one may have come to.
func (j *judge) affinity(want *expect.Path, got *tally) []issue {
	var missing, unexpected, timeouts []string
	seconds := uint32(0)
	for _, o := range got.of(string(expect.DNAT)) {
		if want.Action != expect.DNAT || o.recent == "" && want.AffinitySeconds == 0 {
			continue
		}
		back, secs := j.comeBack(want, o)
		switch {
		case want.AffinitySeconds == 0 && back:
			unexpected = append(unexpected, o.to.String())
		case want.AffinitySeconds == 0:
		case !back:
			missing = append(missing, o.to.String())
		case int64(secs) != int64(want.AffinitySeconds):
			timeouts, seconds = append(timeouts, o.to.String()), secs
		}
	}
	var issues []issue
	due := fmt.Sprintf("%ds", want.AffinitySeconds)
	if len(missing) > 0 {
		issues = append(issues, issue{
			code: AffinityMissing, subject: cut(missing, 4), endpoints: missing, expected: "ClientIP for " + due, actual: "none",
			message: "a client that comes back is not sent to the same endpoint",
		})
	}
	if len(unexpected) > 0 {
		issues = append(issues, issue{
			code: AffinityUnexpected, subject: cut(unexpected, 4), endpoints: unexpected, expected: "none", actual: "ClientIP",
			message: "a client that comes back is sent to the same endpoint, which the Service does not ask for",
		})
	}
	if len(timeouts) > 0 {
		issues = append(issues, issue{
			code: AffinityTimeout, subject: cut(timeouts, 4), endpoints: timeouts, expected: due, actual: fmt.Sprintf("%ds", seconds),
			message: "clients are remembered for another time than the Service asks for",
		})
	}
	return issues
}

// comeBack tells whether a client that was sent to an endpoint once is sent there again, and the time that the rules remember
// it for, in seconds; 0 for any time.
func (j *judge) comeBack(want *expect.Path, first *outcome) (same bool, seconds uint32) {
	if first.recent == "" {
		return false, 0
	}
	res := j.walker.Walk(start(want.Frontend, want.Origin), netfilter.Options{Listed: first.recent, Steps: true})
	got := tallyOf(want.Frontend, &res)
	if s, _ := got.share(first.to); s < 1-certainty {
		return false, 0
	}
	for i := range res.Steps {
		if s := &res.Steps[i]; s.Asked.Name != "" {
			seconds = s.Asked.Seconds
		}
	}
	return true, seconds
}

// nodeLocalDNS recognises the node-local DNS cache: it binds the VIP on the node and takes its packets out of connection
// tracking, so that kube-proxy's rules are passed over on purpose (kubernetes/dns, cmd/node-cache).
func nodeLocalDNS(want *expect.Path, res *netfilter.Result, got *tally) *issue {
	if want.Frontend.Kind != expect.ClusterIP || want.Frontend.Port != 53 || !got.all(acceptAction) {
		return nil
	}
	for _, o := range res.Outcomes {
		if o.End != netfilter.Delivered || !o.Packet.Untracked {
			return nil
		}
	}
	return &issue{
		code: NodeLocalDNS, expected: describe(want), actual: "delivered to the node itself",
		message: "the address is bound on the node and its packets are not tracked (raw table): a DNS cache on the node answers, kube-proxy's rules are passed over",
	}
}

func brokenRule(res *netfilter.Result) *issue {
	for _, u := range res.Uncertain {
		if u.Where.Rule != nil && byKube(u.Where) && u.Where.Rule.Target == "DNAT" {
			return &issue{
				code: BrokenRule, subject: u.Where.Chain.Name, where: u.Where, evidence: []string{cite(u.Where)},
				message: "kube-proxy's DNAT rule has no usable destination as it was read: an iptables of another version wrote it, or read it",
			}
		}
	}
	return nil
}

func expectedOf(want *expect.Path) report.Expected {
	e := report.Expected{Action: string(want.Action), Masquerade: string(want.Masquerade), AffinitySeconds: want.AffinitySeconds}
	for i := range want.Endpoints {
		x := &want.Endpoints[i]
		e.Endpoints = append(e.Endpoints, report.Endpoint{
			Address: x.Address.Addr().String(), Port: int32(x.Address.Port()),
			Share: 1 / float64(len(want.Endpoints)), Pod: x.Pod, Node: x.Node,
		})
	}
	return e
}

func (j *judge) actualOf(want *expect.Path, got *tally, res *netfilter.Result) report.Actual {
	a := report.Actual{Sharing: got.sharing()}
	for i := range got.outcomes {
		o := &got.outcomes[i]
		out := report.Outcome{Action: o.action, Share: o.share, Masquerade: o.masq, MasqueradeBy: o.masqBy.String(), Where: o.where.String()}
		if o.here && j.socketsRead {
			at := o.to
			if !at.IsValid() {
				at = netip.AddrPortFrom(want.Frontend.Address, want.Frontend.Port)
			}
			if s := j.listener(&want.Frontend, at); s != nil {
				out.Listener = owner(s)
			}
		}
		if o.to.IsValid() {
			out.Endpoint = &report.Endpoint{Address: o.to.Addr().String(), Port: int32(o.to.Port()), Share: o.share}
		}
		a.Outcomes = append(a.Outcomes, out)
	}
	for _, u := range res.Uncertain {
		a.Uncertain = append(a.Uncertain, report.Uncertain{Where: u.Where.String(), Match: u.What, Why: u.Why})
	}
	return a
}

func stepsOf(res *netfilter.Result) []report.Step {
	out := make([]report.Step, len(res.Steps))
	for i := range res.Steps {
		s := &res.Steps[i]
		out[i] = report.Step{
			Hook: s.Ref.Hook.String(), Table: s.Ref.Chain.Table.Name, Chain: s.Ref.Chain.Name, Verdict: s.String(), Share: s.P, Text: "policy",
		}
		switch b := s.Ref.Chain.Table.Backend; b {
		case netfilter.BackendIPVS:
			out[i].Table = string(b)
		case netfilter.BackendNFT, netfilter.BackendLegacy:
			out[i].Backend = string(b)
		case netfilter.BackendNative:
		}
		if s.Ref.Rule != nil {
			out[i].Rule, out[i].Text = s.Ref.Rule.Num, s.Ref.Rule.Text
		}
	}
	return out
}
