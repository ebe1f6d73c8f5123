// SPDX-License-Identifier: Apache-2.0

package print

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
)

// On a node where both backends have rules, "filter OUTPUT 1" stood there twice.
func TestTablesOfBothBackends(t *testing.T) {
	nft, legacy, native := report.Step{Table: "filter", Backend: "nft"}, report.Step{Table: "filter", Backend: "legacy"}, report.Step{Table: "firewalld"}
	for _, tt := range []struct {
		step report.Step
		path []report.Step
		want string
	}{
		{nft, []report.Step{nft, native}, "filter"},
		{legacy, []report.Step{legacy}, "filter"},
		{nft, []report.Step{native, nft, legacy}, "filter (nft)"},
		{legacy, []report.Step{native, nft, legacy}, "filter (legacy)"},
		{native, []report.Step{native, nft, legacy}, "firewalld"},
	} {
		if got := tableText(&tt.step, tt.path); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.step, got, tt.want)
		}
	}
}
