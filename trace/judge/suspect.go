// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// suspects are the kinds of findings that make a path Unknown and may be why its connections fail, with the words that
// lead to them.
var suspects = map[string]string{
	RuleNotEvaluated:   "; what could not be evaluated on the path may be why: ",
	AnswerNotEvaluated: "; what could not be evaluated on the path may be why: ",
	ProgramOnPath:      "; what could not be evaluated on the path may be why: ",
	PodsCutOff:         "; this may be why: ",
	NextHopUnknown:     "; this may be why: ",
	OtherNeighbour:     "; this may be why: ",
	StaticNeighbour:    "; this may be why: ",
	RoutedByPod:        "; this may be why: ",
	RoutedByNode:       "; this may be why: ",
	BridgeVLANs:        "; this may be why: ",
	ARPNotAnswered:     "; this may be why: ",
}

// suspect adds to what connections have shown to be wrong what had made their path Unknown: it may be why.
func (p *pathCase) suspect(issues []issue) {
	for i := range issues {
		is := &issues[i]
		if kinds[is.code].severity != mismatch || is.severity != "" {
			continue
		}
		var lead string
		var named []string
		var evidence []report.Evidence
		for k := range p.found {
			f := &p.found[k]
			if suspects[f.Code] == "" || lead != "" && suspects[f.Code] != lead || len(f.Evidence) == 0 || !p.mayCause(f, is) {
				continue
			}
			name := f.Evidence[0].Text
			if f.Predicate != "" && f.Code != PodsCutOff {
				name = f.Subject
			}
			if lead = suspects[f.Code]; !slices.Contains(named, name) {
				named, evidence = append(named, name), append(evidence, f.Evidence...)
			}
			if f.Code == PodsCutOff {
				if is.remedy.IsZero() {
					is.remedy = p.advise(kinds[is.code].remedy, is)
				}
				is.remedy.Commands = append(slices.Clip(is.remedy.Commands), f.Commands...)
			}
		}
		if named == nil {
			continue
		}
		is.evidence = append(slices.Clip(is.evidence), evidence[:min(len(evidence), maxEvidence)]...)
		if !strings.Contains(is.message, named[0]) { // the kernel may have named it
			is.message += lead + cut(named, 3)
		}
	}
}

// mayCause tells whether a finding may be about the connections of an issue: those to some endpoints, where it is of
// others.
func (p *pathCase) mayCause(f *report.Finding, is *issue) bool {
	switch {
	case len(is.endpoints) == 0:
		return true
	case f.Code == PodsCutOff:
		return f.Subject == p.want.Origin.Pod || slices.ContainsFunc(is.endpoints, func(e string) bool {
			at, err := netip.ParseAddrPort(e)
			return err == nil && f.Subject == p.cluster.podNames[at.Addr()]
		})
	}
	return len(f.Endpoints) == 0 || slices.ContainsFunc(f.Endpoints, func(e string) bool {
		return slices.Contains(is.endpoints, e)
	})
}
