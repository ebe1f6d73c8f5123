// SPDX-License-Identifier: Apache-2.0

package report

import "strings"

// pages is where docs/findings.md is read.
const pages = "https://github.com/svcproxy/kubectl-svcproxy/blob/main/docs/findings.md"

// PageOf returns the address of the section that explains a code.
func PageOf(code string) string { return pages + "#" + strings.ToLower(code) }

// LinkPages writes into each finding where its code is explained.
func (r *Report) LinkPages() {
	for i := range r.Nodes {
		n := &r.Nodes[i]
		link(n.Findings)
		for k := range n.Paths {
			link(n.Paths[k].Findings)
		}
	}
}

func link(findings []Finding) {
	for i := range findings {
		findings[i].Page = PageOf(findings[i].Code)
	}
}

// Worst returns the code of the finding to read about first: of the worst severity the first one, else the first one
// for which a path is Unknown; "" where there is neither.
func (r *Report) Worst() string {
	for _, severity := range []Severity{Error, Warn} {
		for i := range r.Nodes {
			n := &r.Nodes[i]
			for k := range n.Paths {
				if code := firstOf(n.Paths[k].Findings, severity); code != "" {
					return code
				}
			}
			if code := firstOf(n.Findings, severity); code != "" {
				return code
			}
		}
	}
	for i := range r.Nodes {
		for k := range r.Nodes[i].Paths {
			if p := &r.Nodes[i].Paths[k]; p.Verdict == Unknown {
				if code := firstOf(p.Findings, Info); code != "" {
					return code
				}
			}
		}
	}
	return ""
}

func firstOf(findings []Finding, severity Severity) string {
	for i := range findings {
		if findings[i].Severity == severity {
			return findings[i].Code
		}
	}
	return ""
}
