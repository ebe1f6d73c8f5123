// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"

	corev1 "k8s.io/api/core/v1"

	"github.com/svcproxy/kubectl-svcproxy/trace/expect"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// target is how a frontend, or an endpoint directly, is probed from an origin; ok is false for an origin that is not on
// the node.
func target(f *expect.Frontend, o *expect.Origin, to netip.AddrPort) (t snapshot.ProbeTarget, ok bool) {
	t = snapshot.ProbeTarget{Protocol: string(f.Protocol), To: to}
	switch o.Kind {
	case expect.FromNode:
		return t, true
	case expect.FromPod:
		t.From = o.Address
		return t, o.Pod != "" && !o.Sample // no connection is made from a pod that nobody named
	case expect.FromExternal:
	}
	return t, false
}

// maxTraced is how many frontends have the kernel's own trace: each takes a moment, one after the other.
const maxTraced = 100

// straight is how many connections are made straight to each endpoint: one may fail by chance.
const straight = 2

// Probing says what connections to make of each frontend and origin.
type Probing struct {
	Probes  int    // how many
	Payload string // what to send over each; empty: nothing
	TCP     bool   // Payload is for TCP alone
}

// ProbeTargets lists what to probe for the paths of a report: each frontend from each origin that is on the node, and
// each endpoint directly, at most limit targets in all. left counts those that do not fit.
func ProbeTargets(r *report.NodeReport, of Probing, limit int) (targets []snapshot.ProbeTarget, left int) {
	seen := map[snapshot.ProbeTarget]bool{}
	var direct []snapshot.ProbeTarget
	add := func(list *[]snapshot.ProbeTarget, t snapshot.ProbeTarget, n int) {
		if !seen[t] {
			seen[t] = true
			if t.Probes = n; t.Protocol == "TCP" || !of.TCP {
				t.Payload = of.Payload
			}
			*list = append(*list, t)
		}
	}
	for i := range r.Paths {
		p := &r.Paths[i]
		f, o, ok := asked(p)
		if !ok {
			continue
		}
		t, ok := target(&f, &o, netip.AddrPortFrom(f.Address, f.Port))
		if !ok {
			continue
		}
		add(&targets, t, of.Probes)
		if k := len(targets) - 1; k < maxTraced {
			targets[k].Trace = true
		}
		for k := range p.Expected.Endpoints {
			if e, ok := p.Expected.Endpoints[k].AddrPort(); ok {
				t.To = e
				add(&direct, t, straight)
			}
		}
	}
	targets = append(targets, direct...)
	left = max(0, len(targets)-limit)
	return targets[:len(targets)-left], left
}

// asked returns a path's frontend and origin as they were asked for.
func asked(p *report.Path) (f expect.Frontend, o expect.Origin, ok bool) {
	a, err := netip.ParseAddr(p.Frontend.Address)
	if err != nil || p.Frontend.Port <= 0 || p.Frontend.Port > 65535 {
		return f, o, false
	}
	f = expect.Frontend{
		Kind:     expect.FrontendKind(p.Frontend.Kind),
		Address:  a,
		Port:     uint16(p.Frontend.Port),
		Protocol: corev1.Protocol(p.Frontend.Protocol),
	}
	o = expect.Origin{Kind: expect.OriginKind(p.Origin.Kind), Pod: p.Origin.Pod, Sample: p.Origin.Sample}
	if p.Origin.Address != "" {
		if o.Address, err = netip.ParseAddr(p.Origin.Address); err != nil {
			return f, o, false
		}
	}
	return f, o, true
}

// observe adds to a path what connections showed, and what is wrong with that. The rules' own verdict has been given.
func (p *pathCase) observe(out *report.Path) {
	t, ok := target(&p.want.Frontend, &p.want.Origin, netip.AddrPortFrom(p.want.Frontend.Address, p.want.Frontend.Port))
	if !ok || p.Probes[t] == nil {
		return
	}
	p.probes = p.Probes[t]
	out.Observed = observedOf(p.probes)
	out.Observed.Lost = p.losses()
	issues := p.run(stageObserve, stageObserve)
	p.suspect(issues)
	p.found = append(p.found, p.findings(issues)...)
	p.verdict = report.WithFindings(p.verdict, p.found)
	disagrees := slices.ContainsFunc(issues, func(is issue) bool { return is.code == WalkDisagrees })
	if disagrees && (p.verdict == report.Match || p.verdict == report.Warning) {
		p.verdict = report.Unknown // what this tool may read wrongly is claimed to be neither right nor wrong
	}
}

