// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"testing"
)

// TestUninspectedNodes: a reason that names the node is the same for all of them.
func TestUninspectedNodes(t *testing.T) {
	got := fmt.Sprintf("%q", UninspectedNodes([]*NodeReport{
		{Node: "w1", Error: "the helper on node w1 does not answer"},
		{Node: "w2"},
		{Node: "w3", Error: "it runs Windows"},
		{Node: "w10", Error: "the helper on node w10 does not answer"},
		{Node: "w4", Error: "the helper on node w1 does not answer"},
	}))
	want := `[{["w1" "w10"] "the helper on node w1 does not answer"} {["w3"] "it runs Windows"} ` +
		`{["w4"] "the helper on node w1 does not answer"}]`
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if UninspectedNodes(nil) != nil {
		t.Error("of no nodes some are lost")
	}
}
