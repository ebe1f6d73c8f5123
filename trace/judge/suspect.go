// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// What may happen to packets for something that is not known.
const (
	mayNotArrive = "may not arrive"
	notEvaluated = "; what could not be evaluated on the path may be why: "
	notKnown     = "; this may be why: "
)

// lead are the words that lead to a finding which made a path Unknown, where connections fail; "" for any other.
func lead(f *report.Finding) string {
	switch {
	case f.Severity != report.Info:
		return ""
	case f.Code == RuleNotEvaluated || f.Code == AnswerNotEvaluated || f.Code == ProgramOnPath:
		return notEvaluated
	case f.Actual == mayNotArrive || f.Code == PodsCutOff || f.Code == BridgePortUnknown:
		return notKnown
	}
	return ""
}

// suspect adds to what connections have shown to be wrong what had made their path Unknown: it may be why.
func (p *pathCase) suspect(issues []issue) {
	for i := range issues {
		is := &issues[i]
		if kinds[is.code].severity != mismatch || is.severity != "" {
			continue
		}
		var words string
		var named []string
		var evidence []report.Evidence
		for k := range p.found {
			f := &p.found[k]
			to := lead(f)
			if to == "" || words != "" && words != to || len(f.Evidence) == 0 || !p.mayCause(f, is) {
				continue
			}
			name := f.Evidence[0].Text
			switch {
			case f.Code == BridgePortUnknown:
				name = f.Message
			case f.Predicate != "" && f.Code != PodsCutOff:
				name = f.Subject
			}
			if words = to; !slices.Contains(named, name) {
				named, evidence = append(named, name), append(evidence, f.Evidence...)
			}
			if f.Code == PodsCutOff || f.Code == BridgePortUnknown {
				if is.remedy.IsZero() {
					is.remedy = p.advise(kinds[is.code].remedy, is)
				}
				is.remedy.Commands = slices.Clip(is.remedy.Commands)
				for _, c := range f.Commands {
					if c.Node != "" { // trace --live is what found it
						is.remedy.Commands = append(is.remedy.Commands, c)
					}
				}
			}
		}
		if named == nil {
			continue
		}
		is.evidence = append(slices.Clip(is.evidence), evidence[:min(len(evidence), maxEvidence)]...)
		if !strings.Contains(is.message, named[0]) { // the kernel may have named it
			is.message += words + cut(named, 3)
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
