// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/diagnose"
)

// On a node where both backends have rules, "filter OUTPUT 1" stood there twice.
func TestTablesOfBothBackends(t *testing.T) {
	nft, legacy, native := diagnose.Step{Table: "filter", Backend: "nft"}, diagnose.Step{Table: "filter", Backend: "legacy"}, diagnose.Step{Table: "firewalld"}
	for _, tt := range []struct {
		step diagnose.Step
		path []diagnose.Step
		want string
	}{
		{nft, []diagnose.Step{nft, native}, "filter"},
		{legacy, []diagnose.Step{legacy}, "filter"},
		{nft, []diagnose.Step{native, nft, legacy}, "filter (nft)"},
		{legacy, []diagnose.Step{native, nft, legacy}, "filter (legacy)"},
		{native, []diagnose.Step{native, nft, legacy}, "firewalld"},
	} {
		if got := tableText(&tt.step, tt.path); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.step, got, tt.want)
		}
	}
}
