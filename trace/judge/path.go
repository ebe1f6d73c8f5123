// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/digest"
	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/host"
	"github.com/svcproxy/kubectl-svcproxy/trace/netfilter"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// worker judges paths of one node, one after the other. It is for one goroutine.
type worker struct {
	*node

	req       *Request
	walker    *netfilter.Walker
	detectors []*detector // of paths
	watched   bool        // the packet of the last path came to rules that tell pods apart
	asked     bool        // what another Node says decides over the last path
	wanted    expect.Path // what was expected of the last path, before it was judged
	// hopsTo is what anyHops has found for the endpoints of one Service.
	hopsTo cache[netip.Addr, []host.Hop]
	// lists is what listOf has made for one Service, by their first endpoints: lists are whole ones.
	lists cache[*expect.Endpoint, []report.Endpoint]
	// siblings is what routedPods has found.
	siblings cache[bool, []routedPod]
	// untolds is what untold has found.
	untolds cache[whoHas, string]
	silent  cache[hop, string]  // why the node does not answer there; "" where it may
	deaf    cache[string, bool] // of bridges: [host.Network.Deaf]
	// own is what nodesAddress has found of IPv4 (true) and IPv6.
	own cache[bool, nodeAddress]
	// clientPorts is what countClientPorts has found.
	clientPorts *struct {
		count int
		known bool
	}
	// gateways is what gated has found.
	gateways cache[netip.Addr, bool]
	// routed is what routedNodes has found.
	routed map[bool][]routedNode
	// podPorts is what apart has found.
	podPorts cache[hop, podPort]
	// links is what podLinkBy has found for the endpoints of one Service, and its clients.
	links cache[hop, podLink]
	// tunnelWalks is what walkTunnel has found.
	tunnelWalks cache[tunnelKey, tunnelWalk]
	// resolved is what passes has found.
	resolved map[netfilter.Resolution]netfilter.Passing

	// For a Memory; nil without one.
	digest            *digest.Digest
	trail, classTrail *netfilter.Trail
	reused, anew      int // how many paths were taken over from it, and how many judged
}

// cache holds answers that are the same whenever they are asked for.
type cache[K comparable, V any] map[K]V

// once returns the answer for a key. What was not asked for before is found, and kept.
func (c *cache[K, V]) once(key K, find func() V) V {
	v, known := (*c)[key]
	if !known {
		v = find()
		if *c == nil {
			*c = cache[K, V]{}
		}
		(*c)[key] = v
	}
	return v
}

// pathCase is one path under judgement: a frontend from an origin.
type pathCase struct {
	*worker

	svc  *corev1.Service
	want *expect.Path
	res  netfilter.Result
	got  outcomes

	entered bool // the packet is certain to come in by its origin's interface
	// unsettled: something may stop packets (stoppedEnds).
	unsettled bool
	// doubts are what decides about further packets that the path is judged by, and cannot be evaluated (sampled).
	doubts  []netfilter.Uncertain
	settled bool // a detector has recognised who else answers
	several several
	steps   *walked
	onward  *[]onward        // what becomes of later packets; nil until that is asked for
	ways    ways             // what everyHop has found
	holes   *[]issue         // what blackHole has found; nil until that is asked for
	probes  *snapshot.Probes // the connections that were made on the path; nil where none were
	verdict report.Verdict   // so far; from stageVerdict on
	unsaid  string           // what would be wrong if all tables were read; "" for nothing
	found   []report.Finding
}

// ways are the next hops of each end of a path's walk, those of answers to clients outside among them (toAll) or not.
type ways struct {
	toPods, toAll struct {
		asked bool
		hops  [][]hop
	}
}

// start is how a packet enters the node on its path from an origin to a frontend.
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

// hook is where the path's packets enter.
func (p *pathCase) hook() netfilter.Hook {
	if p.want.Origin.Kind == expect.FromNode {
		return netfilter.Output
	}
	return netfilter.Prerouting
}

