// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

// A chain has the status of what points at one of its rules or its policy, and not of what points at one whose name
// only begins the same, or at one of the other backend.
func TestStepStatus(t *testing.T) {
	of := func(table, chain string, rule int) RuleRef {
		return RuleRef{Table: table, Backend: BackendNFT, Chain: chain, Rule: rule}
	}
	native := RuleRef{Table: "ip kube-proxy", Backend: BackendNative, Chain: "services", Rule: 3}
	legacy := of("filter", "FORWARD", 1)
	legacy.Backend = BackendLegacy
	p := Path{
		Verdict: Mismatch, Expected: Expected{Action: "DNAT"},
		Actual: Actual{
			Outcomes: []Outcome{
				{Action: "Drop", Share: 1, Where: of("filter", "FORWARD", 0)},
				{Action: "DNAT", Share: 1, Where: of("filter", "INPUT", 1)},
			},
			Uncertain: []Uncertain{{Where: of("filter", "CNI-X", 2)}, {}},
		},
		Findings: []Finding{
			{Severity: Error, Evidence: []Evidence{{Where: native, Text: "x: y"}}},
			{Severity: Warn, Evidence: []Evidence{{Where: of("nat", "KUBE-SVC-A", 1)}, {Where: of("filter", "CNI-Y", 1)}}},
			{Severity: Error, Evidence: []Evidence{{Text: "filter CNI-Z rule 1: x"}, {Where: of("filter", "CNI-Y", 1)}}},
			{Severity: Info, Evidence: []Evidence{{Where: of("nat", "KUBE-SVC-B", 1)}}},
		},
	}
	want := map[RuleRef]Status{
		of("filter", "FORWARD", 7): StatusWrong, of("filter", "FORWARD2", 1): "", of("filter", "FORW", 1): "", legacy: "",
		of("filter", "INPUT", 1): "", of("filter", "CNI-X", 0): StatusUnknown, of("filter", "CNI-Y", 2): StatusWrong,
		of("filter", "CNI-Z", 1): "", native: StatusWrong,
		of("nat", "KUBE-SVC-A", 3): StatusSuspect, of("nat", "KUBE-SVC-AB", 1): "", of("nat", "KUBE-SVC-B", 1): "",
		{}: "",
	}
	for where := range want {
		p.Steps = append(p.Steps, Step{RuleRef: where})
	}
	Complete(&p)
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Status != want[s.RuleRef] {
			t.Errorf("%s: status %q, want %q", s.RuleRef, s.Status, want[s.RuleRef])
		}
	}
}
