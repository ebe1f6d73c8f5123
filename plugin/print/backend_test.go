// SPDX-License-Identifier: Apache-2.0

package print

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// On a node where both backends have rules, "filter OUTPUT 1" stood there twice.
func TestTablesOfBothBackends(t *testing.T) {
	of := func(table, backend string) report.Step {
		return report.Step{RuleRef: report.RuleRef{Table: table, Backend: backend}}
	}
	nft, legacy := of("filter", report.BackendNFT), of("filter", report.BackendLegacy)
	native := of("inet firewalld", report.BackendNative)
	for _, tt := range []struct {
		step report.Step
		path []report.Step
		want string
	}{
		{nft, []report.Step{nft, native}, "filter"},
		{legacy, []report.Step{legacy}, "filter"},
		{nft, []report.Step{native, nft, legacy}, "filter (nft)"},
		{legacy, []report.Step{native, nft, legacy}, "filter (legacy)"},
		{native, []report.Step{native, nft, legacy}, "inet firewalld"},
	} {
		if got := tableText(&tt.step, tt.path); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.step, got, tt.want)
		}
	}
}