// settle says that somebody else than kube-proxy's rules answers, so that these are not compared.
func (p *pathCase) settle() { p.settled = true }

// path judges one frontend from one origin.
func (w *worker) path(svc *corev1.Service, f expect.Frontend, o expect.Origin) report.Path {
	want := w.exp.Path(f, o)
	w.watched, w.asked, w.wanted = false, false, want
	p := &pathCase{worker: w, svc: svc, want: &want}
	if why := w.blind(svc, f, o); why != "" {
		out := report.Path{
			Verdict:  report.Unknown,
			Findings: []report.Finding{w.finding(issue{code: NotCollected, message: why})},
		}
		p.describe(&out)
		return out
	}
	named := w.req.From != nil && w.req.From.Address.IsValid()
	p.entered = w.enters(&f, &o, named)
	p.res = w.walker.Walk(start(f, o), netfilter.Options{
		Steps: w.req.Steps, Enters: p.entered, Watch: w.distinct.chains,
	})
	w.watched = p.res.Watched
	p.got = w.outcomesOf(f, &p.res)
	p.compareAnswers()
	p.conclude()
	p.reconsider()
	out := report.Path{}
	p.observe(&out)
	out.Verdict, out.Findings = p.verdict, p.found
	if out.Verdict != report.Match || w.req.Matching {
		p.describe(&out)
		out.Actual = p.actual()
		if w.req.Steps {
			out.Steps, out.Routes = stepsOf(&p.res, p.got.list), routesOf(&p.res)
			p.confirm(&out)
		}
	}
	return out
}

// blind says why a path cannot be judged at all.
func (w *worker) blind(svc *corev1.Service, f expect.Frontend, o expect.Origin) string {
	if why := w.unread[netfilter.FamilyOf(f.Address)]; why != "" {
		return why
	}
	if !o.Address.IsValid() {
		return fmt.Sprintf(
			"no source address is known for a packet from %s: the node's addresses and pod network were not collected",
			o.Kind,
		)
	}
	return w.sourceUnknown(svc, f, o)
}

// compare runs the detectors that compare what the rules do with what they must do.
func (p *pathCase) compare() {
	issues := p.run(stageRecognise, stageRecognise)
	if p.settled {
		issues = append(issues, p.run(stageProgrammed, stageProgrammed)...)
		p.found = p.findings(issues)
		return
	}
	// An expectation that is not certain proves nothing, neither a match nor a mismatch.
	if p.want.Unsure != "" {
		return
	}
	issues = p.run(stageCompare, stageHairpin)
	if p.programmed() {
		issues = append(issues, p.run(stageAffinity, stageProgrammed)...)
	} else {
		issues = p.mode.explain(p, append(issues, p.run(stageAffinity, stageAffinity)...))
	}
	p.found = p.findings(append(issues, p.run(stageSettings, stageSettings)...))
	lost, some := p.wrongEndpoints()
	if !some {
		return
	}
	more := p.run(stageAnswers, stageAnswers)
	for i := range more {
		is := &more[i]
		is.endpoints = slices.DeleteFunc(is.endpoints, func(e string) bool { return slices.Contains(lost, e) })
		is.subject = cut(is.endpoints, 4)
	}
	more = slices.DeleteFunc(more, func(is issue) bool { return len(is.endpoints) == 0 })
	p.found = append(p.found, p.findings(more)...)
}

// run runs the detectors of some stages.
func (p *pathCase) run(from, to stage) []issue {
	var out []issue
	for _, d := range p.detectors {
		if d.stage >= from && d.stage <= to && !(d.stage == stageRecognise && p.settled) {
			out = append(out, d.path(p)...)
		}
	}
	return out
}

// conclude gives the path its verdict, and its by-design answer.
func (p *pathCase) conclude() {
	p.found = p.provable(p.found)
	p.verdict = report.WithFindings(report.Match, p.found)
	p.found = append(p.found, p.findings(p.run(stageVerdict, stageByDesign))...)
	if p.verdict == report.Match &&
		slices.ContainsFunc(p.found, func(f report.Finding) bool { return f.Code == NodeLocalDNS }) {
		p.verdict = report.ByDesign
	}
}

