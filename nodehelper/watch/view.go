// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"slices"
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// countedVerdict is the verdict of a path by what counts: a path with a warning that counts and an error that does not
// is a Warning still, and one on which nothing counts of what is wrong is settling.
func (s *settler) countedVerdict(p *report.Path) report.Verdict {
	if p.Verdict != report.Mismatch && p.Verdict != report.Warning {
		return p.Verdict
	}
	out, waits := settling, false
	for i := range p.Findings {
		f := &p.Findings[i]
		switch {
		case !severe(f):
		case !s.counts(subjectOf(p, f)):
			waits = true
		case out == settling:
			out = report.AgentVerdict(f.Severity)
		default:
			out = report.Worse(out, report.AgentVerdict(f.Severity))
		}
	}
	if !waits {
		return p.Verdict
	}
	return out
}

// viewOf counts what a pass has shown.
func (a *Agent) viewOf(r *report.NodeReport, state *nodestate.State) *view {
	v := &view{
		paths: map[report.Verdict]int{
			report.Match: r.Summary.Matched, report.ByDesign: r.Summary.ByDesign, report.Warning: r.Summary.Warnings,
			report.Mismatch: r.Summary.Mismatched, report.Unknown: r.Summary.Unknown,
		},
		findings: map[series]int{},
	}
	for i := range r.Paths {
		p := &r.Paths[i]
		if slices.ContainsFunc(p.Findings, func(f report.Finding) bool { return f.Code == judge.NotJudged }) {
			v.notJudged++
		}
		counts := map[series]bool{}
		for k := range p.Findings {
			f := &p.Findings[k]
			if !severe(f) {
				continue
			}
			if s := subjectOf(p, f); a.settler.counts(s) {
				counts[series{f.Code, string(f.Severity), s.service.Namespace, s.service.Name}] = true
			}
		}
		for s := range counts {
			v.findings[s]++
		}
		v.paths[p.Verdict]--
		v.paths[a.settler.countedVerdict(p)]++
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; severe(f) && a.settler.counts(subjectOf(nil, f)) {
			v.findings[series{code: f.Code, severity: string(f.Severity)}] = 1
		}
	}
	v.settling, _ = a.settler.waiting(time.Now(), a.grace)
	v.settlingFor, v.grace = a.settler.settlingFor(), a.grace
	if r.Mode != nil {
		v.mode, v.backend, v.version = r.Mode.Actual, r.Mode.Backend, r.Mode.KubeProxyVersion
	}
	for _, x := range state.Proxy.Syncs {
		if x.Synced > 0 && (v.synced == 0 || x.Synced < v.synced) {
			v.synced = x.Synced
		}
	}
	v.unread = len(unreadFiles(state))
	return v
}