func observedOf(probes *snapshot.Probes) *report.Observed {
	o := &report.Observed{
		Probes:      len(probes.List),
		Error:       probes.Error,
		Traced:      len(probes.Traces),
		TraceError:  probes.TraceError,
		LegacyError: probes.LegacyError,
		DropsError:  probes.DropsError,
	}
	byEndpoint := map[netip.AddrPort]*report.ObservedEndpoint{}
	var times []int64
	rtts := map[netip.AddrPort][]int64{}
	results := map[string]int{}
	ended := map[netip.AddrPort]map[string]int{}
	differ := 0
	for i := range probes.List {
		x := &probes.List[i]
		how := endOf(x)
		results[how]++
		if x.RealServer.IsValid() {
			o.Scheduled++
			if x.SentTo(probes.To) != x.RealServer {
				differ++
			}
		}
		if x.Result == snapshot.ProbeConnected {
			o.Connected++
			times = append(times, x.Micros)
		}
		if x.Data == snapshot.ProbeAnswered {
			o.Answered++
		}
		to := x.SentTo(probes.To)
		if !to.IsValid() {
			continue
		}
		e := byEndpoint[to]
		if e == nil {
			e = &report.ObservedEndpoint{Address: to.Addr().String(), Port: int32(to.Port())}
			byEndpoint[to] = e
		}
		e.Count++
		if x.Result == snapshot.ProbeConnected {
			e.Connected++
			rtts[to] = append(rtts[to], x.Micros)
		}
		if ended[to] == nil {
			ended[to] = map[string]int{}
		}
		ended[to][how]++
	}
	for at, e := range byEndpoint {
		e.RTT, e.Events = median(rtts[at]), eventsOf(ended[at])
		o.Endpoints = append(o.Endpoints, *e)
	}
	slices.SortFunc(o.Endpoints, func(a, b report.ObservedEndpoint) int {
		if c := strings.Compare(a.Address, b.Address); c != 0 {
			return c
		}
		return int(a.Port - b.Port)
	})
	o.Events = eventsOf(results)
	if differ > 0 {
		o.Events = append(o.Events, report.Event{Result: report.ResultOtherServer, Count: differ})
	}
	o.RTT = median(times)
	return o
}

// endOf says how a connection ended: by its result or, where something was sent over it, by what became of that.
func endOf(x *snapshot.Probe) string {
	if x.Data != "" {
		return x.Data
	}
	return x.Result
}

// eventsOf lists, in the order of the report, how connections ended that were not as they should be.
func eventsOf(counts map[string]int) []report.Event {
	var out []report.Event
	for _, e := range ends {
		if n := counts[e.probe]; n > 0 {
			out = append(out, report.Event{Result: e.result, Count: n})
		}
	}
	return out
}

// ends are the results of probes without a connection, and what the report calls them, in its order.
var ends = []struct {
	probe  string // snapshot.ProbeSent, …
	result report.Result
}{
	{snapshot.ProbeSent, report.ResultNotAnswered},
	{snapshot.ProbeRefused, report.ResultRefused},
	{snapshot.ProbeTimeout, report.ResultTimedOut},
	{snapshot.ProbeNoRoute, report.ResultNoRoute},
	{snapshot.ProbeFailed, report.ResultFailed},
	{snapshot.ProbeSilent, report.ResultSilent},
	{snapshot.ProbeUnacknowledged, report.ResultUnacknowledged},
	{snapshot.ProbeClosed, report.ResultClosed},
}

// median returns the median of microseconds, in milliseconds; 0 of none.
func median(micros []int64) float64 {
	if len(micros) == 0 {
		return 0
	}
	slices.Sort(micros)
	return float64(micros[len(micros)/2]) / 1000
}