// describe fills in what the path is and what it should be.
func (p *pathCase) describe(out *report.Path) {
	f, o := &p.want.Frontend, &p.want.Origin
	out.Frontend = report.Frontend{
		Kind: string(
			f.Kind,
		),
		Address:  f.Address.String(),
		Port:     int32(f.Port),
		Protocol: string(f.Protocol),
		PortName: f.PortName,
	}
	out.Origin = report.Origin{Kind: string(o.Kind), Pod: o.Pod, Sample: o.Sample}
	if o.Address.IsValid() {
		out.Origin.Address = o.Address.String()
	}
	out.Expected = p.expectedOf(p.want)
	if p.req.PerPathService {
		out.Service = &report.ObjectRef{Namespace: p.svc.Namespace, Name: p.svc.Name}
	}
}

func (w *worker) expectedOf(want *expect.Path) report.Expected {
	return report.Expected{
		Action:          string(want.Action),
		Masquerade:      string(want.Masquerade),
		AffinitySeconds: want.AffinitySeconds,
		Endpoints:       w.listOf(want.Endpoints),
	}
}

// listOf returns endpoints as reports have them: one list for all paths of a Service that have the same.
func (w *worker) listOf(list []expect.Endpoint) []report.Endpoint {
	if len(list) == 0 {
		return nil
	}
	return w.lists.once(&list[0], func() []report.Endpoint {
		out := make([]report.Endpoint, len(list))
		for i := range list {
			x := &list[i]
			out[i] = report.Endpoint{
				Address: x.Address.Addr().String(), Port: int32(x.Address.Port()),
				Share: 1 / float64(len(list)), Pod: x.Pod, Node: x.Node,
			}
		}
		return out
	})
}

func (p *pathCase) actual() report.Actual {
	a := report.Actual{Sharing: p.got.sharing()}
	for i := range p.got.list {
		o := &p.got.list[i]
		out := report.Outcome{
			Action: o.action, Share: o.share, Masquerade: o.masq, MasqueradeBy: ruleRef(o.masqBy), Where: ruleRef(o.where),
			Listener: p.listenerAt(o),
		}
		if o.to.IsValid() {
			out.Endpoint = &report.Endpoint{Address: o.to.Addr().String(), Port: int32(o.to.Port()), Share: o.share}
		}
		a.Outcomes = append(a.Outcomes, out)
	}
	for _, u := range p.uncertain() {
		a.Uncertain = append(
			a.Uncertain,
			report.Uncertain{Where: ruleRef(u.Where), Match: strings.Clone(u.What), Why: strings.Clone(u.Why)},
		)
	}
	return a
}

// listenerAt names the process that takes what is given to a socket of the node; "" where it is given to none, or none
// was collected.
func (p *pathCase) listenerAt(o *outcome) string {
	if !o.here || !p.SocketsRead {
		return ""
	}
	at := o.to
	if !at.IsValid() {
		at = netip.AddrPortFrom(p.want.Frontend.Address, p.want.Frontend.Port)
	}
	if s := p.listener(at); s != nil {
		return processOf(s)
	}
	return ""
}

func stepsOf(res *netfilter.Result, ends []outcome) []report.Step {
	steps := inOrder(res.Steps)
	out, endpoints := make([]report.Step, len(steps)), branches(steps)
	nameRemaining(endpoints, steps, ends)
	for i := range steps {
		s := &steps[i]
		out[i] = report.Step{
			Hook: s.Ref.Hook.String(), RuleRef: ruleRef(s.Ref), Verdict: s.String(), Share: min(s.P, 1), Text: "policy",
			Endpoints: endpoints[i],
		}
		if s.Ref.Rule != nil {
			out[i].Text = strings.Clone(s.Ref.Rule.Text)
		}
	}
	return out
}
