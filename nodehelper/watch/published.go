// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"github.com/svcproxy/kubectl-svcproxy/trace/judge"
	"github.com/svcproxy/kubectl-svcproxy/trace/nodereport"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// waitingOf are the findings that do not count yet.
func waitingOf(r *report.NodeReport, s *settler) map[findingKey]bool {
	out := map[findingKey]bool{}
	for of, f := range wrongIn(r) {
		if !s.counts(of) {
			out[findingKey{f.Code, of.service.Namespace, of.service.Name, f.Severity}] = true
		}
	}
	return out
}

// publishedOf adds up, by code and Service, the findings that count, and why paths could not be judged.
func publishedOf(r *report.NodeReport, s *settler) []nodereport.Finding {
	at := map[findingKey]int{}
	var out []nodereport.Finding
	add := func(code string, severity report.Severity, of subject, paths int) {
		f := nodereport.Finding{Code: code, Severity: severity, Namespace: of.service.Namespace, Service: of.service.Name}
		k := keyOf(&f)
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k], out = i, append(out, f)
		}
		x := &out[i]
		x.Paths += paths
		if seen := s.seen[of]; severity != report.Info && seen != nil &&
			(x.Since == nil || seen.since.Before(x.Since.Time)) {
			since := nodereport.TimeOf(seen.since)
			x.Since = &since
		}
	}
	for i := range r.Paths {
		p := &r.Paths[i]
		counted := map[findingKey]bool{} // several of a kind are one of the path
		once := func(code string, severity report.Severity, of subject) {
			k := findingKey{code, of.service.Namespace, of.service.Name, severity}
			paths := 1
			if counted[k] {
				paths = 0
			}
			counted[k] = true
			add(code, severity, of, paths)
		}
		for k := range p.Findings {
			if f := &p.Findings[k]; severe(f) && s.counts(subjectOf(p, f)) {
				once(f.Code, f.Severity, subjectOf(p, f))
			}
		}
		if p.Verdict == report.Unknown {
			code, of := judge.NotJudged, // where no finding says why
				subjectOf(p, &report.Finding{})
			for k := range p.Findings {
				if f := &p.Findings[k]; !severe(f) {
					code = f.Code
					break
				}
			}
			once(code, report.Info, of)
		}
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; severe(f) && s.counts(subjectOf(nil, f)) {
			add(f.Code, f.Severity, subjectOf(nil, f), 0)
		}
	}
	return out
}
