// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strconv"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// Confirmed tells whether what is wrong in a node's report was wrong in the same way in an earlier one. kube-proxy
// needs a moment to follow the API, so that a difference seen once may be nothing but its normal work (a sync under
// way).
func Confirmed(earlier, later *report.NodeReport) bool {
	before := wrongIn(earlier)
	for subject, findings := range wrongIn(later) {
		if !overlap(before[subject], findings) {
			return false
		}
	}
	return true
}

// Right tells whether nothing is wrong in a node's report, so that nothing needs to be confirmed.
func Right(r *report.NodeReport) bool { return len(wrongIn(r)) == 0 }

// Alike tells whether two reports have the same paths in the same order, each with the same verdict, and wrong in the
// same respects.
func Alike(a, b *report.NodeReport) bool {
	return slices.EqualFunc(a.Paths, b.Paths, func(x, y report.Path) bool {
		return pathKey(&x) == pathKey(&y) && x.Verdict == y.Verdict && slices.Equal(severe(x.Findings), severe(y.Findings))
	})
}

// AsksOthers tells whether the judgement of a node depends on what other nodes or pods say of their interfaces, and
// they were not read.
func AsksOthers(r *report.NodeReport) bool {
	for i := range r.Paths {
		if slices.ContainsFunc(r.Paths[i].Findings, func(f report.Finding) bool { return f.Code == Changing }) {
			return false // it was withdrawn
		}
	}
	return len(r.Asks) > 0
}

// Wrong is a node's report with those of its paths alone with which something is wrong.
func Wrong(r *report.NodeReport) *report.NodeReport {
	out := *r
	out.Paths = nil
	for i := range r.Paths {
		if len(severe(r.Paths[i].Findings)) > 0 {
			out.Paths = append(out.Paths, r.Paths[i])
		}
	}
	return &out
}

// Doubt takes back what is wrong in a node's report and was not so in the earlier one: such paths become Unknown, with
// the finding Changing, and node-wide findings information. why says what keeps changing.
func Doubt(earlier, later *report.NodeReport, why string) {
	before := wrongIn(earlier)
	later.Summary = report.Summary{
		Paths: later.Summary.Paths, Matched: later.Summary.Matched, ByDesign: later.Summary.ByDesign,
	}
	worstPath := report.ByDesign
	if later.Summary.Matched > 0 {
		worstPath = report.Match
	}
	for i := range later.Paths {
		p := &later.Paths[i]
		if now := severe(p.Findings); p.Verdict != report.Unknown && len(now) > 0 && !overlap(before[pathKey(p)], now) {
			p.Verdict = report.Unknown
			p.Findings = append(p.Findings, changing(later, why))
			report.Complete(p)
		}
		if p.Verdict != report.Match && p.Verdict != report.ByDesign {
			later.Summary.Count(p.Verdict)
			later.Summary.Paths--
		}
		worstPath = report.Together(worstPath, p.Verdict)
	}
	for i := range later.Findings {
		f := &later.Findings[i]
		if f.Severity != report.Info && !overlap(before[nodeKey(f)], []string{f.Code}) {
			f.Severity = report.Info
			once := " (seen once: " + why + ")"
			if f.Message += once; f.Predicate != "" {
				f.Predicate += once
			}
		}
	}
	later.Verdict = report.WithFindings(worstPath, later.Findings)
}

// Changing says that what was wrong at first was not so when it was read again.
const Changing = "Changing"

var _ = register(kind{
	code:     Changing,
	severity: note,
	scope:    onPath,
	by:       secondReading,
	remedy: advice("look again in a minute; if nothing changes, kube-proxy on {node} cannot keep up: see its log and " +
		"its sync metrics"),
	issues: []string{"kubernetes/kubernetes#112604"},
})

func changing(r *report.NodeReport, why string) report.Finding {
	k, version := kinds[Changing], ""
	if r.Mode != nil {
		version = r.Mode.KubeProxyVersion
	}
	return report.Finding{
		Code:     k.code,
		Severity: k.severity,
		Message:  why,
		Remedy:   strings.ReplaceAll(k.remedy.text, "{node}", r.Node),
		Links:    links(k, version),
	}
}

// wrongIn lists what is wrong, by what it is wrong with.
func wrongIn(r *report.NodeReport) map[string][]string {
	out := map[string][]string{}
	for i := range r.Paths {
		if found := severe(r.Paths[i].Findings); len(found) > 0 {
			out[pathKey(&r.Paths[i])] = found
		}
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Severity != report.Info {
			out[nodeKey(f)] = []string{f.Code}
		}
	}
	return out
}

// connectionsFail are the kinds of findings that say of connections to an endpoint that they fail. In which way may
// change: a packet that is lost is answered by an error once the kernel has given its next hop up, and by nothing
// before. Which endpoint a packet was for that the kernel discards is not always known.
var connectionsFail = []string{
	EndpointRefused, EndpointTimeout, EndpointUnreachable, EndpointSilent, DataNotAcknowledged, EndpointReachableDirectly,
}

// severe returns the findings that make a verdict worse, by code and subject.
func severe(fs []report.Finding) []string {
	var out []string
	for i := range fs {
		if f := &fs[i]; f.Severity != report.Info || f.Code == WalkDisagrees {
			what := f.Code + " " + f.Subject
			switch {
			case f.Code == PacketDropped || f.Code == PacketLost:
				what = packetsLost
			case slices.Contains(connectionsFail, f.Code):
				what = connectionsFailTo + f.Subject
			}
			out = append(out, what)
		}
	}
	return out
}

func pathKey(p *report.Path) string {
	key := p.Frontend.Kind + " " + p.Frontend.Address + " " + p.Frontend.Protocol + " " + strconv.Itoa(
		int(p.Frontend.Port),
	) + " " + p.Origin.Kind + " " + p.Origin.Address
	if p.Service != nil {
		key = p.Service.Namespace + "/" + p.Service.Name + " " + key
	}
	return key
}

func nodeKey(f *report.Finding) string { return "node " + f.Code + " " + f.Subject }

// packetsLost and connectionsFailTo are what all findings say that connections fail: those that name the endpoint, and
// those that name where packets are lost, which a busy node does not always get to know.
const packetsLost, connectionsFailTo = "packets are lost", "connections fail "

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool {
		return slices.ContainsFunc(b, func(o string) bool {
			return s == o || s == packetsLost && strings.HasPrefix(o, connectionsFailTo) ||
				o == packetsLost && strings.HasPrefix(s, connectionsFailTo)
		})
	})
}
