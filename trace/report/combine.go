// SPDX-License-Identifier: Apache-2.0

package report

import "slices"

// worst orders verdicts, the worst first. A whole report is as bad as the worst of its parts.
var worst = []Verdict{Mismatch, Unknown, Warning, ByDesign, Match}

// Worse returns the worse of two verdicts.
func Worse(a, b Verdict) Verdict {
	if slices.Index(worst, b) < slices.Index(worst, a) {
		return b
	}
	return a
}

// NeedsAttention tells whether a verdict asks for somebody to look: all but Match and ByDesign do.
func (v Verdict) NeedsAttention() bool { return v != Match && v != ByDesign }

// VerdictOn is the verdict that a finding stands for, of a path or, where p is nil, of a node: information takes that
// of a path which is refused by design or not judged, and is "" elsewhere.
func (f *Finding) VerdictOn(p *Path) Verdict {
	switch f.Severity {
	case Error:
		return Mismatch
	case Warn:
		return Warning
	case Info:
		if p != nil && (p.Verdict == ByDesign || p.Verdict == Unknown) {
			return p.Verdict
		}
	}
	return ""
}

// Codes names the findings that a path's verdict is due to, each once. Beside what is wrong, information is left out.
func (p *Path) Codes() []string {
	return codes(p.Findings, p.Verdict != Mismatch && p.Verdict != Warning)
}

// Codes names what is wrong with the node as a whole, each code once, and why it could not be inspected.
func (n *NodeReport) Codes() []string { return codes(n.Findings, n.Error != "") }

func codes(findings []Finding, info bool) []string {
	var out []string
	for i := range findings {
		if f := &findings[i]; (info || f.Severity != Info) && !slices.Contains(out, f.Code) {
			out = append(out, f.Code)
		}
	}
	return out
}

// WithFindings returns what a verdict becomes with findings: an error makes it a Mismatch, a warning a Warning.
func WithFindings(v Verdict, fs []Finding) Verdict {
	for _, f := range fs {
		switch f.Severity {
		case Error:
			v = Worse(v, Mismatch)
		case Warn:
			v = Worse(v, Warning)
		case Info:
		}
	}
	return v
}

// Combine makes the report of a command from its nodes' reports. A report whose paths are a mixture of Match and
// ByDesign is a Match: nothing is wrong, and something works.
func Combine(kind string, service *ServiceInfo, nodes []NodeReport) *Report {
	r := &Report{APIVersion: APIVersion, Kind: kind, Service: service, Nodes: nodes, Verdict: ByDesign}
	r.Summary.Nodes = len(nodes)
	for i := range nodes {
		n := &nodes[i]
		s := &n.Summary
		r.Summary.Paths += s.Paths
		r.Summary.Matched += s.Matched
		r.Summary.Mismatched += s.Mismatched
		r.Summary.ByDesign += s.ByDesign
		r.Summary.Unknown += s.Unknown
		r.Summary.Warnings += s.Warnings
		r.Verdict = Together(r.Verdict, n.Verdict)
	}
	if len(nodes) == 0 {
		r.Verdict = Unknown
	}
	return r
}

// Together is Worse, except that what works outweighs what is refused by design.
func Together(a, b Verdict) Verdict {
	if a == ByDesign && b == Match || a == Match && b == ByDesign {
		return Match
	}
	return Worse(a, b)
}

// Count adds a path to the node's counts.
func (s *Summary) Count(v Verdict) {
	s.Paths++
	switch v {
	case Match:
		s.Matched++
	case Mismatch:
		s.Mismatched++
	case ByDesign:
		s.ByDesign++
	case Unknown:
		s.Unknown++
	case Warning:
		s.Warnings++
	}
}