// Findings about real connections.
const (
	WalkDisagrees = "WalkDisagrees"
	ObservedSkew  = "ObservedSkew"
)

var (
	_ = register(kind{
		code:     WalkDisagrees,
		severity: note,
		scope:    onPath,
		by:       connections,
		remedy:   advice("run it again; if it is still so, please report it with a dump", dumpNode),
	})
	_ = register(kind{
		code: ObservedSkew, severity: warning, scope: onPath, by: connections,
		remedy: advice("run it again with more --probes; if it is still so, please report it with a dump", dumpNode),
	})
)

// dumpNode keeps what the judgement was made of.
var dumpNode = command{line: "kubectl svcproxy dump --node {node} -o dump.tar.gz"}

// connections finds what real connections show besides the rules.
var connections = &detector{stage: stageObserve, path: func(p *pathCase) []issue {
	if p.probes.Error != "" {
		return []issue{{code: NotCollected, message: "no connection was tried: " + p.probes.Error}}
	}
	var issues []issue
	if p.want.Action == expect.DNAT && p.verdict != report.Mismatch { // where the rules are wrong, that is why
		issues = p.unanswered()
	}
	issues = append(issues, p.disagreement()...)
	issues = append(issues, p.rulesDisagree()...)
	// With affinity one client has one endpoint, and not every scheduler of IPVS has shares.
	if !p.got.uncertain && len(issues) == 0 && p.want.AffinitySeconds == 0 && p.got.sharing() == "" {
		issues = append(issues, skew(&p.got, p.probes)...)
	}
	return issues
}}

// disagreement finds connections that the kernel sent where the walk says that none can go. What is translated and
// dropped behind that is sent, too: connection tracking has the connection before chains of devices and bridges have
// the packet.
func (p *pathCase) disagreement() []issue {
	probes := p.probes
	frontend := netip.AddrPortFrom(p.want.Frontend.Address, p.want.Frontend.Port)
	var elsewhere []string
	for i := range probes.List {
		to := probes.List[i].SentTo(frontend)
		if !to.IsValid() || to == frontend {
			continue
		}
		if !p.got.leads(to) && !slices.Contains(elsewhere, to.String()) {
			elsewhere = append(elsewhere, to.String())
		}
	}
	if len(elsewhere) == 0 {
		return nil
	}
	return []issue{
		{
			code:      WalkDisagrees,
			subject:   cut(elsewhere, 4),
			endpoints: elsewhere,
			expected:  "none of the probes",
			actual:    "sent there by the kernel",
			message: "the kernel sends connections where no rule that was read leads: this tool may read the rules wrongly, " +
				"or they have changed in between",
		},
	}
}

// improbable is how rarely chance may explain what is called a skew.
const improbable = 1e-4

// skew finds endpoints that get more or less than their share, beyond chance: the exact binomial test of each endpoint,
// with Bonferroni's correction for their number.
func skew(got *outcomes, probes *snapshot.Probes) []issue {
	count := map[netip.AddrPort]int{}
	n := 0
	for i := range probes.List {
		if e := probes.List[i].SentTo(probes.To); e.IsValid() {
			count[e]++
			n++
		}
	}
	translated := got.translated()
	if n == 0 || n < len(probes.List) || len(translated) < 2 {
		return nil // refused connections leave no entry
	}
	shares := map[netip.AddrPort]float64{}
	for _, o := range translated {
		shares[o.to] += o.share
	}
	var bad, skewed []string
	for _, to := range slices.SortedFunc(maps.Keys(shares), netip.AddrPort.Compare) {
		share := shares[to]
		if twoSided(count[to], n, share)*float64(len(shares)) < improbable {
			skewed = append(skewed, to.String())
			bad = append(bad, fmt.Sprintf("%s: %d of %d, for a share of %s", to, count[to], n, percent(share)))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return []issue{
		{
			code:      ObservedSkew,
			subject:   skewed[0],
			endpoints: skewed,
			expected:  "the rules' shares",
			actual:    cut(bad, 3),
			evidence:  say(bad[:min(len(bad), maxEvidence)]...),
			message: "the endpoints get other shares of the connections than the rules give them, and the probability that " +
				"this is chance is less than 1 in 10,000",
		},
	}
}
