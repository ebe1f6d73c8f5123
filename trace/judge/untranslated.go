// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// consequence tells whether a finding of the path says already that the source address is not translated, to which it
// is due that an answer is lost. The finding is then about the endpoints whose answers are.
func consequence(p *report.Path, s *report.Segment) bool {
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Severity != report.Error || f.Actual != notMasqueraded && f.Code != IPVSConntrackOff {
			continue
		}
		if !f.Client.Fails {
			f.Client = sayingFails("fail", "fails", ": "+answerGone)
			f.Endpoints, f.Predicate = nil, ""
			f.Message += "; the answers of these endpoints go directly to the client, which connected to another address"
		}
		f.Endpoints = append(f.Endpoints, s.Endpoint)
		f.Subject = cut(f.Endpoints, 4)
		f.Evidence = append(slices.Clip(f.Evidence), placedEvidence(s)...)
		return true
	}
	return false
}

// placedEvidence is that of a segment, with its place.
func placedEvidence(s *report.Segment) []report.Evidence {
	out := slices.Clone(s.Evidence)
	for i := range out {
		if out[i].Where == (report.RuleRef{}) {
			out[i].Text = s.Place + ": " + out[i].Text
		}
	}
	return out
}
