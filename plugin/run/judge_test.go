// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"

	"github.com/svcproxy/kubectl-svcproxy/trace/report"
	"github.com/svcproxy/kubectl-svcproxy/trace/snapshot"
)

// A panic of one node's goroutine would end the process, and print its value as it is.
func TestAPanicIsOfItsNodeAlone(t *testing.T) {
	s := &Session{index: &objectIndex{}}
	// Without a state there is nothing to judge.
	got := s.judgeNode(&loadedNode{node: "n"}, &snapshot.Cluster{}, Request{})
	if got.Verdict != report.Unknown || !strings.Contains(got.Error, "a defect of this program") {
		t.Errorf("got %s: %s", got.Verdict, got.Error)
	}
	if n := loadNode("n", nil); n.err == nil || !strings.Contains(n.err.Error(), "a defect of this program") {
		t.Errorf("got %v", n.err)
	}
}
