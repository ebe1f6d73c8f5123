// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"time"

	"github.com/svcproxy/kubectl-svcproxy/trace/nodestate"
	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// viewOf counts what a pass has shown. A path on which nothing counts of what is wrong is settling.
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
		waits, counts := false, map[series]bool{}
		for k := range p.Findings {
			f := &p.Findings[k]
			if !severe(f) {
				continue
			}
			if s := subjectOf(p, f); a.settler.counts(s) {
				counts[series{f.Code, string(f.Severity), s.service.Namespace, s.service.Name}] = true
			} else {
				waits = true
			}
		}
		for s := range counts {
			v.findings[s]++
		}
		if waits && len(counts) == 0 && (p.Verdict == report.Mismatch || p.Verdict == report.Warning) {
			v.paths[p.Verdict]--
			v.paths[settling]++
		}
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; severe(f) && a.settler.counts(subjectOf(nil, f)) {
			v.findings[series{code: f.Code, severity: string(f.Severity)}] = 1
		}
	}
	v.settling, _ = a.settler.waiting(time.Now(), a.grace)
	if r.Mode != nil {
		v.mode, v.backend, v.version = r.Mode.Actual, r.Mode.Backend, r.Mode.KubeProxyVersion
	}
	for _, x := range state.Proxy.Syncs {
		if x.Synced > 0 && (v.synced == 0 || x.Synced < v.synced) {
			v.synced = x.Synced
		}
	}
	for _, f := range state.UnreadFiles() {
		if f != snapshot.ConntrackFile { // which nobody has tried to read
			v.unread++
		}
	}
	return v
}
